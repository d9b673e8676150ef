"""What a training does that neither its model nor its layout says. Not: formulas.

Source of each row: its defaults in the public repository at the time of its published numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import (
    ConfigError,
    Framework,
    Precision,
    ResolvedConfig,
    Software,
    Workload,
    nearest_known,
)

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
class TrainerHabits:
    """Habits of a code; ``sequence_parallel`` where a table leaves it open and tp > 1."""

    software: Software
    sequence_parallel: bool = False

    def applied(self, workload: Workload) -> Workload:
        """``workload`` with these habits; whether it is compiled is the user's to say."""
        compiled = workload.software.compiled
        return replace(workload, software=replace(self.software, compiled=compiled))


_MEGATRON = Software(framework=Framework.MEGATRON)
_FSDP = Software(framework=Framework.FSDP)
_DEEPSPEED = Software(framework=Framework.DEEPSPEED)
TRAINERS = {
    "auto": TrainerHabits(software=Software()),
    "native": TrainerHabits(software=_FSDP),
    "megatron": TrainerHabits(software=_MEGATRON),
    # before flash attention and sequence parallelism: SC21, vTrain, DLPerf
    "megatron-2021": TrainerHabits(
        software=replace(_MEGATRON, flash_attention=False, dropout=True)
    ),
    # 16-bit gradients and 8-bit weights by default in its recipes
    "nemo": TrainerHabits(
        software=replace(_MEGATRON, transformer_engine=True, gradient_bytes=2.0),
        sequence_parallel=True,
    ),
    "deepspeed": TrainerHabits(software=_DEEPSPEED),
    "megatron-deepspeed": TrainerHabits(
        software=replace(_DEEPSPEED, flash_attention=False, dropout=True)
    ),
    "torchtitan": TrainerHabits(software=_FSDP, sequence_parallel=True),
    # the loss is compiled with the model since January 2025
    "torchtitan-2025": TrainerHabits(
        software=replace(_FSDP, fused_loss=True), sequence_parallel=True
    ),
    # loss_fn: fused_crossentropy
    "llm-foundry": TrainerHabits(software=replace(_FSDP, fused_loss=True)),
}


def trainer(name: str) -> TrainerHabits:
    """The habits of a code.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in TRAINERS:
        raise ConfigError(f"Trainer {name!r} is unknown; {nearest_known(name, TRAINERS)}")
    return TRAINERS[name]


_MATRICES_REPEATED = 0.5
"""Share of the GEMMs that torchtitan's selective recomputation repeats."""


def repeated_products(software: Software) -> float:
    """Share of the GEMMs that selective recomputation repeats; 0 if small operations only."""
    return _MATRICES_REPEATED if software.framework is Framework.FSDP else 0.0


def is_compiled(software: Software) -> bool:
    """Whether small operations are fused, by a compiler or by a vendor's library."""
    return software.compiled or software.transformer_engine


def is_tensor_async(software: Software) -> bool:
    """Whether tensor-parallel communication is cut up to run beside its products."""
    return software.async_tensor or software.transformer_engine


def has_flat_gathers(software: Software) -> bool:
    """Whether weights of a layer are gathered as one buffer, not matrix by matrix."""
    return software.flash_attention and software.framework is not Framework.DEEPSPEED


def overlaps_reduction(software: Software) -> bool:
    """Whether gradients are reduced beside the backward pass, as since flash attention's time."""
    return software.flash_attention


def kernel_traits(workload: Workload) -> tuple[object, ...]:
    """Everything of a workload that a step's time depends on, its model and lengths aside.

    Products of both 16-bit formats take as long: they have equal traits.
    """
    software, precision = workload.software, workload.precision
    return (
        Precision.BF16 if precision is Precision.FP16 else precision,
        software.flash_attention,
        software.transformer_engine,
        is_compiled(software),
        is_tensor_async(software),
        has_flat_gathers(software),
        repeated_products(software),
    )
