"""What a controller asks and tells: a study, the rounds after it, a soak. Not: any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .stop import StopReason
from .trial import Record, Trial


class Decider(Protocol):
    """What a controller asks and tells; see :class:`~.study.Study`."""

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """Trials to start now; none may mean to wait for pending ones."""

    def tell(self, record: Record) -> None:
        """Take an outcome."""

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """Where a running trial is to end, after these steps; None: where it was to."""

    def stop_reason(self) -> StopReason | None:
        """Why nothing more will be asked."""
