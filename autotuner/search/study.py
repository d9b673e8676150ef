"""The state machine that decides what is tried next.

What is asked follows from space, settings, records told and trials pending alone: a study that is
told the records of an earlier one goes on as that would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import Candidate, Failure, FailureKind

from ..measurement import EFFORTS, Noise, Pace, StopRule
from ..space import (
    OBJECTIVES,
    AutotuningSettings,
    CandidateTable,
    Objective,
    Prediction,
    PredictionTable,
    Record,
    RejectedCounts,
    Rule,
    SearchSpace,
    StageProgress,
    Trial,
    is_out_of_memory,
)
from ..strategies import Strategy, load_strategy
from . import stop
from .exploration import Exploration, new_trial
from .limits import LaunchBounds, Prospects, SearchLimits
from .observations import Observations
from .optimality_bound import OptimalityBound
from .pool import Grouping, PendingTrials, Pool
from .stop import StopKind, StopReason


def baseline_trial(baseline: Candidate) -> Trial:
    """Trial 0: what the user gave."""
    return new_trial(0, baseline)


class Study:
    """Ask it for trials, tell it what came back, until there is a stop reason.

    The baseline runs first and alone. Then all ZeRO stages together, or one after the other in
    ascending order (``Grouping``; a stage here is such a group), each until its rows, trials or
    patience are used up, as long as each is better than the one before. A group tries its
    micro-batches first, then further knobs of the best of them.
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
            predictions: of the rows of ``space.table``.
            settings: metric, patience, seed, and the strategy's name.
            strategy: instead of the one that the settings name.
            rules: what else rows must pass before any trial, such as ``memory_rule``.
            limits: when to stop though candidates are left.

        Raises:
            ConfigError: the settings name no known strategy.
        """
        self.space = space
        """What is searched."""
        self._settings = settings
        self._objective = OBJECTIVES[settings.metric]
        strategy = strategy or load_strategy(settings.tuner_type, self._objective)
        self._limits = limits or SearchLimits()
        self._predictions = predictions
        self._prospects = Prospects(space.table, predictions, self._objective, self._limits)
        self._elapsed_s = 0.0
        groups = Grouping.of_settings(settings)
        self._pool = Pool(space, predictions, rules, groups, self._objective)
        self._baseline = baseline_trial(space.baseline)
        self._baseline_record: Record | None = None
        self._observations = Observations(space, self._pool, groups, self._objective)
        self._exploration = Exploration(
            space, predictions, settings, strategy, self._pool, self._observations
        )
        self._out = PendingTrials(self._pool)
        self._beside = False
        self._cut: Failure | None = None
        """The end of a trial for which the time was up."""
        effort = EFFORTS[settings.effort]
        rule = StopRule(most_steps=effort.most_steps, precision=effort.trial_precision)
        self._pace = Pace(self._objective, rule)
        steps = settings.end_profile_step
        self._bounds = LaunchBounds(space.table, predictions, steps=steps)
        self._alone: dict[Candidate, LaunchBounds] = {}

    @property
    def objective(self) -> Objective:
        """What is optimised."""
        return self._objective

    @property
    def settings(self) -> AutotuningSettings:
        """What it was started with."""
        return self._settings

    @property
    def records(self) -> tuple[Record, ...]:
        """All trials that came back, in order, as they were measured."""
        return self._observations.records

    @property
    def compared(self) -> tuple[Record, ...]:
        """The records as they are compared; see :mod:`.drift`."""
        return self._observations.compared

    @property
    def repeats(self) -> tuple[Record, ...]:
        """What was launched again, in order."""
        return self._observations.references.repeats

    @property
    def noise(self) -> Noise:
        """The noise of launches, from trials and repeats."""
        return self._observations.noise

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials that were handed out and not told yet."""
        return self._out.pending

    @property
    def best(self) -> Record | None:
        """The best trial so far as it was measured; the earlier one where two are equal."""
        return self._observations.best

    @property
    def stages(self) -> tuple[StageProgress, ...]:
        """Progress of each group, in the order of exploration."""
        return tuple(self._observations.stages.values())

    @property
    def rejected(self) -> RejectedCounts:
        """Candidates that were skipped unmeasured, by the name of the rule."""
        return self._pool.rejected

    @property
    def smaller(self) -> int:
        """How many others are tried only where the baseline does not fit in memory."""
        return self._pool.smaller

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
        self._out.give(trials)
        return trials

    def extend(self, seconds: float, *, elapsed_s: float) -> bool:
        """Let the search go on until ``seconds``; whether it has something to launch by then."""
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
        """Take the outcome of a trial asked for here or in an earlier session; twice is once.

        One that was ended as the time was up has not been tried.
        """
        failed = record.failure
        if self._limits.seconds and failed and failed.kind is FailureKind.PREEMPTED:
            self._out.forget(record.trial)
            self._cut = failed
            return
        if not self._out.take(record.trial):
            return
        if self._observations.tell(record):
            self._prospects.forget()
        if record.trial.name == self._baseline.name:
            self._baseline_record = record
            self._exploration.small_too = record.failure is not None
        if is_out_of_memory(record) and not record.trial.again:
            self._out.learn_from_full_memory(record)
        if failed and failed.ran_micro_batch and not record.trial.again:
            ranks = record.trial.candidate.layout.data_parallel
            self._pool.rule_out_above(failed.ran_micro_batch, ranks)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """Where a running trial is to end, after these steps (of its slowest ranks)."""
        observations = self._observations
        return self._pace.end_step(trial, step_s, observations.best_now, observations.noise)

    def stop_reason(self) -> StopReason | None:
        """Why nothing more will be asked; None while trials run or are still wanted."""
        end = self._end()
        return None if end is not None and self._closing_repeats(end) else end

    def _end(self) -> StopReason | None:
        """Why no further candidate is tried."""
        records = self._observations.compared
        if self._cut:
            return None if self._out.is_waiting else self._limits.over(records, self._cut.detail)
        if (ended := self._baseline_end()) is not None or self._baseline_is_open():
            return ended
        over = self._limits.stop_reason(self._elapsed_s, records)
        if self._is_in_doubt():
            return None
        over = over or self._prospects.small_gain(self._pool, self._exploration.small_too, records)
        if over is not None or self._out.is_waiting:
            return over
        group = self._exploration.group_now(self.pending)
        if not isinstance(group, StopReason):
            return None
        too_long_s = self._pool.too_long_s.tolist()
        if not too_long_s:
            return group
        return self._limits.no_time(self._elapsed_s, records, too_long_s)

    @property
    def open_count(self) -> int:
        """How many candidates may still be tried."""
        return len(self._pool.open_rows(small_too=self._exploration.small_too))

    @property
    def untried(self) -> tuple[tuple[Candidate, Prediction | None], ...]:
        """Candidates that may still be tried, with what is predicted of them."""
        rows = self._pool.open_rows(small_too=self._exploration.small_too)
        known = self._predictions
        return tuple(
            (self.space.table.row(int(row)), known.row(int(row)) if known is not None else None)
            for row in rows
        )

    @property
    def optimality_bound(self) -> OptimalityBound | None:
        """What the remaining candidates could still gain; None where nothing can be said."""
        return self._prospects.optimality_bound(
            self._pool, self._exploration.small_too, self._observations.compared
        )

    def _next(self, free_slots: int) -> tuple[Trial, ...]:
        again = self._out.second_attempts
        if self._baseline_is_open():
            own = (trial for trial in again if trial.name == self._baseline.name)
            return () if self.pending else (next(own, self._baseline),)
        room = min(free_slots, self._limits.room(len(self.records), len(self.pending)))
        if again and room:
            return again[:room]
        end = self._end()
        repeats = self._closing_repeats(end) if end is not None else self._repeats()
        room = min(room, free_slots - len(repeats))
        return (*repeats, *self._exploration.propose(room, self.pending))

    def _baseline_is_open(self) -> bool:
        """Whether the baseline's last outcome is still to come."""
        return self._baseline_record is None or self._out.is_open(self._baseline.name)

    def _baseline_end(self) -> StopReason | None:
        """The stop reason that the baseline's outcome gives, if it gives one."""
        last = self._baseline_record
        if last is None:
            return None
        if last.failure and not is_out_of_memory(last):
            return stop.baseline_failed(last)
        if last.measurement and self._objective.of(last) is None:
            return stop.metric_missing(self._objective)
        return None

    def _repeats(self) -> tuple[Trial, ...]:
        """What is to be launched again now, one at a time."""
        if self._out.is_repeating:
            return ()
        observations = self._observations
        due = observations.references.due(
            observations.compared, observations.best_compared, beside=self._beside
        )
        return () if due is None or not self._has_time(due) else (due,)

    def _closing_repeats(self, end: StopReason) -> tuple[Trial, ...]:
        """The baseline once more before the end, where that is due."""
        if end.is_error or self._out.is_waiting:
            return ()
        observations = self._observations
        due = observations.references.closing_repeat(observations.compared, beside=self._beside)
        return () if due is None or not self._has_time(due) else (due,)

    def _is_in_doubt(self) -> bool:
        """Whether a surprise is to be launched again before anything else is decided."""
        waits = self._out.is_repeating or bool(self._repeats())
        return waits and self._observations.references.is_in_doubt

    def _look_at_time(self, elapsed_s: float) -> None:
        """Close what may take longer than there is time for."""
        self._elapsed_s = elapsed_s
        left_s = self._left_s
        if math.isinf(left_s) or self._baseline_is_open():
            return
        observations = self._observations
        bound_s_C = self._bounds.seconds_C(observations.records, observations.references.repeats)
        self._pool.bound_time(bound_s_C, left_s)
        for trial in self._out.second_attempts:
            if not self._has_time(trial):
                self._out.forget(trial)

    @property
    def _left_s(self) -> float:
        """Seconds that launches may still take."""
        return self._limits.left_s(self._elapsed_s, self._observations.records)

    def _has_time(self, trial: Trial) -> bool:
        """Whether a launch of it surely ends in time."""
        left_s = self._left_s
        if math.isinf(left_s):
            return True
        return left_s > 0.0 and self._bound_alone_s(trial.candidate) <= left_s

    def _bound_alone_s(self, candidate: Candidate) -> float:
        """What a launch takes at most by what was measured alone."""
        if candidate not in self._alone:
            table = CandidateTable.from_candidates([candidate])
            steps = self._settings.end_profile_step
            self._alone[candidate] = LaunchBounds(table, None, steps=steps)
        observations = self._observations
        bounds = self._alone[candidate].seconds_C(
            observations.records, observations.references.repeats
        )
        return float(bounds[0])
