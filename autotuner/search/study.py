"""The state machine that chooses the next trial.

``ask`` depends only on the space, the settings, the records and the pending trials: a study that
gets the records of an earlier one goes on as that would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import Candidate, Failure, FailureKind

from ..measurement import EFFORTS, StopRule, as_fast_s
from ..space import (
    OBJECTIVES,
    AutotuningSettings,
    CandidateTable,
    Ints,
    Prediction,
    PredictionTable,
    Record,
    Rule,
    SearchSpace,
    Trial,
    is_out_of_memory,
)
from ..strategies import Strategy, load_strategy
from . import stop
from .exploration import Exploration, new_trial
from .limits import FEWEST_TRIALS, LaunchBounds, SearchLimits, is_gain_small
from .observations import Observations
from .optimality_bound import OptimalityBound, bound_gain
from .pool import Grouping, PendingTrials, Pool
from .stop import StopKind, StopReason


def baseline_trial(baseline: Candidate) -> Trial:
    """Trial 0: the user's configuration."""
    return new_trial(0, baseline)


class Study:
    """Gives out trials and takes their records until there is a stop reason.

    The baseline runs first, with no other trial. Then all stages run together, best prediction
    first, or in sequence in ascending order (``Grouping``; a stage here is such a group), each
    until its rows, trials or patience are used up, as long as each is better than the one
    before. A group tries its micro-batches first, then other knobs of the best of them.

    Attributes:
        space: baseline and candidates.
        settings: metric, patience, seed and strategy.
        objective: the metric.
        pool: rows of the space, and reasons why some are closed.
        out: trials that run or are due again.
        seen: trials as they are compared, their noise, the repeats.
    """

    def __init__(
        self,
        space: SearchSpace,
        predictions: PredictionTable | None,
        settings: AutotuningSettings,
        strategy: Strategy | None = None,
        rules: Sequence[Rule] = (),
        limits: SearchLimits | None = None,
    ) -> None:
        """Start without any record.

        Args:
            space: baseline and candidates.
            predictions: predictions of the rows of ``space.table``.
            settings: metric, patience, seed, and name of the strategy.
            strategy: replaces the strategy of the settings.
            rules: rules that rows must pass before any trial, such as ``memory_rule``.
            limits: limits that end the search though candidates are left.

        Raises:
            ConfigError: the settings name no known strategy.
        """
        self.space, self.settings = space, settings
        self.objective = OBJECTIVES[settings.metric]
        strategy = strategy or load_strategy(settings.tuner_type, self.objective)
        self._limits = limits or SearchLimits()
        self._predictions = predictions
        self._elapsed_s = 0.0
        groups = Grouping.of_settings(settings)
        self.pool = Pool(space, predictions, rules, groups, self.objective)
        self.out = PendingTrials(self.pool)
        self.seen = Observations(space, self.pool, groups, self.objective)
        self._exploration = Exploration(
            space, predictions, settings, strategy, self.pool, self.seen
        )
        self._baseline = baseline_trial(space.baseline)
        self._baseline_record: Record | None = None
        self._beside = False
        self._cut: Failure | None = None
        """The end of a trial that was ended when the time was up."""
        effort = EFFORTS[settings.effort]
        self._stop_rule = StopRule(most_steps=effort.most_steps, precision=effort.trial_precision)
        self._bounds = LaunchBounds(space.table, predictions, steps=settings.end_profile_step)
        self._gain: tuple[tuple[int, int], OptimalityBound | None] = (-1, -1), None

    @property
    def records(self) -> tuple[Record, ...]:
        """All trials that have ended, in order, as they were measured."""
        return self.seen.records

    @property
    def repeats(self) -> tuple[Record, ...]:
        """All repeats of trials, in order."""
        return self.seen.repeats.records

    @property
    def best(self) -> Record | None:
        """The best trial so far as it was measured; the earlier one if two are equal."""
        return self.seen.best

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """Trials to start now, at most ``free_slots``; none may mean to wait for pending ones.

        Args:
            free_slots: trials that could start.
            elapsed_s: seconds on the clock of the limits, such as since the command's start.
        """
        self._look_at_time(elapsed_s)
        self._beside = self._beside or free_slots > 1
        if free_slots < 1 or self._cut or self.stop_reason() is not None:
            return ()
        trials = self._next(free_slots)
        self.out.give(trials)
        return trials

    def extend(self, seconds: float, *, elapsed_s: float) -> bool:
        """Let the search go on until ``seconds``; true if it has something to launch by then."""
        end = self.stop_reason()
        if end is None or end.kind is not StopKind.BUDGET or self._cut:
            return False
        before, self._limits = self._limits, replace(self._limits, seconds=seconds)
        self._look_at_time(elapsed_s)
        if self.stop_reason() is None:
            return True
        self._limits = before
        self._look_at_time(elapsed_s)
        return False

    def tell(self, record: Record) -> None:
        """Take the outcome of a trial, also of an earlier session; a second time has no effect.

        A trial that was ended because the time was up has not been tried.
        """
        failed = record.failure
        if self._limits.seconds and failed and failed.kind is FailureKind.PREEMPTED:
            self.out.forget(record.trial)
            self._cut = failed
            return
        if not self.out.take(record.trial):
            return
        self.seen.tell(record)
        self._bounds.add(record)
        if record.trial.name == self._baseline.name:
            self._baseline_record = record
            self._exploration.small_too = record.failure is not None
        if is_out_of_memory(record) and not record.trial.again:
            self.out.learn_from_full_memory(record)
        if failed and failed.ran_micro_batch and not record.trial.again:
            ranks = record.trial.candidate.layout.data_parallel
            self.pool.rule_out_above(failed.ran_micro_batch, ranks)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """The step at which a running trial must end, after these steps of its slowest ranks."""
        incumbent_s = as_fast_s(trial, self.seen.best_compared, self.objective)
        return self._stop_rule(step_s, incumbent_s, self.seen.noise)

    def stop_reason(self) -> StopReason | None:
        """The reason why no more trials start; None while trials run or are still due."""
        end = self._end()
        return None if end is not None and self._closing_repeats(end) else end

    def _end(self) -> StopReason | None:
        """The reason why no other candidate is tried."""
        records = self.seen.compared
        if self._cut:
            return None if self.out.is_waiting else self._limits.over(records, self._cut.detail)
        if (ended := self._baseline_end()) is not None or self._baseline_is_open():
            return ended
        over = self._limits.stop_reason(self._elapsed_s, records)
        if self._is_in_doubt():
            return None
        over = over or self._small_gain(len(records))
        if over is not None or self.out.is_waiting:
            return over
        group = self._exploration.group_now(self.out.pending)
        if not isinstance(group, StopReason):
            return None
        too_long_s = self.pool.too_long_s.tolist()
        if not too_long_s:
            return group
        return self._limits.no_time(self._elapsed_s, records, too_long_s)

    def _small_gain(self, trials: int) -> StopReason | None:
        """The stop if no remaining candidate is worth a trial."""
        limit = self._limits.least_gain
        if limit is None or trials < FEWEST_TRIALS:  # the bound takes time
            return None
        found = self.optimality_bound
        is_small = found and is_gain_small(found, limit, trials)
        return StopReason(kind=StopKind.GOOD_ENOUGH, bound=found) if is_small else None

    def _open_rows(self) -> Ints:
        return self.pool.open_rows(small_too=self._exploration.small_too)

    @property
    def open_count(self) -> int:
        """Number of candidates that may still be tried."""
        return len(self._open_rows())

    @property
    def untried(self) -> tuple[tuple[Candidate, Prediction | None], ...]:
        """Candidates that may still be tried, with their predictions."""
        known = self._predictions
        return tuple(
            (self.space.table.row(int(row)), known.row(int(row)) if known is not None else None)
            for row in self._open_rows()
        )

    @property
    def optimality_bound(self) -> OptimalityBound | None:
        """The gain that remaining candidates could still bring; None if it is not known."""
        if self._predictions is None:
            return None
        known = len(self.records), len(self.repeats)
        if self._gain[0] != known:
            rows = self._open_rows()
            found = bound_gain(
                self.space.table.take(rows),
                self._predictions.take(rows),
                self.seen.compared,
                self.objective,
                curves=self.pool.gains_of(rows, self.seen.noise),
            )
            self._gain = known, found
        return self._gain[1]

    def _next(self, free_slots: int) -> tuple[Trial, ...]:
        again = self.out.second_attempts
        if self._baseline_is_open():
            own = (trial for trial in again if trial.name == self._baseline.name)
            return () if self.out.pending else (next(own, self._baseline),)
        room = min(free_slots, self._limits.room(len(self.records), len(self.out.pending)))
        if again and room:
            return again[:room]
        end = self._end()
        repeats = self._closing_repeats(end) if end is not None else self._repeats()
        room = min(room, free_slots - len(repeats))
        return (*repeats, *self._exploration.propose(room, self.out.pending))

    def _baseline_is_open(self) -> bool:
        """True if the baseline may still have another outcome."""
        return self._baseline_record is None or self.out.is_open(self._baseline.name)

    def _baseline_end(self) -> StopReason | None:
        """The stop reason that the baseline's outcome gives, if it gives one."""
        last = self._baseline_record
        if last is None:
            return None
        if last.failure and not is_out_of_memory(last):
            return stop.baseline_failed(last)
        if last.measurement and self.objective.of(last) is None:
            return stop.metric_missing(self.objective)
        return None

    def _repeats(self) -> tuple[Trial, ...]:
        due = None if self.out.is_repeating else self.seen.repeats.due(len(self.records))
        return () if due is None or not self._has_time(due) else (due,)

    def _closing_repeats(self, end: StopReason) -> tuple[Trial, ...]:
        """The baseline once more before the end, if it is due and trials run one at a time."""
        effort = EFFORTS[self.settings.effort]
        if end.is_error or self.out.is_waiting or self._beside or not effort.repeats_baseline:
            return ()
        due = self.seen.repeats.closing(self.records)
        return () if due is None or not self._has_time(due) else (due,)

    def _is_in_doubt(self) -> bool:
        """True if a surprise must be launched again before anything else is decided."""
        waits = self.out.is_repeating or bool(self._repeats())
        return waits and self.seen.repeats.is_in_doubt

    def _look_at_time(self, elapsed_s: float) -> None:
        """Close candidates that may take longer than the time that is left."""
        self._elapsed_s = elapsed_s
        left_s = self._limits.left_s(elapsed_s, self.records)
        if math.isinf(left_s) or self._baseline_is_open():
            return
        self.pool.bound_time(self._bounds.seconds_C, left_s)
        for trial in self.out.second_attempts:
            if not self._has_time(trial):
                self.out.forget(trial)

    def _has_time(self, trial: Trial) -> bool:
        """True if a launch of the trial surely ends in time, by measurements only."""
        left_s = self._limits.left_s(self._elapsed_s, self.records)
        if math.isinf(left_s):
            return True
        table = CandidateTable.from_candidates([trial.candidate])
        bounds = LaunchBounds(table, None, steps=self.settings.end_profile_step)
        for record in (*self.records, *self.repeats):
            bounds.add(record)
        return left_s > 0.0 and float(bounds.seconds_C[0]) <= left_s
