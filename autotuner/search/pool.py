"""The rows of a space: open, running, tried or ruled out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Candidate, Layout

from ..measurement import Noise
from ..space import (
    LAYOUT_KNOBS,
    TUNING_SPACES,
    ZERO_SPACES,
    AutotuningSettings,
    Bools,
    CandidateTable,
    Floats,
    Ints,
    Objective,
    Prediction,
    PredictionTable,
    Record,
    RejectedCounts,
    Rule,
    SearchSpace,
    StageProgress,
    Trial,
    add_counts,
    apply_rules,
    is_sure,
    space_number,
    space_numbers,
    surely_needs_more,
)
from ..strategies import LEARNED, CurveGains, MicroBatchCurves

_EVERYTHING = 0
_STAGED = ("gridsearch", "random")
"""Tuners that explore stage by stage, as in the DeepSpeed Autotuner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups of rows, by number: one for each of ``TUNING_SPACES`` if ``staged``, else just one.

    ``to_saturation``: micro-batches beyond saturation of throughput are skipped.
    """

    staged: bool
    to_saturation: bool = False

    @staticmethod
    def of_settings(settings: AutotuningSettings) -> Grouping:
        """The grouping of the settings; else stages for DeepSpeed's tuners, but for the default.

        Over recorded landscapes a model that ranks all stages needed 5 trials, stage after stage
        needed 8 (``benchmarks/results/search_landscapes.md``).
        """
        staged = settings.tuner_type in _STAGED
        if settings.strategy is not None:
            staged = settings.strategy == "staged"
        return Grouping(staged=staged, to_saturation=settings.tuner_type in LEARNED)

    def of(self, layout: Layout) -> int:
        return space_number(layout) if self.staged else _EVERYTHING

    def of_rows(self, table: CandidateTable) -> Ints:
        if self.staged:
            return space_numbers(table)
        return np.full(len(table), _EVERYTHING, np.int64)

    def is_zero_stage(self, group: int) -> bool:
        """True if it is a ZeRO stage with data parallelism only."""
        return self.staged and group < len(ZERO_SPACES)

    def start(self, group: int) -> StageProgress:
        """Progress of a group before its first trial."""
        return StageProgress(name=TUNING_SPACES[group] if self.staged else "global")


NEEDS_MORE_MEMORY = "needs_more_memory"
ABOVE_WHAT_RAN = "micro_batch_above_what_ran"
SMALLER_MICRO_BATCH = "smaller_micro_batch"
BEYOND_SATURATION = "beyond_saturation"
"""Reasons to skip rows that are inferred from trials, besides the names of the rules."""


class Pool:
    """The rows of a space and the state of each."""

    def __init__(
        self,
        space: SearchSpace,
        predictions: PredictionTable | None,
        rules: Sequence[Rule],
        groups: Grouping,
        objective: Objective,
    ) -> None:
        """All rows that pass the rules are open.

        ``groups``: units of exploration, and whether micro-batches end at saturation.
        """
        self._table = space.table
        self._baseline = space.baseline
        self._curves = MicroBatchCurves(space.table, objective, (space.baseline,))
        self._to_saturation = groups.to_saturation
        self._group = groups.of_rows(space.table)
        self._predictions = predictions
        passed = apply_rules(space.table, rules)
        self._rejected = add_counts(space.rejected, passed.rejected)
        self._allowed: Bools = passed.keep_C
        self._usual = space.usual_C
        self.has_further = not space.usual_C.all()
        """True if any row varies a knob other than the layout's."""
        self._rows: dict[Candidate, Ints] = {}
        self._of_layout: dict[Layout, Bools] = {}
        self._small: Bools = space.table["micro_batch"] < space.least_micro_batch
        self._tried = np.zeros(len(space.table), np.bool_)
        self._too_large = np.zeros(len(space.table), np.bool_)
        self._above_ran = np.zeros(len(space.table), np.bool_)
        self._baseline_fits = False
        self._bound_s_C = np.zeros(len(space.table))
        self._left_s = np.inf

    def take_out(self, candidate: Candidate) -> None:
        """Mark a candidate as tried."""
        self._tried[self._find(candidate)] = True

    def forget_speeds(self) -> None:
        """Forget the curves of throughput, which will be learned anew."""
        self._curves.forget()

    def learn(self, record: Record) -> None:
        """Take the record of a micro-batch."""
        self._curves.tell(record)
        if record.trial.candidate == self._baseline:
            self._baseline_fits = record.measurement is not None

    def bound_time(self, bound_s_C: Floats, left_s: float) -> None:
        """Only rows of which a launch surely ends within ``left_s`` seconds are open now."""
        self._bound_s_C, self._left_s = bound_s_C, left_s

    @property
    def smaller(self) -> int:
        """Number of allowed rows that are tried only if the baseline does not fit in memory."""
        return int((self._allowed & self._small).sum())

    @property
    def too_long_s(self) -> Floats:
        """Bounds on the launches of rows that only a lack of time closes, in seconds."""
        rows = self._allowed & ~self._tried & ~self._closed & ~self._beyond_saturation()
        rows &= ~(self._small & self._baseline_fits)
        return self._bound_s_C[rows & (self._bound_s_C > self._left_s)]

    def rule_out_larger(self, record: Record) -> None:
        """Close rows that surely need more memory than a trial that ran out of it."""
        candidate = record.trial.candidate
        predicted = record.prediction or self.prediction(candidate)
        self._too_large |= surely_needs_more(
            self._table,
            candidate,
            None if self._predictions is None else self._predictions.peak_bytes_C,
            predicted.peak_bytes if predicted else None,
        )

    def rule_out_above(self, micro_batch: int, data_parallel: int) -> None:
        """Close larger micro-batches: the script provided no more than this one.

        Rows with fewer ranks than ``data_parallel`` stay open: each may get more of the data.
        """
        more = self._table["micro_batch"] > micro_batch
        self._above_ran |= more & (self._table["data_parallel"] >= data_parallel)

    def is_closed(self, candidate: Candidate) -> bool:
        """True if the trial of another candidate has ruled it out."""
        return bool(self._closed[self._find(candidate)].any())

    def is_further(self, candidate: Candidate) -> bool:
        """True if it is a row with a non-default value of another knob."""
        return bool((~self._usual[self._find(candidate)]).any())

    def _find(self, candidate: Candidate) -> Ints:
        if candidate not in self._rows:
            self._rows[candidate] = self._table.find(candidate)
        return self._rows[candidate]

    def usual_rows(self, group: int, *, small_too: bool) -> Ints:
        """Numbers of the open rows of a group with the default values of other knobs, in order.

        Args:
            group: its number.
            small_too: also micro-batches below the lower limit of the user.
        """
        rows = self._open(group) & self._usual
        return np.flatnonzero(rows if small_too else rows & ~self._small)

    def further_rows(self, group: int, layouts: Sequence[Layout]) -> Ints:
        """Numbers of the open rows of a group that vary other knobs of these layouts."""
        if not self.has_further or not layouts:
            return np.zeros(0, np.int64)
        wanted = np.zeros(len(self._table), np.bool_)
        for layout in layouts:
            wanted |= self._rows_of(layout)
        return np.flatnonzero(self._open(group) & ~self._usual & wanted)

    def _rows_of(self, layout: Layout) -> Bools:
        """Rows with this layout and any values of other knobs; cached."""
        if layout not in self._of_layout:
            extras = [name for name, _ in self._table.columns if name not in LAYOUT_KNOBS]
            found = self._table.matches(Candidate(layout=layout), but=extras)
            self._of_layout[layout] = found
        return self._of_layout[layout]

    def open_rows(self, *, small_too: bool) -> Ints:
        """Numbers of the rows of all stages that were not tried and may fit, saturated ones too.

        ``small_too`` is as in :meth:`usual_rows`.
        """
        rows = self._allowed & ~self._tried & ~self._closed
        return np.flatnonzero(rows if small_too else rows & ~self._small)

    def gains_of(self, rows: Ints, noise: Noise) -> CurveGains | None:
        """Possible gain of rows by the curves of throughput; None if these are not used."""
        return self._curves.gains(noise).take(rows) if self._to_saturation else None

    @property
    def _closed(self) -> Bools:
        return np.asarray(self._too_large | self._above_ran, np.bool_)

    def _open(self, group: int) -> Bools:
        rows = self._allowed & ~self._tried & ~self._closed & (self._group == group)
        rows &= self._bound_s_C <= self._left_s
        return np.asarray(rows & ~self._beyond_saturation(), np.bool_)

    def _beyond_saturation(self) -> Bools:
        if self._to_saturation:
            return self._curves.beyond_C
        return np.zeros(len(self._table), np.bool_)

    def prediction(self, candidate: Candidate) -> Prediction | None:
        """The prediction of a candidate; None if there is none."""
        rows = self._find(candidate)
        if self._predictions is None or not len(rows):
            return None
        return self._predictions.row(int(rows[0]))

    @property
    def rejected(self) -> RejectedCounts:
        """Candidates skipped unmeasured, by the name of the rule."""
        left = self._allowed & ~self._tried
        fitting = left & ~self._closed
        small = fitting & self._small & self._baseline_fits
        inferred = {
            NEEDS_MORE_MEMORY: left & self._too_large,
            ABOVE_WHAT_RAN: left & self._above_ran & ~self._too_large,
            SMALLER_MICRO_BATCH: small,
            BEYOND_SATURATION: fitting & ~small & self._beyond_saturation(),
        }
        counts = ((name, int(rows.sum())) for name, rows in inferred.items() if rows.any())
        return add_counts(self._rejected, tuple(counts))


