"""The size of model that machines can train in some days, by NVIDIA's formula. Not: its shape."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import ConfigError

FLOPS_PER_PARAMETER_AND_TOKEN = 8
"""Forward 2, backward 4, and the forward pass again: full recomputation is assumed."""
SECONDS_PER_DAY = 86_400
_PENALTIES = {"mt5": 0.87}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Machines and what they are to read.

    Attributes:
        tflops_per_gpu: what one GPU achieves, counted as the formula does (8 operations for each
            parameter and token).
        tokens_b: in billions.
    """

    gpus: int
    tflops_per_gpu: float
    tokens_b: float


def model_size_b(family: str, budget: Budget, days: float) -> float:
    """Billions of parameters, rounded to two digits; 0 where the budget is below 5 million.

    Source: NeMo-Framework-Launcher, auto_configurator (24.12), and the same of NeMo 2.0.
    """
    done = days * SECONDS_PER_DAY * budget.gpus * budget.tflops_per_gpu * 1e12
    per_parameter = FLOPS_PER_PARAMETER_AND_TOKEN * budget.tokens_b * 1e9
    return round(_PENALTIES.get(family, 1.0) * done / per_parameter / 1e9, 2)


def recommended_size_b(family: str, budget: Budget, days: float) -> float:
    """The same, for a model that is to be made.

    Raises:
        ConfigError: the size is 0.
    """
    size_b = model_size_b(family, budget, days)
    if size_b > 0:
        return size_b
    raise ConfigError(
        f"In {days:g} days {budget.gpus} GPUs of {budget.tflops_per_gpu:g} TFLOP/s train less "
        f"than 0.01 B parameters on {budget.tokens_b:g} B tokens; give more days or fewer tokens."
    )
