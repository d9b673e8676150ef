"""The extension point Strategy: which candidates to try next. Not: when to stop (Study)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, TypeAlias

import numpy as np

from ..space import CandidateTable, Ints, Objective, PredictionTable, Record, Trial


class Strategy(Protocol):
    """Proposes rows. Pure: the result depends only on the arguments."""

    def propose(
        self,
        pool: CandidateTable,
        predictions: PredictionTable | None,
        history: tuple[Record, ...],
        pending: tuple[Trial, ...],
        count: int,
        seed: int,
    ) -> tuple[int, ...]:
        """Rows of ``pool`` to try next, the most promising first.

        Args:
            pool: remaining candidates of one stage, at least one.
            predictions: of the pool's rows, or None.
            history: everything that came back, in order, failures and other stages included.
            pending: trials that run now; none of them may be proposed again.
            count: rows wanted at most, at least 1.
            seed: of the study; see :func:`generator`.

        Returns:
            At most ``count`` different rows; empty if nothing here is worth a trial.
        """


Order: TypeAlias = Callable[[Ints, np.random.Generator], Ints]
"""Free rows and random numbers to the same rows in the order of their trials."""


@dataclass(frozen=True, slots=True)
class Blind:
    """A strategy that an order makes, whatever is predicted and whatever came back."""

    order: Order

    def propose(
        self,
        pool: CandidateTable,
        predictions: PredictionTable | None,
        history: tuple[Record, ...],
        pending: tuple[Trial, ...],
        count: int,
        seed: int,
    ) -> tuple[int, ...]:
        rows = self.order(free_rows(pool, pending), generator(seed, history, pending))
        return tuple(rows[:count].tolist())


def generator(
    seed: int, history: tuple[Record, ...], pending: tuple[Trial, ...]
) -> np.random.Generator:
    """Random numbers from (seed, number of the next trial): a resumed study draws the same."""
    return np.random.default_rng((seed, next_number(history, pending)))


def next_number(history: tuple[Record, ...], pending: tuple[Trial, ...]) -> int:
    """The number that the next trial gets."""
    told = max(map(attrgetter("trial.number"), history), default=-1)
    return max((told, *(trial.number for trial in pending))) + 1


def free_rows(pool: CandidateTable, pending: tuple[Trial, ...]) -> Ints:
    """Rows of which no trial is running."""
    free = np.ones(len(pool), np.bool_)
    for trial in pending:
        free &= ~pool.matches(trial.candidate)
    return np.flatnonzero(free)


def grid_search(objective: Objective) -> Blind:
    """Next rows first; the order of a space is stable."""
    return Blind(order=lambda rows, _: rows)


def random_search(objective: Objective) -> Blind:
    """Uniform, without replacement."""
    return Blind(order=lambda rows, draw: draw.permutation(rows))
