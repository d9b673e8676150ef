"""State of a tune by its events: phase, time left, rows in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import singledispatchmethod

from autoconf_launch.autotuner.playoff import (
    TimeRange,
    TuneOutlook,
    playoff_s,
    time_left,
    verification_range,
)
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
    behind_text,
    finished_row,
    label,
    minutes_text,
    range_text,
    running_row,
    shown_name,
    step_text,
)

_SLACK = 1.5
"""Longest verification run, as a multiple of the time that its steps so far predict."""


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
        self._step_s: list[float] = []

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
        self._step_s = []

    @take.register
    def _(self, event: StepSeen) -> None:
        entry = self._entry(event.trial)
        entry.step = max(entry.step, event.step.step)
        self._step_s.append(event.step.wall_s)

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
            number = len(self._rounds)
            most = self._rounds[-1].rounds_in_time if self._rounds else None
            return PhaseProgress(min(number + 1, most or number + 1), most)
        if self.phase is TunePhase.VERIFICATION and (entry := self._verified):
            return PhaseProgress(entry.step, entry.trial.soak_steps)
        return None

    def headline(self) -> str:
        """Elapsed time, time left and share of the budget."""
        left, budget_s = self.time_left(), self._limits.budget_s
        parts = [minutes_text(self._earlier_s + self.session_s)]
        if left is not None:
            parts.append(f"{range_text(left)} left")
        if budget_s is not None:
            share = min(1.0, self.session_s / budget_s)
            parts.append(f"{100 * share:.0f} % of the budget ({minutes_text(budget_s)})")
        return " · ".join(parts)

    def answer(self) -> str:
        """The best so far; empty before there is any."""
        entry = next((e for (name, _), e in self._entries.items() if name == self._first), None)
        measured = entry.record.measurement if entry and entry.record else None
        if entry is None or measured is None:
            return ""
        best = label(entry.trial.candidate)
        if self.phase is TunePhase.DONE:
            return f"best: {best}, {measured.throughput_per_s:.2f} samples/s"
        speed = "" if self._rounds else f", {measured.throughput_per_s:.2f} samples/s"
        return f"best so far: {best}{speed}"

    def time_left(self) -> TimeRange | None:
        seen = self._outlook()
        if seen is None or self.phase in (TunePhase.PROFILE, TunePhase.SPACE, TunePhase.DONE):
            return None
        spent_s, budget_s = self._study_s, self._limits.budget_s
        if self.phase is TunePhase.SEARCH:
            left = time_left(replace(seen, spent_s=spent_s))
        elif self.phase is TunePhase.PLAYOFF:
            left = self._rounds_left(seen, spent_s) + verification_range(seen, spent_s)
        else:
            left = self._verification_left(seen, spent_s)
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
    def _study_s(self) -> float:
        """Seconds since the first trial, earlier sessions included."""
        return self._earlier_s + self.session_s - self._profile_s

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
        return TuneOutlook(
            trial_s=TimeRange(low_s=min(walls_s), high_s=max(walls_s)),
            step_s=best.mean_step_s,
            trials=self._tried,
            left=total - self._tried,
            at_once=self._limits.at_once,
            effort=self._limits.effort,
            verifies=self._limits.verifies,
        )

    def _rounds_left(self, seen: TuneOutlook, spent_s: float) -> TimeRange:
        """Rounds may be over after each; all that there is time for take as long as the last."""
        whole_s = playoff_s(self._search_s, seen.effort)
        if not self._rounds:
            return TimeRange(low_s=0.0, high_s=max(0.0, self._search_s + whole_s - spent_s))
        last = self._rounds[-1]
        begun_s = self._rounds[-2].elapsed_s if len(self._rounds) > 1 else self._search_s
        more = max(0, last.rounds_in_time - last.number)
        left_s = more * (last.elapsed_s - begun_s) - (spent_s - last.elapsed_s)
        return TimeRange(low_s=0.0, high_s=max(0.0, left_s))

    def _verification_left(self, seen: TuneOutlook, spent_s: float) -> TimeRange:
        entry = self._verified
        if entry is None or not entry.step or not self._step_s:
            return verification_range(seen, spent_s)
        left = max(0, entry.trial.soak_steps - entry.step)
        left_s = left * sum(self._step_s) / len(self._step_s)
        return TimeRange(low_s=left_s, high_s=_SLACK * left_s + seen.trial_s.low_s)

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
            return "verification run"
        if behind is None:
            return f"{status}; {step_text(entry.step)}" if entry.runs else status
        if behind is not self._standings[0]:
            return behind_text(behind).removeprefix("is ")
        return "best" if self.phase is TunePhase.DONE else "leads"


def _phase_of(trial: Trial) -> TunePhase:
    if trial.is_soak:
        return TunePhase.VERIFICATION
    return TunePhase.PLAYOFF if trial.final else TunePhase.SEARCH


def _measures_again(trial: Trial) -> bool:
    return trial.final or trial.is_soak
