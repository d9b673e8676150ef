"""Choose the group of a space to explore now, and its rows that are due.

Not: the end of a search that has rows left (limits), repeats of trials (repeats), nor the next
row of a phase (a strategy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import Candidate

from ..space import (
    OBJECTIVES,
    AutotuningSettings,
    Ints,
    PredictionTable,
    SearchSpace,
    StageProgress,
    Trial,
    candidate_name,
    is_better,
    space_name,
)
from ..strategies import Ask, Strategy, next_number
from . import stop
from .observations import Observations
from .pool import Grouping, Pool
from .stop import StopReason


class Exploration:
    """Goes through the groups of a space, by the records and the pending trials.

    Attributes:
        small_too: micro-batches below the user's are tried: the user's does not fit.
    """

    def __init__(
        self,
        space: SearchSpace,
        predictions: PredictionTable | None,
        settings: AutotuningSettings,
        strategy: Strategy,
        pool: Pool,
        observations: Observations,
    ) -> None:
        """Start before the first group.

        Args:
            space: the space to explore.
            predictions: predictions of the rows of ``space.table``.
            settings: patience, seed, and grouping of the rows.
            strategy: the strategy that chooses among due rows.
            pool: the rows that are open.
            observations: the records so far; they grow during the search.
        """
        self._table, self._predictions, self._settings = space.table, predictions, settings
        self._strategy, self._pool, self._observations = strategy, pool, observations
        self._objective = OBJECTIVES[settings.metric]
        self._groups = Grouping.of_settings(settings)
        self._given_up: set[tuple[int, bool]] = set()
        """Phases, by group and whether it varies other knobs, without a row worth a trial."""
        self.small_too = False

    def group_now(self, pending: tuple[Trial, ...]) -> int | StopReason:
        """The first group that is not done, or the reason why none is left to explore.

        A ZeRO stage that is no better than the one before ends only the ZeRO stages.
        """
        before: StageProgress | None = None
        ended: StopReason | None = None
        stages = self._observations.stages
        last = max((group for group in stages if self._groups.is_zero_stage(group)), default=0)
        for group, progress in stages.items():
            if ended and self._groups.is_zero_stage(group):
                continue
            if self._count_running(group, pending) or self._count_wanted(group, pending):
                return group
            if progress.best is None or not self._groups.is_zero_stage(group):
                continue
            better = before is None or is_better(progress.best, before.best, self._objective)
            if before and not better and group != last:
                ended = stop.stage_no_better(progress, before, self._objective)
            before = progress
        if ended:
            return ended
        is_cut = any(self._is_cut(group, progress) for group, progress in stages.items())
        most_trials = self._settings.tuner_num_trials if is_cut else 0
        return stop.exploration_end(self._observations.records, self._predictions, most_trials)

    def propose(self, count: int, pending: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """New trials of the present group, at most this many.

        A phase that its strategy gives up is done.
        """
        while count and not isinstance(group := self.group_now(pending), StopReason):
            trials = self._choose(group, min(count, self._count_wanted(group, pending)), pending)
            if trials or self._count_running(group, pending):
                return trials
            progress = self._observations.stages[group]
            self._given_up.add((group, self._is_further(group, progress)))
        return ()

    def _count_running(self, group: int, pending: tuple[Trial, ...]) -> int:
        return sum(self._groups.of(trial.candidate.layout) == group for trial in pending)

    def _count_wanted(self, group: int, pending: tuple[Trial, ...]) -> int:
        """Trials that this group could still start now."""
        progress = self._observations.stages[group]
        remaining = progress.remaining(
            self._settings,
            self._count_running(group, pending),
            further=self._is_further(group, progress),
        )
        due = self._due_rows(group, progress, pending) if remaining else ()
        return min(remaining, len(due))

    def _is_further(self, group: int, progress: StageProgress) -> bool:
        """True if a group is done with its micro-batches."""
        if progress.further or (group, False) in self._given_up:
            return True
        patience = progress.remaining(self._settings, 0, further=False)
        return not patience or not len(self._pool.usual_rows(group, small_too=self.small_too))

    def _due_rows(self, group: int, progress: StageProgress, pending: Sequence[Trial]) -> Ints:
        """Numbers of the rows to choose from now; none while the choice waits for ``pending``."""
        if not self._is_further(group, progress):
            return self._pool.usual_rows(group, small_too=self.small_too)
        if not self._pool.has_further or (group, True) in self._given_up:
            return self._pool.further_rows(group, ())
        waits = any(
            self._groups.of(trial.candidate.layout) == group
            and not self._pool.is_further(trial.candidate)
            for trial in pending
        )
        most = self._settings.num_tuning_micro_batch_sizes
        layouts = () if waits else self._observations.best_layouts(group, most)
        return self._pool.further_rows(group, layouts)

    def _is_cut(self, group: int, progress: StageProgress) -> bool:
        """True if only the limit on its trials keeps a group from going on."""
        if progress.tried < self._settings.tuner_num_trials:
            return False
        anew = replace(progress, tried=0)
        if not anew.remaining(self._settings, 0, further=self._is_further(group, anew)):
            return False
        return len(self._due_rows(group, anew, ())) > 0

    def _choose(self, group: int, count: int, pending: tuple[Trial, ...]) -> tuple[Trial, ...]:
        if count < 1:
            return ()
        rows = self._due_rows(group, self._observations.stages[group], pending)
        everything = Ask(
            pool=self._table,
            predictions=self._predictions,
            history=self._observations.compared,
            pending=pending,
            count=count,
            seed=self._settings.seed,
        )
        chosen = self._strategy.propose(everything.take(rows))
        first = next_number(self._observations.records, pending)
        candidates = [self._table.row(int(rows[i])) for i in dict.fromkeys(chosen)]
        return tuple(new_trial(first + i, c) for i, c in enumerate(candidates[:count]))


def new_trial(number: int, candidate: Candidate) -> Trial:
    """The first attempt of a candidate."""
    return Trial(
        number=number,
        name=candidate_name(candidate),
        candidate=candidate,
        space=space_name(candidate.layout),
    )
