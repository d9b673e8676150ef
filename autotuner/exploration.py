"""Which group of a space is explored now, and which of its rows are tried next.

Not: when a search is over though rows are left (limits), nor what is launched again (anchors).
"""

from __future__ import annotations

from autoconf_launch.core import Candidate

from . import stop
from .grouping import Grouping
from .knobs import candidate_name
from .learned import Learned
from .objective import OBJECTIVES
from .phases import Phases
from .pool import Pool
from .settings import AutotuningSettings
from .space import SearchSpace
from .stage import StageProgress, is_better, space_name
from .stop import StopReason
from .strategies.base import Strategy, next_number
from .table import Ints, PredictionTable
from .trial import Trial


class Exploration:
    """Goes through the groups of a space, from what was learned and what is pending."""

    def __init__(
        self,
        space: SearchSpace,
        predictions: PredictionTable | None,
        settings: AutotuningSettings,
        strategy: Strategy,
        pool: Pool,
        learned: Learned,
    ) -> None:
        """Start before the first group.

        Args:
            space: what is explored.
            predictions: of the rows of ``space.table``.
            settings: patience, seed, and how rows are grouped.
            strategy: chooses among the rows that are due.
            pool: the rows that are open.
            learned: what came back, as it grows.
        """
        self._table, self._predictions, self._settings = space.table, predictions, settings
        self._strategy, self._learned = strategy, learned
        self._objective = OBJECTIVES[settings.metric]
        self._groups = Grouping.of_settings(settings)
        self._phases = Phases(pool, settings, learned, self._groups)
        self.small_too = False
        """Whether micro-batches below the user's are tried: only if that one does not fit."""

    def group_now(self, pending: tuple[Trial, ...]) -> int | StopReason:
        """The first group that is not done, or why none is left to explore."""
        before: StageProgress | None = None
        last = max(self._learned.stages)
        for group, progress in self._learned.stages.items():
            if self._running(group, pending) or self._wanted(group, pending):
                return group
            if progress.best is None:
                continue
            better = before is None or is_better(progress.best, before.best, self._objective)
            if before and not better and group != last:
                return stop.stage_no_better(progress, before, self._objective)
            before = progress
        learned, small = self._learned, self.small_too
        cut = self._phases.are_cut(small_too=small)
        most_trials = self._settings.tuner_num_trials if cut else 0
        return stop.explored(learned.records, self._predictions, most_trials)

    def propose(self, count: int, pending: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """At most so many new trials of the present group.

        A phase that its strategy gives up is done.
        """
        while count and not isinstance(group := self.group_now(pending), StopReason):
            trials = self._proposed(group, min(count, self._wanted(group, pending)), pending)
            if trials or self._running(group, pending):
                return trials
            self._phases.give_up(group, further=self._is_further(group))
        return ()

    def _running(self, group: int, pending: tuple[Trial, ...]) -> int:
        return sum(self._groups.of(trial.candidate.layout) == group for trial in pending)

    def _wanted(self, group: int, pending: tuple[Trial, ...]) -> int:
        """Trials that this group could still start now."""
        remaining = self._learned.stages[group].remaining(
            self._settings, self._running(group, pending), further=self._is_further(group)
        )
        return min(remaining, len(self._due_rows(group, pending))) if remaining else 0

    def _is_further(self, group: int) -> bool:
        progress = self._learned.stages[group]
        return self._phases.is_further(group, progress, small_too=self.small_too)

    def _due_rows(self, group: int, pending: tuple[Trial, ...]) -> Ints:
        progress = self._learned.stages[group]
        return self._phases.due_rows(group, progress, pending, small_too=self.small_too)

    def _proposed(self, group: int, count: int, pending: tuple[Trial, ...]) -> tuple[Trial, ...]:
        if count < 1:
            return ()
        rows = self._due_rows(group, pending)
        chosen = self._strategy.propose(
            self._table.take(rows),
            None if self._predictions is None else self._predictions.take(rows),
            self._learned.compared,
            pending,
            count,
            self._settings.seed,
        )
        first = next_number(self._learned.records, pending)
        candidates = [self._table.row(int(rows[i])) for i in dict.fromkeys(chosen)]
        return tuple(new_trial(first + i, c) for i, c in enumerate(candidates[:count]))


def new_trial(number: int, candidate: Candidate) -> Trial:
    """The first attempt of a candidate."""
    return Trial(
        number=number,
        name=candidate_name(candidate),
        candidate=candidate,
        space=space_name(candidate.layout.zero_stage),
    )
