"""Runs a strategy against measurements that are known, and scores it.

The run is a study without trial 0. It goes on after the tuner would have stopped, so that the
order of its trials is scored apart from its stopping: ``stopped_at`` is that number of trials. It
ends with the first trial after which no score can change.
Shapes: C = candidates of a landscape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from autoconf_launch.autotuner.search.limits import is_gain_small
from autoconf_launch.autotuner.search.optimality_bound import OptimalityBound, bound_gain
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    Bools,
    CandidateTable,
    FailedTrial,
    Floats,
    Ints,
    Measurement,
    PredictionTable,
    Record,
    Trial,
    candidate_name,
    is_out_of_memory,
    surely_needs_more,
)
from autoconf_launch.autotuner.strategies import Ask, MicroBatchCurves, Strategy
from autoconf_launch.core import Candidate, Failure, FailureKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landscape:
    """A model on a machine, in an order that tells nothing about speed.

    Attributes:
        name: of the group, for people.
        table: different candidates.
        step_s_C: measured seconds of a step of the candidate's global batch; NaN if it ran
            out of memory.
        predictions: made without any of these measurements.
    """

    name: str
    table: CandidateTable
    step_s_C: Floats
    predictions: PredictionTable | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def cost_s_C(self) -> Floats:
        """Seconds of a sample; infinite if there was not enough memory."""
        cost_s = self.step_s_C / self.table.global_batch_C
        return np.where(np.isnan(cost_s), np.inf, cost_s)

    @property
    def regret_C(self) -> Floats:
        """Extra time of each candidate over the best, as a share."""
        cost_s = self.cost_s_C
        return np.asarray(cost_s / cost_s.min() - 1.0)

    def record(self, row: int, number: int) -> Record:
        """The record of a trial of a row."""
        candidate = self.table.row(row)
        trial = Trial(
            number=number,
            name=candidate_name(candidate),
            candidate=candidate,
            space=family(self, row),
        )
        step_s = float(self.step_s_C[row])
        outcome: Measurement | FailedTrial = _OUT_OF_MEMORY
        if not np.isnan(step_s):
            outcome = Measurement(
                step_s=(step_s,),
                samples_per_step=candidate.layout.global_batch,
                world_size=candidate.layout.world_size,
            )
        predicted = None if self.predictions is None else self.predictions.row(row)
        return Record(trial=trial, outcome=outcome, wall_s=0.0, prediction=predicted)


_OUT_OF_MEMORY = FailedTrial(
    failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="it ran out of memory when measured")
)


def family(landscape: Landscape, row: int) -> str:
    """Stage that a row belongs to: its ZeRO stage, and which degrees are above 1."""
    table = landscape.table
    tags = [tag for knob, tag in _DEGREES if table[knob][row] > 1]
    return "_".join((f"z{table['zero_stage'][row]}", *tags))


_DEGREES = (
    ("tensor_parallel", "tp"),
    ("pipeline_parallel", "pp"),
    ("context_parallel", "cp"),
    ("expert_parallel", "ep"),
)


def stage_groups(landscape: Landscape) -> tuple[tuple[str, Bools], ...]:
    """Stages with their rows: the fewest kinds of parallelism first, then by ZeRO stage."""
    names = np.array([family(landscape, row) for row in range(len(landscape))])
    order = sorted(set(names.tolist()), key=lambda name: (name.count("_"), name))
    return tuple((name, names == name) for name in order)


def merge_repeats(landscape: Landscape, samples_C: Sequence[float]) -> Landscape:
    """Equal candidates as one, with the median of the measurements, in the order of knobs.

    Args:
        landscape: measured rows; times and predictions are for ``samples_C`` samples.
        samples_C: trained samples of a step; times are scaled to the candidate's global batch,
            which differs if a last micro-batch is smaller.
    """
    table = landscape.table
    factor_C = table.global_batch_C / np.asarray(samples_C, float)
    scaled_s = landscape.step_s_C * factor_C
    kept: dict[Candidate, list[int]] = {}
    for row in np.lexsort([column.codes for _, column in reversed(table.columns)]).tolist():
        kept.setdefault(table.row(row), []).append(row)
    first = [rows[0] for rows in kept.values()]
    predictions = landscape.predictions
    return replace(
        landscape,
        table=table.take(first),
        step_s_C=np.array([_median(scaled_s[rows]) for rows in kept.values()]),
        predictions=None if predictions is None else _scale(predictions, factor_C).take(first),
    )


def _median(repeats_s: Floats) -> float:
    """Median of the successful repeats; NaN if at least half of them failed."""
    ran = repeats_s[~np.isnan(repeats_s)]
    return float(np.median(ran)) if 2 * len(ran) > len(repeats_s) else float("nan")


def _scale(predictions: PredictionTable, factor_C: Floats) -> PredictionTable:
    least_s = predictions.least_step_s_C
    return replace(
        predictions,
        step_s_C=predictions.step_s_C * factor_C,
        least_step_s_C=None if least_s is None else least_s * factor_C,
        parts=tuple((name, seconds * factor_C) for name, seconds in predictions.parts),
    )


ExplorationOrder = Literal["staged", "global"]
_OBJECTIVE = OBJECTIVES["throughput"]
_ROUNDING = 1e-9

WITHIN = (0.02, 0.05)
"""Shares of the best that trials are counted to."""
REGRET_AT = (4, 8, 16)
"""Trials after which regret is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """Rules for how a tuner explores and when it stops.

    Attributes:
        exploration: stage by stage as long as they get better, or all stages together.
        trials: at most; None for as many as there are.
        patience: trials in a row that are no better.
        good_enough: possible gain below which the bound ends the search, a share; None
            if it is not checked.
        to_saturation: micro-batches beyond saturation of throughput are skipped.
        shares: trials that run at a time, each as long as its step; the others are not waited for.
    """

    exploration: ExplorationOrder = "global"
    trials: int | None = None
    patience: int = 5
    good_enough: float | None = None
    to_saturation: bool = False
    shares: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of one seed: ``rows`` in proposed order; the tuner stopped after ``stopped_at``."""

    rows: tuple[int, ...]
    stopped_at: int
    optimality_bound: OptimalityBound | None
    untried: tuple[int, ...]
    """Rows that the bound is about."""


def run(landscape: Landscape, strategy: Strategy, rules: ReplayRules, seed: int) -> Run:
    """Try candidates until none is left, as many as the rules allow, or all scores are settled."""
    walk = _Walk(landscape, strategy, rules, seed)
    most = len(landscape) if rules.trials is None else min(rules.trials, len(landscape))
    while len(walk.rows) < most and not walk.is_settled() and walk.step():
        pass
    return walk.result()


class _Walk:
    """The state of one run."""

    def __init__(
        self, landscape: Landscape, strategy: Strategy, rules: ReplayRules, seed: int
    ) -> None:
        self._landscape = landscape
        self._strategy = strategy
        self._rules = rules
        self._seed = seed
        self._untried_C = np.ones(len(landscape), np.bool_)
        self._stages = _Stages(landscape, rules)
        self._curves = MicroBatchCurves(landscape.table, _OBJECTIVE)
        self._records: list[Record] = []
        self.rows: list[int] = []
        self._pending: list[tuple[float, int, Record]] = []
        """Trials that run: when they end, their rows and what they will have measured."""
        self._now_s = 0.0
        self._stopped_at: int | None = None
        self._optimality_bound: OptimalityBound | None = None
        self._untried: tuple[int, ...] = ()
        self._regret_C = landscape.regret_C
        self._regret = np.inf

    def is_settled(self) -> bool:
        """True if more trials would change no score."""
        looked_at = len(self.rows) >= max(REGRET_AT)
        return looked_at and self._stopped_at is not None and self._regret <= _limit(min(WITHIN))

    def step(self) -> bool:
        """The end of one more trial; False if nothing runs and nothing is left to try."""
        while len(self._pending) < self._rules.shares and self._start():
            pass
        if not self._pending:
            return False
        ended = min(self._pending, key=lambda trial: trial[:2])
        self._pending.remove(ended)
        self._now_s = ended[0]
        self._take(*ended[1:])
        return True

    def _start(self) -> bool:
        due = self._stages.due(self._open())
        while len(due):
            chosen = self._propose(due)
            if chosen is not None:
                record = self._landscape.record(chosen, len(self.rows))
                took_s = np.nan_to_num(self._landscape.step_s_C[chosen])
                self.rows.append(chosen)
                self._pending.append((self._now_s + float(took_s), chosen, record))
                self._untried_C[chosen] = False
                return True
            if self._pending:
                return False  # what runs may show more
            self._stages.give_up()
            due = self._stages.due(self._open())
        return False

    def _open(self) -> Bools:
        """Rows that may be tried next; after the stop of a predicted search, also closed ones."""
        if not self._rules.to_saturation:
            return self._untried_C
        first_C = np.asarray(self._untried_C & ~self._curves.beyond_C, np.bool_)
        told = self._landscape.predictions is not None and self._rules.exploration == "global"
        goes_on = told and self._stopped_at is not None
        return self._untried_C if goes_on and not first_C.any() else first_C

    def _propose(self, due: Ints) -> int | None:
        ask = Ask(
            pool=self._landscape.table,
            predictions=self._landscape.predictions,
            history=tuple(self._records),
            pending=tuple(record.trial for _, _, record in self._pending),
            seed=self._seed,
        )
        chosen = self._strategy.propose(ask.take(due))
        return int(due[chosen[0]]) if chosen else None

    def _take(self, row: int, record: Record) -> None:
        landscape = self._landscape
        self._records.append(record)
        self._regret = min(self._regret, float(self._regret_C[row]))
        if is_out_of_memory(record):
            self._untried_C &= ~_needs_more(landscape, record)
        self._curves.tell(record)
        self._stages.tell(row, float(landscape.cost_s_C[row]))
        if self._stopped_at is None and self._is_over():
            self._stopped_at = len(self.rows)

    def _is_over(self) -> bool:
        found = None if self._rules.good_enough is None else self._bound_gain()
        if not self._open().any() or self._stages.are_over(self._open()):
            return True
        return is_gain_small(found, self._rules.good_enough, len(self.rows))

    def _bound_gain(self) -> OptimalityBound | None:
        left = np.flatnonzero(self._untried_C)
        landscape = self._landscape
        predictions = landscape.predictions
        self._untried = tuple(left.tolist())
        self._optimality_bound = bound_gain(
            landscape.table.take(left),
            None if predictions is None else predictions.take(left),
            self._records,
            _OBJECTIVE,
            curves=self._curves.gains().take(left) if self._rules.to_saturation else None,
        )
        return self._optimality_bound

    def result(self) -> Run:
        return Run(
            rows=tuple(self.rows),
            stopped_at=self._stopped_at or len(self.rows),
            optimality_bound=self._optimality_bound,
            untried=self._untried,
        )


def _needs_more(landscape: Landscape, record: Record) -> Bools:
    predictions = landscape.predictions
    return surely_needs_more(
        landscape.table,
        record.trial.candidate,
        None if predictions is None else predictions.peak_bytes_C,
        record.prediction.peak_bytes if record.prediction else None,
    )


class _Stages:
    """Decides which rows are due, and whether the tuner would still go on."""

    def __init__(self, landscape: Landscape, rules: ReplayRules) -> None:
        everything = ("all", np.ones(len(landscape), np.bool_))
        found = stage_groups(landscape) if rules.exploration == "staged" else (everything,)
        self._rows = [rows for _, rows in found]
        self._patience = rules.patience
        self._best = [np.inf] * len(found)
        self._since = [0] * len(found)
        self._given_up = [False] * len(found)
        self._now = 0
        self._over = False

    def due(self, open_C: Bools) -> Ints:
        """Open rows of the present stage; of any stage once the tuner has stopped."""
        self._advance(open_C)
        if self._now < len(self._rows):
            return np.flatnonzero(open_C & self._rows[self._now])
        left = open_C.copy()
        for rows, given_up in zip(self._rows, self._given_up, strict=True):
            left &= ~rows if given_up else True
        return np.flatnonzero(left)

    def give_up(self) -> None:
        """The strategy wants nothing of what is due."""
        if self._now < len(self._rows):
            self._given_up[self._now] = True
        else:
            self._given_up = [True] * len(self._rows)

    def tell(self, row: int, cost_s: float) -> None:
        """Record a trial's cost; infinite if it ran out of memory, which says nothing of speed."""
        stage = next(i for i, rows in enumerate(self._rows) if rows[row])
        if cost_s < self._best[stage]:
            self._best[stage], self._since[stage] = cost_s, 0
        elif np.isfinite(cost_s):
            self._since[stage] += 1

    def are_over(self, open_C: Bools) -> bool:
        """True if the tuner would stop now."""
        self._advance(open_C)
        return self._now >= len(self._rows)

    def _advance(self, open_C: Bools) -> None:
        while self._now < len(self._rows) and self._is_done(self._now, open_C):
            before = min(self._best[: self._now], default=np.inf)
            worse = self._best[self._now] >= before and np.isfinite(self._best[self._now])
            self._now = len(self._rows) if worse else self._now + 1

    def _is_done(self, stage: int, open_C: Bools) -> bool:
        spent = self._since[stage] >= self._patience or self._given_up[stage]
        return spent or not (open_C & self._rows[stage]).any()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Scores of a run. Regrets are shares of the best; infinite if nothing had run yet.

    Attributes:
        trials_to: trials until within each of ``WITHIN``; candidates + 1 if never.
        regret_at: of the best trial so far, after each of ``REGRET_AT``.
        out_of_memory_trials: until the tuner stopped.
        final_regret: of the best trial when the tuner stopped.
        certificate_true: True if the claim about the remaining candidates was right; None if there
            was no claim, or all were tried.
    """

    trials_to: tuple[int, ...]
    regret_at: tuple[float, ...]
    out_of_memory_trials: int
    stopped_at: int
    final_regret: float
    certificate_true: bool | None


def score(landscape: Landscape, done: Run) -> Score:
    """Scores of a run."""
    regret_C = landscape.regret_C
    best = np.minimum.accumulate(regret_C[list(done.rows)])
    never = len(landscape) + 1
    return Score(
        trials_to=tuple(_first(best <= _limit(share), never) for share in WITHIN),
        regret_at=tuple(float(best[min(n, len(best)) - 1]) for n in REGRET_AT),
        out_of_memory_trials=int(np.isinf(regret_C[list(done.rows[: done.stopped_at])]).sum()),
        stopped_at=done.stopped_at,
        final_regret=float(best[done.stopped_at - 1]),
        certificate_true=_is_true(landscape, done),
    )


def _limit(share: float) -> float:
    """Regret up to which a trial is within a share of the best."""
    return share + _ROUNDING


def _first(reached: Bools, never: int) -> int:
    return int(np.argmax(reached)) + 1 if reached.any() else never


def _is_true(landscape: Landscape, done: Run) -> bool | None:
    """True if no remaining candidate gains more than the stated bound."""
    if done.optimality_bound is None or not done.untried:
        return None
    cost_s = landscape.cost_s_C
    best_s = cost_s[list(done.rows[: done.stopped_at])].min()
    gain = best_s / cost_s[list(done.untried)] - 1.0
    return bool((gain <= done.optimality_bound.possible_gain_C + _ROUNDING).all())
