"""Launches after the search: rounds of the best, then the winner's verification run.

autotuner/playoff chooses them and decides on the next steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from autoconf_launch.autotuner.measurement import EFFORTS, Effort, Noise
from autoconf_launch.autotuner.playoff import (
    FEWEST_STEPS,
    Decider,
    Playoff,
    PlayoffBudget,
    Rounds,
    Soak,
    best_of,
    choose_contenders,
    decide,
    fit_together,
    playoff_s,
    verification_steps,
)
from autoconf_launch.autotuner.search import MARGIN, Study, start_bound_s
from autoconf_launch.autotuner.space import OBJECTIVES, AutotuningSettings, Objective, Record

from ..events import (
    Event,
    Listener,
    Note,
    RoundFinished,
    Standing,
    TrialFinished,
    TrialStarted,
)
from ..hosts import WHOLE, SlotPool
from ..report import bound_text, lack_of_time_text
from ..results import JournalContents, read_result
from .controller import Controller
from .running import TimeBudget, TrialLimits

_MakeController = Callable[[Decider, Listener, TrialLimits], Controller]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search before the playoff.

    Attributes:
        noise: noise of launches in the search.
        apart: reason why launches cannot live side by side and compute in turn; else empty.
        hosts: hosts of the launches, if not this machine; rounds stay on the first ones left.
        side_by_side: trials shared the machine, so the best are measured again in any case.
    """

    records: tuple[Record, ...]
    settings: AutotuningSettings
    elapsed_s: float
    noise: Noise
    repeats: tuple[Record, ...] = ()
    apart: str = ""
    hosts: SlotPool | None = None
    side_by_side: bool = False
    budget: TimeBudget = field(default_factory=TimeBudget)

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.settings.metric]

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.settings.effort]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endgame:
    """The result. ``elapsed_s`` is of the whole study; ``notes`` report a lack of time."""

    playoff: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()
    elapsed_s: float
    notes: tuple[str, ...] = ()


def play(
    search: Search,
    control: _MakeController,
    *,
    listener: Listener,
    limits: TrialLimits,
    earlier: JournalContents,
    soak_asked: int | None,
) -> Endgame:
    """Measure the best again in turn, then verify the winner by a longer run."""
    search = _as_it_began(search, earlier)
    effort = search.effort
    until_s = search.budget.end_s - _soak_bound_s(search, soak_asked)
    left_s = max(0.0, until_s - search.budget.spent_s)
    time_s = min(playoff_s(search.elapsed_s, effort), left_s)
    budget = PlayoffBudget(time_s=time_s, until_s=until_s, effort=effort)
    contenders = choose_contenders(
        search.records,
        search.objective,
        effort,
        search.noise,
        search.repeats,
        side_by_side=search.side_by_side,
    )
    rounds = Playoff(contenders, search.objective, noise=search.noise, budget=budget)
    each = max(1, len(contenders))
    waiting = replace(
        limits,
        timeout_s=each * limits.timeout_s,
        stall_s=each * limits.stall_s,
    )
    apart = search.apart or _why_apart(rounds)
    heard = _Rounds(rounds, search.objective, listener, apart=apart)
    controller = control(rounds, heard, waiting)
    controller.resume(earlier.rounds, before_s=search.elapsed_s)
    same_hosts = search.hosts and search.hosts.one_at_a_time()
    controller.run(same_hosts or WHOLE * (1 if search.apart else each))
    elapsed_s = controller.elapsed_s
    order = decide(search.records, rounds.records, (), search.settings, search.noise).order
    if soak_asked == 0 or not order or order[0].measurement is None:
        return Endgame(playoff=rounds.records, elapsed_s=elapsed_s)
    step_s = order[0].measurement.mean_step_s
    time_s = max(effort.verification_s, effort.verification_share * elapsed_s)
    steps = verification_steps(
        soak_asked, step_s=step_s, time_s=time_s, most=effort.verification_steps
    )
    longer = _verification_limits(limits, effort, steps_s=steps * step_s, elapsed_s=elapsed_s)
    launches = (*search.records, *rounds.records)
    soak = Soak(order, steps=steps, start_s=start_bound_s(launches), until_s=search.budget.end_s)
    controller = control(soak, listener, longer)
    controller.resume(earlier.soaking, before_s=elapsed_s)
    controller.run(same_hosts or WHOLE)
    lacking = soak.lacks_time
    return Endgame(
        playoff=rounds.records,
        soaks=soak.records,
        elapsed_s=controller.elapsed_s,
        notes=(lack_of_time_text(lacking, search.budget.ending_s),) if lacking else (),
    )


