"""The pool in random order. Not: any judgement of a candidate."""

from __future__ import annotations

from ..objective import Objective
from ..table import CandidateTable, PredictionTable
from ..trial import Record, Trial
from .base import free_rows, generator


class RandomSearch:
    """Uniform, without replacement."""

    def __init__(self, objective: Objective) -> None:
        pass

    def propose(
        self,
        pool: CandidateTable,
        predictions: PredictionTable | None,
        history: tuple[Record, ...],
        pending: tuple[Trial, ...],
        count: int,
        seed: int,
    ) -> tuple[int, ...]:
        """See :class:`~.base.Strategy`."""
        drawn = generator(seed, history, pending).permutation(free_rows(pool, pending))
        return tuple(drawn[:count].tolist())
