"""What a training does that neither its model nor its layout says. Not: formulas."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from autoconf_launch.core import Precision


class Framework(str, Enum):
    """Whose rules weights, gradients and the optimizer's state are kept by."""

    MEGATRON = "megatron"
    """Megatron-LM and NeMo: 16-bit weights; ZeRO 1 is the distributed optimizer."""
    DEEPSPEED = "deepspeed"
    """DeepSpeed and Megatron-DeepSpeed: 16-bit weights, flat buffers, buckets."""
    FSDP = "fsdp"
    """torch's DDP and FSDP2 (torchtitan, ours): fp32 weights, gathered in 16 bits."""
    AUTO = "auto"
    """Megatron's rules for ZeRO 0 and 1, FSDP's for 2 and 3."""


class FrozenPart(str, Enum):
    """Weights that may be left out of training."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    HEAD = "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Equal for all candidates of one call.

    Attributes:
        sequence: tokens of a sample.
        written: tokens that an encoder-decoder's decoder writes of it; None: as many.
        optimizer: one of ``OPTIMIZER_BYTES``.
        flash_attention: the matrix of attention scores is never stored.
        dropout: its masks are kept.
        fused_loss: the loss never holds the logits in fp32 beside their gradient.
        compiled: a compiler plans the buffers (``torch.compile``).
        lora_rank: rank of adapters beside every matrix of the layers, whose own weights rest.
        capacity_factor: tokens for which an expert has room over those of an even routing.
        fp8_weights: with FP8, weights are kept in 8 bits and transposed, without a 16-bit copy.
        gradient_bytes: of a gradient that waits for the update; None: as the framework does.
    """

    sequence: int
    precision: Precision = Precision.BF16
    optimizer: str = "adamw"
    framework: Framework = Framework.AUTO
    flash_attention: bool = True
    dropout: bool = False
    fused_loss: bool = False
    compiled: bool = False
    lora_rank: int | None = None
    frozen: frozenset[FrozenPart] = field(default=frozenset())
    capacity_factor: float = 1.0
    fp8_weights: bool = False
    gradient_bytes: float | None = None
    written: int | None = None

    @property
    def value_bytes(self) -> int:
        """Size of an activation."""
        return self.precision.value_bytes


OPTIMIZER_BYTES = {
    "adamw": 8.0,
    "adam": 8.0,
    "adam8bit": 2 * (1 + 4 / 256),
    "adamw8bit": 2 * (1 + 4 / 256),
    "sgd": 0.0,
    "momentum": 4.0,
    "lion": 4.0,
    "adagrad": 4.0,
    "rmsprop": 4.0,
    "adafactor": 0.0,
    "muon": 4.0,
}
"""Bytes of state for each weight beside its fp32 copy. 8 bits: one fp32 scale for each 256 values
(Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"). Adafactor keeps sums of
rows and columns alone (Shazeer and Stern 2018)."""
