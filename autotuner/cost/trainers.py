"""What well-known training codes do that their layouts do not say. Not: their rules of state.

Source of each row: its defaults in the public repository at the time of its published numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import ConfigError, nearest_known

from .training_setup import Framework, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Habits of a code; ``sequence_parallel`` where a table leaves it open and tp > 1."""

    framework: Framework
    flash_attention: bool = True
    dropout: bool = False
    fused_loss: bool = False
    fp8_weights: bool = False
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
            fp8_weights=self.fp8_weights,
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
        fp8_weights=True,
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
