"""The pool in its own order. Not: any judgement of a candidate."""

from __future__ import annotations

from ..objective import Objective
from ..table import CandidateTable, PredictionTable
from ..trial import Record, Trial
from .base import free_rows


class GridSearch:
    """Next rows first; the order of a space is stable."""

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
        return tuple(free_rows(pool, pending)[:count].tolist())
