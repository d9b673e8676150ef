"""An argument that holds all samples of a rank's step: the script divides it by the accumulation.

So ``--train_batch_size 32 --gradient_accumulation_steps 4`` are micro-batches of 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.knobs import LayoutValue

from .sheet import Place, Sheet
from .spelling import GLOBAL_BATCH, Spelling


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """The argument, as the global batch of ``ranks``."""

    argument: Spelling
    ranks: int
    free: tuple[LayoutValue, ...] = ()
    knob: str = GLOBAL_BATCH

    @property
    def places(self) -> tuple[Place, ...]:
        """What is shown of it."""
        return self.argument.places

    def names(self) -> tuple[str, ...]:
        """See Spelled."""
        return (*self.argument.names()[:-1], self.knob)

    def read(self, sheet: Sheet) -> LayoutValue:
        """See Spelled."""
        held: Any = self.argument.read(sheet)
        return None if held is None else int(held) * self.ranks

    def write(self, sheet: Sheet, value: LayoutValue) -> Sheet:
        """See Spelled."""
        whole: Any = value
        return self.argument.write(sheet, int(whole) // self.ranks)

    def value_of(self, word: Any) -> LayoutValue:
        """See Spelled."""
        return self.argument.value_of(word)


@dataclass(frozen=True, slots=True)
class SplitMicroBatch:
    """The micro-batch that follows from the argument and the accumulation."""

    argument: Spelling
    accumulation: Spelling
    free: tuple[LayoutValue, ...] = ()
    knob: str = "micro_batch"

    @property
    def places(self) -> tuple[Place, ...]:
        """What is shown of it."""
        return self.argument.places

    def names(self) -> tuple[str, ...]:
        """See Spelled."""
        return self.argument.names()

    def read(self, sheet: Sheet) -> LayoutValue:
        """See Spelled."""
        held: Any = self.argument.read(sheet)
        steps: Any = self.accumulation.read(sheet)
        return None if held is None else max(1, int(held) // int(steps or 1))

    def write(self, sheet: Sheet, value: LayoutValue) -> Sheet:
        """See Spelled; the global batch and the accumulation say it."""
        return sheet

    def value_of(self, word: Any) -> LayoutValue:
        """See Spelled."""
        return self.argument.value_of(word)
