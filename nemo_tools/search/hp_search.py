"""The runs of a search: each trial of a list once, in a folder that it can go on from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.playoff import Decider
from autoconf_launch.autotuner.search import ListedStudy, StopReason
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    Objective,
    Record,
    Trial,
)
from autoconf_launch.core import ClusterSpec
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HpRuns:
    """Finished runs.

    Attributes:
        ruled_out: names that were not started, each with the failure that rules it out.
        elapsed_s: time of this search and of earlier ones in its folder.
    """

    records: tuple[Record, ...]
    ruled_out: tuple[tuple[str, Record], ...] = ()
    stop: StopReason
    elapsed_s: float = 0.0


@contextmanager
def opening_runs(
    paths: ResultsPaths, print_: Fingerprint, listener: Listener, *, fresh: bool
) -> Iterator[OpenFolder]:
    """Hold the folder of a search; ``fresh`` moves what an earlier one left aside.

    Raises:
        ResultsFolderError: another controller holds the folder, or it cannot be written.
    """
    with stopping_on_signals(), open_folder(paths, print_, fresh=fresh) as opened:
        for text in opened.notes:
            listener(Note(text=text))
        yield opened


@contextmanager
def opening_launches(
    paths: ResultsPaths,
    request: LaunchRequest,
    cluster: ClusterSpec,
    feed: Feed,
    listener: Listener,
    *,
    fresh: bool,
) -> Iterator[tuple[OpenFolder, Listener]]:
    """The folder of runs of our runtime, and a listener that trackers hear, too."""
    settings = AutotuningSettings(enabled=True)
    print_ = fingerprint(request, cluster, find_script_source(request), settings)
    with opening_runs(paths, print_, listener, fresh=fresh) as opened:
        write_environment(paths, request, cluster, settings)
        with track_events(request.tracking, feed, paths.tracking, listener) as heard:
            yield opened, heard


@dataclass(frozen=True, slots=True, kw_only=True)
class HpSearch:
    """A search of an open folder.

    Attributes:
        runner: plans trials and reads what they left.
        backend: launches the plans.
        limits: of each run.
    """

    opened: OpenFolder
    runner: TrialIO
    backend: Backend
    listener: Listener
    limits: TrialLimits

    def control(self, decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider,
            self.backend,
            self.runner,
            journal=self.opened.journal,
            listener=listener,
            limits=limits,
        )

    def run(
        self,
        trials: Sequence[Trial],
        *,
        most: tuple[int, float],
        at_once: int = 1,
        objective: Objective = OBJECTIVES["throughput"],
        counts: Callable[[Record], bool] = lambda record: True,
    ) -> HpRuns:
        """Run every trial in order; what an earlier, equal search measured of it counts.

        Args:
            trials: each with its own name.
            most: steps of a trial, and seconds of steps after which it makes no more.
            at_once: trials that run side by side.
            objective: by which one is the best.
            counts: whether an earlier outcome is taken.
        """
        study = ListedStudy(trials, most_steps=most[0], most_s=most[1], objective=objective)
        controller = self.control(study, self.listener, self.limits)
        known = {trial.name: trial.candidate for trial in trials}
        earlier = self.opened.contents.search
        ours = (one for one in earlier.records if known.get(one.trial.name) == one.trial.candidate)
        controller.resume(replace(earlier, records=tuple(filter(counts, ours))))
        stop = controller.run(WHOLE * at_once)
        return HpRuns(
            records=study.records,
            ruled_out=study.ruled_out,
            stop=stop,
            elapsed_s=controller.elapsed_s,
        )
