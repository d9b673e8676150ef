"""Trials that wait for slots: which of them is next. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autoconf_launch.autotuner.space import Prediction, Trial

from ..hosts import Placement, Size, SlotPool
from ..plan import LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A trial that was planned; ``alone``: with all the memory of its place.

    ``losses`` has the lost hosts of each launch of it that ended with one; none of a preemption.
    """

    trial: Trial
    plan: LaunchPlan
    size: Size = field(default_factory=Size)
    prediction: Prediction | None = None
    alone: bool = False
    losses: tuple[tuple[str, ...], ...] = ()


class TrialQueue:
    """Trials in the order in which the study asked for them, the best first.

    Smaller ones overtake one at the head that finds no place. Once it has waited for as long as
    the longest trial took, nothing starts before it, so that it waits twice as long at most.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._head_s: float | None = None
        """Since when the one at the head has waited."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting)

    def add(self, waiting: Waiting) -> None:
        """Behind all others."""
        self._waiting.append(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """In front of all others: it lost its place by no fault of its own."""
        self._waiting.insert(0, waiting)
        self._head_s = None

    def next(
        self, pool: SlotPool, now_s: float, longest_s: float
    ) -> tuple[Waiting, Placement] | None:
        """The first one that finds a place in the pool, which it has taken; None to wait.

        Args:
            pool: of free slots.
            now_s: on any clock.
            longest_s: that a trial has taken so far.
        """
        for index, waiting in enumerate(self._waiting):
            place = pool.take(waiting.size)
            if place is not None:
                del self._waiting[index]
                self._head_s = self._head_s if index else None
                return waiting, place
            if index == 0:
                self._head_s = now_s if self._head_s is None else self._head_s
                if now_s - self._head_s >= longest_s > 0.0:
                    return None
        return None
