"""The search of every front end: points, the runner that runs them, and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from autoconf_launch.autotuner.playoff import Decider
from autoconf_launch.autotuner.search import ListedStudy, StopKind, StopReason
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    Objective,
    Record,
    Trial,
)
from autoconf_launch.core import Candidate, ClusterSpec, Failure, FailureKind
from autoconf_launch.launcher.engines import Backend
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.hosts import WHOLE
from autoconf_launch.launcher.interrupts import stopping_on_signals
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.results import (
    Fingerprint,
    OpenFolder,
    ResultsPaths,
    fingerprint,
    open_folder,
    write_environment,
)
from autoconf_launch.launcher.trackers import Feed, track_events
from autoconf_launch.launcher.tuning import Controller, TrialIO, TrialLimits

from ..report import NOT_STARTED


class HpPoint(Protocol):
    """A configuration that a search may run."""

    @property
    def name(self) -> str:
        """Name of its folder: no other point of the search has it."""

    @property
    def candidate(self) -> Candidate:
        """The configuration as studies and journals store it."""

    @property
    def space(self) -> str:
        """The tuning space that reports count it in."""


AnyPoint = TypeVar("AnyPoint", bound=HpPoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class HpRuns(Generic[AnyPoint]):
    """The runs of a search, whoever made them.

    Attributes:
        points: points to run, in order.
        records: results; the last record of a name counts.
        finals: repeated measurements of the best.
        not_started: points without a launch, each with the reason.
        elapsed_s: duration of all searches in its folder, in seconds.
        device: name of the device that ran; None if the settings say it.
    """

    points: tuple[AnyPoint, ...]
    records: tuple[Record, ...]
    finals: tuple[Record, ...] = ()
    not_started: tuple[tuple[AnyPoint, Failure], ...] = ()
    stop: StopReason = field(default_factory=lambda: StopReason(kind=StopKind.EXPLORED))
    elapsed_s: float = 0.0
    device: str | None = None

    def outcomes(self) -> Iterator[tuple[AnyPoint, Record | Failure]]:
        """Points with their last record, or the reason for which they were not started."""
        last = {record.trial.name: record for record in self.records}
        reasons = {point.name: (point, why) for point, why in self.not_started}
        for point in self.points:
            if point.name in last:
                yield point, last[point.name]
            elif point.name in reasons:
                yield reasons.pop(point.name)
        yield from reasons.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRuns:
    """A held results folder, with the parts of a runner that launch into it."""

    opened: OpenFolder
    files: TrialIO
    backend: Backend
    listener: Listener

    def control(self, decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider,
            self.backend,
            self.files,
            journal=self.opened.journal,
            listener=listener,
            limits=limits,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[AnyPoint]):
    """Points to run, in order, the others with the reason, and the parts that launch them."""

    points: tuple[AnyPoint, ...]
    left_out: tuple[tuple[AnyPoint, Failure], ...] = ()
    runs: OpenRuns


class Runner(Protocol[AnyPoint]):
    """The way in which points are run: ranks here, jobs of a scheduler, an inference engine."""

    at_once: int = 1
    objective: Objective = OBJECTIVES["throughput"]
    device: str | None = None

    def opening(self, listener: Listener, *, fresh: bool) -> AbstractContextManager[OpenRuns]:
        """Hold the results folder; ``fresh`` moves the results of an earlier search aside.

        Raises:
            ResultsFolderError: another controller holds the folder, or it cannot be written.
        """

    def choose(self, points: tuple[AnyPoint, ...], runs: OpenRuns) -> Chosen[AnyPoint]:
        """Points to run, in order; all of them by default."""
        return Chosen(points=points, runs=runs)

    def candidate(self, point: AnyPoint) -> Candidate:
        """The configuration of a point as this runner launches it."""
        return point.candidate

    def counts(self, record: Record) -> bool:
        """True if an outcome of an earlier search still counts."""
        return True

    def measure_again(self, found: HpRuns[AnyPoint], runs: OpenRuns) -> tuple[Record, ...]:
        """Further measurements of the best; none by default."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of each run.

    Attributes:
        steps: largest number of steps.
        steps_s: duration of steps after which a run makes no more, in seconds.
        launch: time limits of a whole launch.
    """

    steps: int
    steps_s: float
    launch: TrialLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class HpSearch(Generic[AnyPoint]):
    """Points, each run once by one runner within limits."""

    points: tuple[AnyPoint, ...]
    runner: Runner[AnyPoint]
    limits: RunLimits

    def run(self, listener: Listener, *, fresh: bool) -> HpRuns[AnyPoint]:
        """Run the points in order; measurements of an earlier, equal search count.

        Raises:
            NothingFeasibleError: the runner has no point to run.
            ResultsFolderError: another controller holds the folder, or it cannot be written.
        """
        runner = self.runner
        with runner.opening(listener, fresh=fresh) as runs:
            chosen = runner.choose(self.points, runs)
            found = self._run(chosen)
            return replace(found, finals=runner.measure_again(found, chosen.runs))

    def _run(self, chosen: Chosen[AnyPoint]) -> HpRuns[AnyPoint]:
        points, runs = chosen.points, chosen.runs
        trials, limits, runner = trials_of(points, self.runner.candidate), self.limits, self.runner
        study = ListedStudy(
            trials,
            most_steps=limits.steps,
            most_s=limits.steps_s,
            objective=runner.objective,
        )
        controller = runs.control(study, runs.listener, limits.launch)
        candidates = {trial.name: trial.candidate for trial in trials}
        earlier = runs.opened.contents.search
        counted = tuple(
            one
            for one in earlier.records
            if candidates.get(one.trial.name) == one.trial.candidate and runner.counts(one)
        )
        controller.resume(replace(earlier, records=counted))
        stop = controller.run(WHOLE * runner.at_once)
        larger = dict(study.ruled_out)
        ruled_out = tuple(
            (one, too_large(larger[one.name])) for one in points if one.name in larger
        )
        return HpRuns(
            points=points,
            records=study.records,
            not_started=(*ruled_out, *chosen.left_out),
            stop=stop,
            elapsed_s=controller.elapsed_s,
            device=runner.device,
        )


def too_large(record: Record) -> Failure:
    """The reason for which a point is not started that needs more memory than a failed one."""
    name = record.trial.name
    detail = f"{NOT_STARTED}: needs more memory than {name}, which ran out of it"
    return Failure(kind=FailureKind.OUT_OF_MEMORY, detail=detail)


def trials_of(
    points: Sequence[AnyPoint], candidate: Callable[[AnyPoint], Candidate]
) -> tuple[Trial, ...]:
    """Trials of points, in their order."""
    return tuple(
        Trial(number=number, name=one.name, candidate=candidate(one), space=one.space)
        for number, one in enumerate(points)
    )


@contextmanager
def opening_runs(
    paths: ResultsPaths, print_: Fingerprint, listener: Listener, *, fresh: bool
) -> Iterator[OpenFolder]:
    """Hold the folder of a search; ``fresh`` moves earlier results aside."""
    with stopping_on_signals(), open_folder(paths, print_, fresh=fresh) as opened:
        for text in opened.notes:
            listener(Note(text=text))
        yield opened


@contextmanager
def opening_launches(
    paths: ResultsPaths,
    launch: tuple[LaunchRequest, ClusterSpec, Feed],
    parts: tuple[TrialIO, Callable[[Listener], Backend]],
    listener: Listener,
    *,
    fresh: bool,
) -> Iterator[OpenRuns]:
    """Hold the folder of our own launches; trackers receive their events, too."""
    settings, (request, cluster, feed) = AutotuningSettings(enabled=True), launch
    files, backend = parts
    print_ = fingerprint(request, cluster, find_script_source(request), settings)
    with opening_runs(paths, print_, listener, fresh=fresh) as opened:
        write_environment(paths, request, cluster, settings)
        with (
            track_events(request.tracking, feed, paths.tracking, listener) as heard,
            closing(backend(heard)) as engine,
        ):
            yield OpenRuns(opened=opened, files=files, backend=engine, listener=heard)