def _verification_limits(
    limits: TrialLimits, effort: Effort, *, steps_s: float, elapsed_s: float
) -> TrialLimits:
    pause_s = max(effort.fewest_pause_s, effort.pause_share * elapsed_s)
    return replace(
        limits,
        timeout_s=limits.timeout_s + 2.0 * (steps_s + effort.most_pause_s),
        stall_s=max(limits.stall_s, effort.most_pause_s),
        pause_s=min(effort.most_pause_s, pause_s),
    )


def _soak_bound_s(search: Search, asked: int | None) -> float:
    """Upper bound of the shortest verification run of the best, in seconds."""
    best = best_of(search.records, search.objective)
    if asked == 0 or best is None or best.measurement is None:
        return 0.0
    steps = min(asked or FEWEST_STEPS, FEWEST_STEPS)
    return start_bound_s(search.records) + MARGIN * steps * best.measurement.mean_step_s


def _as_it_began(search: Search, earlier: JournalContents) -> Search:
    """The search with its duration when the rounds first began, unless it has gone on since."""
    known = {record.trial.name for record in earlier.records}
    has_gone_on = any(record.trial.name not in known for record in search.records)
    if earlier.searched_s is None or has_gone_on:
        return search
    return replace(search, elapsed_s=earlier.searched_s)


def _why_apart(rounds: Playoff) -> str:
    fit = fit_together([contender.searched for contender in rounds.seen.contenders])
    return "" if fit else "it is not known that they fit in memory side by side"


class _Rounds:
    """Passes events on, and reports each round that is over.

    ``apart``: reason why launches follow each other, reported before the first one.
    """

    def __init__(
        self, rounds: Playoff, objective: Objective, listener: Listener, *, apart: str
    ) -> None:
        self._rounds = rounds
        self._objective = objective
        self._listener = listener
        self._apart = apart
        self._told = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialStarted) and self._apart:
            text = f"The playoff launches run one after the other: {self._apart}."
            self._listener(Note(text=text))
            self._apart = ""
        self._listener(event)
        if isinstance(event, TrialFinished) and self._rounds.rounds > self._told:
            self._told = self._rounds.rounds
            self._listener(
                RoundFinished(
                    number=self._told,
                    elapsed_s=event.elapsed_s,
                    standings=standings_of(self._rounds.seen),
                )
            )


def standings_of(rounds: Rounds) -> tuple[Standing, ...]:
    """Contenders by the rounds so far, the best first."""
    first = rounds.leader
    if first is None:
        return ()
    found = [
        (contender, rounds.compare(contender, first))
        for contender in rounds.contenders
        if contender is not first and contender.rounds
    ]
    return (
        Standing(trial=first.searched.trial, behind=0.0, width=0.0),
        *(
            Standing(trial=contender.searched.trial, behind=seen.mean, width=seen.width)
            for contender, seen in sorted(found, key=lambda pair: pair[1].mean)
            if seen.rounds
        ),
    )


def with_outlook(study: Study, listener: Listener) -> Listener:
    """The listener, with the outlook after each trial that changes it."""
    said = ""

    def listen(event: Event) -> None:
        nonlocal said
        listener(event)
        if not isinstance(event, TrialFinished) or event.resumed:
            return
        found = study.optimality_bound
        if found is not None and found.remaining and bound_text(found) != said:
            said = bound_text(found)
            listener(Note(text=said, detail=True))

    return listen


_MOST_SHOWN = 5


def said_by_probes(results: Path, folder: Path, own: Path | None = None) -> tuple[str, ...]:
    """Sentences on all trials in a results folder, each once.

    Args:
        results: folder with a folder for each trial.
        folder: the working directory of the trials.
        own: our files next to the results, which the script did not write.
    """
    found = [read_result(path) for path in sorted(results.glob("*/result*.json"))]
    read = [result for result in found if result is not None]
    there = ((path, folder / path) for result in read for path in result.left_behind)
    left = {name for name, path in there if path.exists() and own not in (path, *path.parents)}
    notes = dict.fromkeys(note for result in read for note in result.notes)
    return (*notes, *_on_left(_outermost(left)))


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    given = {PurePosixPath(path) for path in paths}
    outer = sorted(path for path in given if not given & set(path.parents))
    return tuple(map(str, outer))


def _on_left(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths:
        return ()
    shown = ", ".join(paths[:_MOST_SHOWN])
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return (
        f"New or changed in the working folder since the tune began: {shown}{more}; the trials "
        "wrote that, or another program did.",
    )
