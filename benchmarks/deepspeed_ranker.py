"""The ranker of the DeepSpeed Autotuner, to compare with.

Boosted trees learn which of two configurations is faster from only the raw numbers of the
configuration. The first two trials are the first row and a random row; after that one trial
in five is random (DeepSpeed 0.19.8, ``model_based_tuner.py`` and ``cost_model.py``, as intended:
its own two first trials are lost by a slip).
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    CandidateTable,
    CodedColumn,
    Floats,
    Ints,
    Objective,
    Record,
    concat,
)
from autoconf_launch.autotuner.strategies import Ask, Strategy, load_strategy

_FIRST = 2
_EXPLORATION = 0.2
_ROUNDS = 10
_SETTINGS = {
    "objective": "rank:pairwise",
    "max_depth": 3,
    "gamma": 1e-4,
    "min_child_weight": 1,
    "subsample": 1.0,
    "eta": 0.3,
    "lambda": 1.0,
    "alpha": 0,
    "nthread": 1,
    "verbosity": 0,
}


class PairwiseRanker:
    """Proposes the rows that the trees rank first, and a random row in every fifth trial."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def propose(self, ask: Ask) -> tuple[int, ...]:
        """See :class:`~.base.Strategy`."""
        pool, history = ask.pool, ask.history
        left, draw = ask.free_rows, ask.generator()
        ranked = left
        if len(history) >= _FIRST:
            ranked = left[np.argsort(-self._scores(pool, history)[left], kind="stable")]
        made = len(history) + len(ask.pending)
        chosen: list[int] = []
        for number in range(made, made + ask.count):
            rest = ranked[~np.isin(ranked, chosen)]
            if not len(rest):
                break
            chosen.append(_next(rest, number, draw))
        return tuple(chosen)

    def _scores(self, pool: CandidateTable, history: tuple[Record, ...]) -> Floats:
        import xgboost

        seen = CandidateTable.from_candidates([record.trial.candidate for record in history])
        table = concat((seen, pool))
        numbers = np.stack([_numbers(column) for _, column in table.columns], axis=1)
        values = np.array([self._value(record) for record in history])
        largest = values.max() or 1.0
        data = xgboost.DMatrix(numbers[: len(seen)], label=values / largest, nthread=1)
        trees = xgboost.train({**_SETTINGS, "seed": 0}, data, num_boost_round=_ROUNDS)
        return np.asarray(trees.predict(xgboost.DMatrix(numbers[len(seen) :], nthread=1)))

    def _value(self, record: Record) -> float:
        """The metric, larger is better; 0 for a failure."""
        value = self._objective.of(record) or 0.0
        return value if self._objective.higher_is_better or not value else 1.0 / value


def _next(rest: Ints, number: int, draw: np.random.Generator) -> int:
    if number > 0 and (number < _FIRST or draw.random() < _EXPLORATION):
        return int(draw.choice(rest))
    return int(rest[0])


def _numbers(column: CodedColumn) -> Floats:
    known = column.categories
    if known is None or not all(isinstance(value, (int, float)) for value in known):
        return column.codes.astype(np.float64)
    return np.array([*known, np.nan], np.float64)[column.codes]


def load_tuner(name: str) -> Strategy:
    """A strategy by its name in the settings, or the ranker of the DeepSpeed Autotuner."""
    if name == "deepspeed":
        return PairwiseRanker(OBJECTIVES["throughput"])
    return load_strategy(name, where="--tuner")
