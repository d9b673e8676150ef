"""What the live table shows, folded from events. Not: how it is drawn, nor any clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from itertools import islice

from autoconf_launch.autotuner.trial import Prediction, Record, Trial

from ..events import (
    Event,
    Finished,
    ModelProfiled,
    SpaceBuilt,
    StepSeen,
    TrialFinished,
    TrialStarted,
)
from .cells import TrialRow, finished_row, minutes_text, running_row


@dataclass(slots=True)
class _Entry:
    """A trial as far as it has got."""

    trial: Trial
    prediction: Prediction | None = None
    step: int = 0
    record: Record | None = None
    resumed: bool = False


class Board:
    """Takes events in order; one entry per trial and attempt, in the order of their starts.

    What is measured again round by round has one entry, of its last round.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._best: Record | None = None
        self._phase = "profiling the model"
        self._left: int | None = None
        self._earlier_s = 0.0

    @singledispatchmethod
    def take(self, event: Event) -> None:
        """Fold one event in; those that change nothing here are passed over."""

    @take.register
    def _(self, event: ModelProfiled) -> None:
        self._phase = "building the search space"

    @take.register
    def _(self, event: SpaceBuilt) -> None:
        self._left = event.left

    @take.register
    def _(self, event: TrialStarted) -> None:
        self._phase = f"stage {event.trial.space}"
        self._entry(event.trial).prediction = event.prediction

    @take.register
    def _(self, event: StepSeen) -> None:
        entry = self._entry(event.trial)
        entry.step = max(entry.step, event.step.step)

    @take.register
    def _(self, event: TrialFinished) -> None:
        entry = self._entry(event.record.trial)
        entry.trial = event.record.trial
        entry.record, entry.resumed = event.record, event.resumed
        self._best = event.best
        self._earlier_s = max(self._earlier_s, event.elapsed_s if event.resumed else 0.0)

    @take.register
    def _(self, event: Finished) -> None:
        self._phase = "done"

    def __len__(self) -> int:
        return len(self._entries)

    def rows(self, limit: int) -> Sequence[TrialRow]:
        """The newest ``limit`` trials, the oldest of them first."""
        newest = list(islice(reversed(self._entries.values()), limit))
        return [self._row(entry) for entry in reversed(newest)]

    def headline(self, session_s: float) -> str:
        """Elapsed time, stage, progress and best so far.

        Args:
            session_s: seconds since this session began; earlier ones are added.
        """
        parts = (minutes_text(self._earlier_s + session_s), self._phase, self._progress())
        return " | ".join(part for part in (*parts, self._best_so_far()) if part)

    def _entry(self, trial: Trial) -> _Entry:
        attempt = 0 if trial.final else trial.attempt
        return self._entries.setdefault((trial.name, attempt), _Entry(trial))

    def _row(self, entry: _Entry) -> TrialRow:
        if entry.record is None:
            return running_row(entry.trial, entry.prediction, entry.step)
        is_best = self._best is not None and entry.trial == self._best.trial
        return finished_row(entry.record, is_best=is_best, resumed=entry.resumed)

    def _progress(self) -> str:
        if not self._entries:
            return ""
        most = "" if self._left is None else f" of at most {self._left + 1}"  # and the baseline
        trials = [entry.trial for entry in self._entries.values() if not entry.trial.again]
        searched = [trial for trial in trials if not (trial.final or trial.soak_steps)]
        again = "" if len(searched) == len(trials) else ", playoff"
        count = len({trial.name for trial in searched})  # a second attempt is no further one
        return f"trial {count}{most}{again}"

    def _best_so_far(self) -> str:
        measured = self._best.measurement if self._best else None
        if self._best is None or measured is None:
            return ""
        return f"best {self._best.trial.name} {measured.throughput_per_s:.2f} samples/s"
