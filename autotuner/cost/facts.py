"""What a training does that a model's description leaves open. Not: the model, nor a layout."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Precision, ResolvedConfig

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

    @property
    def compute_bytes(self) -> int:
        """Size of a number in forward and backward."""
        return self.precision.value_bytes