_ATTEMPTS = 2


class PendingTrials:
    """Trials that run or are due again; takes their rows out of the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._told: set[tuple[str, int]] = set()
        self._running: dict[tuple[str, int], Trial] = {}
        self._again: dict[str, Trial] = {}

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials that run now, without repeats."""
        return tuple(trial for trial in self._running.values() if not trial.again)

    @property
    def is_repeating(self) -> bool:
        """True if a repeat of a trial runs now."""
        return any(trial.again for trial in self._running.values())

    @property
    def second_attempts(self) -> tuple[Trial, ...]:
        """Second attempts that are due after an out-of-memory failure that was not sure."""
        return tuple(self._again.values())

    @property
    def is_waiting(self) -> bool:
        """True if a trial runs or is due again."""
        return bool(self._running or self._again)

    def forget(self, trial: Trial) -> None:
        """Forget a trial that was ended for want of time, or never launched again for that."""
        self._running.pop((trial.name, trial.attempt), None)
        self._again.pop(trial.name, None)

    def is_open(self, name: str) -> bool:
        """True if a trial of this name runs or is due again."""
        return name in self._again or any(trial.name == name for trial in self.pending)

    def give(self, trials: Iterable[Trial]) -> None:
        """Mark rows as running from now on."""
        for trial in trials:
            self._running[trial.name, trial.attempt] = trial
            self._mark(trial)

    def take(self, trial: Trial) -> bool:
        """Take a trial that ended; false if it was taken before."""
        key = trial.name, trial.attempt
        self._running.pop(key, None)
        if key in self._told:
            return False
        self._told.add(key)
        self._mark(trial)
        return True

    def learn_from_full_memory(self, record: Record) -> None:
        """Rule out rows that surely need more; if the failure is not sure, try again once."""
        trial = record.trial
        if is_sure(record):
            self._pool.rule_out_larger(record)
        elif trial.attempt < _ATTEMPTS:
            self._again[trial.name] = replace(trial, attempt=trial.attempt + 1)
        self._again = {
            name: waiting
            for name, waiting in self._again.items()
            if not self._pool.is_closed(waiting.candidate)
        }

    def _mark(self, trial: Trial) -> None:
        if not trial.again:
            self._again.pop(trial.name, None)
            self._pool.take_out(trial.candidate)
