"""What a tuner chose, and the space it chose from. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RANKS = 2
GLOBAL_BATCH = 64
LARGEST_MICRO_BATCH = 32
ZERO_STAGES = (0, 1, 2, 3)
BASE: dict[str, Any] = {
    "gradient_clipping": 1.0,
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
    },
}
"""What no tuner may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One configuration of the space."""

    zero_stage: int
    micro_batch: int
    accumulation: int

    @property
    def name(self) -> str:
        """The name that both tuners give it."""
        return f"z{self.zero_stage}_gas{self.accumulation}_tmbspg{self.micro_batch}"

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step on all ranks."""
        return self.micro_batch * self.accumulation * RANKS

    def document(self) -> dict[str, Any]:
        """The configuration that trains so; both frameworks read it."""
        return {
            **BASE,
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "zero_optimization": {"stage": self.zero_stage},
        }


def read_choice(document: dict[str, Any]) -> Choice:
    """The choice that a tuner's optimal configuration stands for.

    Raises:
        ValueError: it sets something else too, so that it is not in the space.
    """
    zero = dict(document.get("zero_optimization", {}))
    choice = Choice(
        zero_stage=zero.pop("stage", 0),
        micro_batch=document["train_micro_batch_size_per_gpu"],
        accumulation=document.get("gradient_accumulation_steps", 1),
    )
    if zero:
        raise ValueError(f"the chosen zero_optimization also sets {', '.join(zero)}")
    return choice


def whole_space() -> tuple[Choice, ...]:
    """Every split of the global batch in powers of two, for each ZeRO stage."""
    share = GLOBAL_BATCH // RANKS
    sizes = [2**power for power in range(LARGEST_MICRO_BATCH.bit_length())]
    return tuple(
        Choice(zero_stage=stage, micro_batch=size, accumulation=share // size)
        for stage in ZERO_STAGES
        for size in sizes
        if share % size == 0
    )
