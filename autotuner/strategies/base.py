"""The extension point Strategy: which candidates to try next. Not: when to stop (Study)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, TypeAlias

import numpy as np

from ..space import CandidateTable, Ints, Objective, PredictionTable, Record, Trial

Order: TypeAlias = Callable[[Ints, np.random.Generator], Ints]
"""Free rows and random numbers to the same rows in the order of their trials."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """A request for proposals, with everything that they depend on.

    Attributes:
        pool: remaining candidates of one stage, at least one.
        predictions: of the pool's rows, or None.
        history: everything that came back, in order, failures and other stages included.
        pending: trials that run now; none of them may be proposed again.
        count: rows wanted at most, at least 1.
        seed: of the study.
    """

    pool: CandidateTable
    predictions: PredictionTable | None = None
    history: tuple[Record, ...] = ()
    pending: tuple[Trial, ...] = ()
    count: int = 1
    seed: int = 0

    @property
    def free_rows(self) -> Ints:
        """Rows of which no trial is running."""
        free = np.ones(len(self.pool), np.bool_)
        for trial in self.pending:
            free &= ~self.pool.matches(trial.candidate)
        return np.flatnonzero(free)

    def take(self, rows: Ints) -> Ask:
        """The request for only some rows of the pool."""
        predictions = None if self.predictions is None else self.predictions.take(rows)
        return replace(self, pool=self.pool.take(rows), predictions=predictions)

    def generator(self) -> np.random.Generator:
        """Random numbers from (seed, next trial): a resumed study draws the same."""
        return np.random.default_rng((self.seed, next_number(self.history, self.pending)))


class Strategy(Protocol):
    """Proposes rows. Pure: the result depends only on the request.

    The row or entry point of a strategy is a class or function that is called with the
    ``Objective`` of the search (and the text after the name's colon, if there is one), and
    returns this: ``def __init__(self, objective: Objective) -> None``.
    """

    def propose(self, ask: Ask) -> tuple[int, ...]:
        """Rows of the pool to try next, the most promising first.

        Returns:
            At most ``ask.count`` different rows; empty if nothing here is worth a trial.
        """


def next_number(history: tuple[Record, ...], pending: tuple[Trial, ...]) -> int:
    """The number that the next trial gets."""
    told = max(map(attrgetter("trial.number"), history), default=-1)
    return max((told, *(trial.number for trial in pending))) + 1


@dataclass(frozen=True, slots=True)
class Blind:
    """A strategy that an order makes, whatever is predicted and whatever came back."""

    order: Order

    def propose(self, ask: Ask) -> tuple[int, ...]:
        return tuple(self.order(ask.free_rows, ask.generator())[: ask.count].tolist())


def grid_search(objective: Objective) -> Blind:
    """Next rows first; the order of a space is stable."""
    return Blind(order=lambda rows, _: rows)


def random_search(objective: Objective) -> Blind:
    """Uniform, without replacement."""
    return Blind(order=lambda rows, draw: draw.permutation(rows))
