"""State of a tune by its events: phase, time left, rows in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import singledispatchmethod

from autoconf_launch.autotuner.playoff import TimeRange, TuneOutlook, time_left
from autoconf_launch.autotuner.space import Prediction, Record, Trial

from ..events import (
    Event,
    Finished,
    ModelProfiled,
    RoundFinished,
    SpaceBuilt,
    Standing,
    StepSeen,
    TrialFinished,
    TrialStarted,
    TuneBegun,
)
from ..report import (
    TrialRow,
    best_text,
    clock_text,
    finished_row,
    launch_label,
    running_row,
    shown_name,
    standing_text,
    step_text,
)


class TunePhase(Enum):
    """Phase of a tune."""

    PROFILE = "profile"
    SPACE = "search space"
    SEARCH = "search"
    PLAYOFF = "playoff"
    VERIFICATION = "verification"
    DONE = "done"


@dataclass(slots=True)
class _Entry:
    """A trial as far as it has got; ``step`` is of a launch that runs, 0 before the first.

    ``trial`` is the last launch, ``record`` the search's unless a later launch failed.
    """

    trial: Trial
    prediction: Prediction | None = None
    step: int = 0
    runs: bool = True
    record: Record | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """Progress of a phase; ``total`` is None if it is unknown."""

    done: int
    total: int | None


class Board:
    """Takes events in order; one entry per trial and attempt, in the order of their starts.

    What is measured again round by round has one entry, of its last round.
    """

    def __init__(self) -> None:
        self.phase = TunePhase.PROFILE
        self.session_s = 0.0
        """Seconds since this session began, which the view sets; earlier ones are added."""
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._best: Record | None = None
        self._left: int | None = None
        self._limits = TuneBegun()
        self._earlier_s = self._profile_s = 0.0
        self._search_s = 0.0
        self._rounds: list[RoundFinished] = []

    @singledispatchmethod
    def take(self, event: Event) -> None:
        """Fold one event in; those that change nothing here are passed over."""

    @take.register
    def _(self, event: ModelProfiled) -> None:
        self.phase = TunePhase.SPACE

    @take.register
    def _(self, event: SpaceBuilt) -> None:
        self._left = event.left

    @take.register
    def _(self, event: TuneBegun) -> None:
        self._limits = event
        self._profile_s, self._earlier_s = self.session_s, event.spent_s

    @take.register
    def _(self, event: TrialStarted) -> None:
        trial = event.trial
        self.phase = _phase_of(trial)
        entry = self._entry(trial)
        entry.trial, entry.prediction, entry.step, entry.runs = trial, event.prediction, 0, True

    @take.register
    def _(self, event: StepSeen) -> None:
        entry = self._entry(event.trial)
        entry.step = max(entry.step, event.step.step)

    @take.register
    def _(self, event: TrialFinished) -> None:
        trial = event.record.trial
        self.phase = _phase_of(trial)  # of one whose start nobody saw, too
        entry = self._entry(trial)
        entry.trial, entry.runs, entry.step = trial, False, 0
        if entry.record is None or event.record.failure or not _measures_again(trial):
            entry.record, entry.resumed = event.record, event.resumed
        self._best = event.best
        self._earlier_s = max(self._earlier_s, event.elapsed_s if event.resumed else 0.0)
        if not _measures_again(trial):
            self._search_s = event.elapsed_s

    @take.register
    def _(self, event: RoundFinished) -> None:
        self._rounds.append(event)

    @take.register
    def _(self, event: Finished) -> None:
        self.phase = TunePhase.DONE
        for record in event.compared:
            self._entry(record.trial).record = record

    def __len__(self) -> int:
        return len(self._entries_shown())

    @property
    def progress(self) -> PhaseProgress | None:
        if self.phase is TunePhase.SEARCH:
            total = None if self._left is None else self._left + 1  # and the baseline
            return PhaseProgress(self._tried, self._most(total))
        if self.phase is TunePhase.PLAYOFF:
            return PhaseProgress(len(self._rounds) + 1, None)
        if self.phase is TunePhase.VERIFICATION and (entry := self._verified):
            return PhaseProgress(entry.step, entry.trial.soak_steps)
        return None

    def headline(self) -> str:
        """Elapsed time, time left and share of the budget."""
        whole_s, budget_s = self._earlier_s + self.session_s, self._limits.budget_s
        return clock_text(whole_s, self.time_left(), self.session_s, budget_s)

    def answer(self) -> str:
        """The best so far; empty before there is any."""
        entry = next((e for (name, _), e in self._entries.items() if name == self._first), None)
        measured = entry.record.measurement if entry and entry.record else None
        if entry is None or measured is None:
            return ""
        is_over = self.phase is TunePhase.DONE
        speed = measured.throughput_per_s if is_over or not self._rounds else None
        return best_text(entry.trial.candidate, speed, so_far=not is_over)

    def time_left(self) -> TimeRange | None:
        seen = self._outlook()
        if seen is None or self.phase in (TunePhase.PROFILE, TunePhase.SPACE, TunePhase.DONE):
            return None
        left, budget_s = time_left(seen), self._limits.budget_s
        return left if budget_s is None else left.within(max(0.0, budget_s - self.session_s))

    def rows(self, limit: int) -> Sequence[TrialRow]:
        """The newest ``limit`` trials, the oldest first; from the playoff on the best ones."""
        entries = self._entries_shown()
        shown = entries[:limit] if self._is_ranked else entries[max(0, len(entries) - limit) :]
        return [self._row(entry) for entry in shown]

    @property
    def _is_ranked(self) -> bool:
        later = (TunePhase.PLAYOFF, TunePhase.VERIFICATION)
        return bool(self._standings) or self.phase in later

    def _entries_shown(self) -> list[_Entry]:
        """Entries in the order of rows; repeats of the search only while that goes on."""
        entries = [*self._entries.values()]
        if not self._is_ranked:
            return entries
        return [*self._rank([entry for entry in entries if not entry.trial.again])]

    @property
    def _standings(self) -> tuple[Standing, ...]:
        return self._rounds[-1].standings if self._rounds else ()

    @property
    def _first(self) -> str | None:
        """Name of the best, as the rounds say, else the search."""
        if self._standings:
            return self._standings[0].trial.name
        return shown_name(self._best.trial) if self._best else None

    @property
    def _tried(self) -> int:
        """Trials of the search, second attempts not counted."""
        return len({name for (name, _), e in self._entries.items() if not e.trial.again})

    @property
    def _verified(self) -> _Entry | None:
        found = (e for e in self._entries.values() if e.trial.is_soak and e.runs)
        return next(found, None)

    def _most(self, total: int | None) -> int | None:
        most = [number for number in (total, self._limits.trials) if number is not None]
        return max(self._tried, min(most)) if most else None

    def _entry(self, trial: Trial) -> _Entry:
        """Its entry; what a round or a verification run measures again has its trial's own."""
        key = trial.name, trial.attempt
        if _measures_again(trial):
            name = shown_name(trial)
            key = next((k for k in reversed(self._entries) if k[0] == name), (name, 1))
        return self._entries.setdefault(key, _Entry(trial))

    def _outlook(self) -> TuneOutlook | None:
        records = [entry.record for entry in self._entries.values() if entry.record]
        walls_s = [r.wall_s for r in records if r.measurement and r.wall_s]
        best = self._best.measurement if self._best else None
        if not walls_s or best is None:
            return None
        total = self._most(None if self._left is None else self._left + 1)
        if total is None:
            return None
        run = self._verified
        return TuneOutlook(
            trial_s=TimeRange(low_s=min(walls_s), high_s=max(walls_s)),
            step_s=best.mean_step_s,
            trials=self._tried,
            left=total - self._tried,
            spent_s=self._earlier_s + self.session_s - self._profile_s,
            at_once=self._limits.at_once,
            effort=self._limits.effort,
            verifies=self._limits.verifies,
            search_s=None if self.phase is TunePhase.SEARCH else self._search_s,
            steps_left=max(0, run.trial.soak_steps - run.step) if run else None,
        )

    def _rank(self, entries: Sequence[_Entry]) -> Iterator[_Entry]:
        """Contenders by their standing, then the rest of the search, the fastest first."""
        places = {s.trial.name: place for place, s in enumerate(self._standings)}

        def place(entry: _Entry) -> tuple[bool, int, float]:
            measured = entry.record.measurement if entry.record else None
            speed = measured.throughput_per_s if measured else 0.0
            name = shown_name(entry.trial)
            known = name in places or _measures_again(entry.trial)
            return not known, places.get(name, len(places)), -speed

        return iter(sorted(entries, key=place))

    def _row(self, entry: _Entry) -> TrialRow:
        if entry.record is None:
            return running_row(entry.trial, entry.prediction, entry.step)
        is_best = shown_name(entry.trial) == self._first and not entry.trial.again
        status = "resumed" if entry.resumed else "measured"
        row = finished_row(entry.record, is_best=is_best, status=status)
        return replace(row, status=self._status(entry, row.status))

    def _status(self, entry: _Entry, status: str) -> str:
        name = shown_name(entry.trial)
        behind = next((s for s in self._standings if s.trial.name == name), None)
        if entry.runs and entry.trial.is_soak:
            return launch_label(entry.trial)
        if behind is None:
            return f"{status}; {step_text(entry.step)}" if entry.runs else status
        is_first = behind is self._standings[0]
        return standing_text(behind, is_first=is_first, is_over=self.phase is TunePhase.DONE)


def _phase_of(trial: Trial) -> TunePhase:
    if trial.is_soak:
        return TunePhase.VERIFICATION
    return TunePhase.PLAYOFF if trial.final else TunePhase.SEARCH


def _measures_again(trial: Trial) -> bool:
    return trial.final or trial.is_soak
