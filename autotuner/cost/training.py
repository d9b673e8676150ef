"""What a training does that neither its model nor its layout says. Not: formulas.

Source of each row: its defaults in the public repository at the time of its published numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from autoconf_launch.core import ConfigError, Precision, ResolvedConfig, nearest_known

_STATES = {"adam": 2, "adamw": 2, "sgd": 0, "adagrad": 1, "rmsprop": 1}
_SCRIPTS_OWN = 2  # most scripts train with Adam, and too much is safer than too little


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """Optimizer and precision.

    Attributes:
        optimizer: DeepSpeed's name in any case; None where the script makes its own.
        momentum: the optimizer keeps a running mean of gradients that it could do without.
        extra_states: further values for each trainable weight (amsgrad, centered).
        precision: format of forward and backward; stored weights stay fp32.
    """

    optimizer: str | None = None
    momentum: bool = False
    extra_states: int = 0
    precision: Precision = Precision.FP32

    @staticmethod
    def from_config(config: ResolvedConfig) -> TrainingFacts:
        """Facts of the configuration of the profile run."""
        given = dict(config.optimizer.parameters) if config.optimizer else {}
        return TrainingFacts(
            optimizer=config.optimizer.kind if config.optimizer else None,
            momentum=bool(given.get("momentum")),
            extra_states=bool(given.get("amsgrad")) + bool(given.get("centered")),
            precision=config.precision,
        )

    @property
    def states(self) -> int:
        """Values that the optimizer keeps for each trainable weight: 2 for Adam."""
        if self.optimizer is None:
            return _SCRIPTS_OWN
        return (
            _STATES.get(self.optimizer.lower(), _SCRIPTS_OWN) + self.momentum + self.extra_states
        )

    @property
    def scales_with_batch(self) -> bool:
        """Whether the learning rate follows the batch linearly (SGD), not by its root."""
        return (self.optimizer or "").lower() == "sgd"


class Framework(str, Enum):
    """The framework by whose rules weights, gradients and optimizer state are kept."""

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
        sequence_length: tokens of a sample.
        decoder_sequence_length: tokens of it that a decoder writes; None: as many.
        optimizer: one of ``OPTIMIZER_BYTES``.
        flash_attention: the matrix of attention scores is never stored.
        dropout: its masks are kept.
        fused_loss: the loss never holds the logits in fp32 beside their gradient.
        compiled: a compiler plans the buffers (``torch.compile``).
        lora_rank: rank of adapters beside every matrix of the layers, whose own weights rest.
        capacity_factor: tokens for which an expert has room over those of an even routing.
        transformer_engine: kernels of NVIDIA's library, which keeps weights of FP8 in 8 bits and
            transposed, without a 16-bit copy.
        gradient_bytes: of a gradient that waits for the update; None: as the framework does.
    """

    sequence_length: int
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
    transformer_engine: bool = False
    gradient_bytes: float | None = None
    decoder_sequence_length: int | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Habits of a code; ``sequence_parallel`` where a table leaves it open and tp > 1."""

    framework: Framework
    flash_attention: bool = True
    dropout: bool = False
    fused_loss: bool = False
    transformer_engine: bool = False
    gradient_bytes: float | None = None
    sequence_parallel: bool = False

    def applied(self, setup: TrainingSetup) -> TrainingSetup:
        """``setup`` with these habits."""
        return replace(
            setup,
            framework=self.framework,
            flash_attention=self.flash_attention,
            dropout=self.dropout,
            fused_loss=self.fused_loss,
            transformer_engine=self.transformer_engine,
            gradient_bytes=self.gradient_bytes,
        )


TRAINERS = {
    "auto": Trainer(framework=Framework.AUTO),
    "native": Trainer(framework=Framework.FSDP),
    "megatron": Trainer(framework=Framework.MEGATRON),
    # before flash attention and sequence parallelism: SC21, vTrain, DLPerf
    "megatron-2021": Trainer(framework=Framework.MEGATRON, flash_attention=False, dropout=True),
    # 16-bit gradients and 8-bit weights by default in its recipes
    "nemo": Trainer(
        framework=Framework.MEGATRON,
        transformer_engine=True,
        gradient_bytes=2.0,
        sequence_parallel=True,
    ),
    "deepspeed": Trainer(framework=Framework.DEEPSPEED),
    "megatron-deepspeed": Trainer(
        framework=Framework.DEEPSPEED, flash_attention=False, dropout=True
    ),
    "torchtitan": Trainer(framework=Framework.FSDP, sequence_parallel=True),
    # the loss is compiled with the model since January 2025
    "torchtitan-2025": Trainer(framework=Framework.FSDP, fused_loss=True, sequence_parallel=True),
    # loss_fn: fused_crossentropy
    "llm-foundry": Trainer(framework=Framework.FSDP, fused_loss=True),
}


def trainer(name: str) -> Trainer:
    """The habits of a code.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in TRAINERS:
        raise ConfigError(f"Trainer {name!r} is unknown; {nearest_known(name, TRAINERS)}")
    return TRAINERS[name]
