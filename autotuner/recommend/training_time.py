"""Days that a model of some size trains, by NVIDIA's formula. Not: our planner's (outlook)."""

from __future__ import annotations

from .model_size import FLOPS_PER_PARAMETER_AND_TOKEN, SECONDS_PER_DAY, Budget

_PENALTIES = {"mt5": 1.15}


def training_days(family: str, size_b: float, budget: Budget) -> float:
    """Days, rounded to two digits.

    Args:
        family: its name; mt5 has a penalty.
        size_b: billions of parameters.
        budget: machines and tokens.

    Source: NeMo-Framework-Launcher, auto_configurator (24.12), and the same of NeMo 2.0.
    """
    return round(exact_training_days(family, size_b, budget), 2)


def exact_training_days(family: str, size_b: float, budget: Budget) -> float:
    """The same, not rounded: 0.00 days would say nothing of a small model."""
    needed = size_b * 1e9 * FLOPS_PER_PARAMETER_AND_TOKEN * budget.tokens_b * 1e9
    done_per_day = SECONDS_PER_DAY * budget.gpus * budget.tflops_per_gpu * 1e12
    return _PENALTIES.get(family, 1.0) * needed / done_per_day
