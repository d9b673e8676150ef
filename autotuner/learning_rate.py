"""Advice on the learning rate when the global batch changed. Not: any change of a setting."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .cost.facts import TrainingFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateAdvice:
    """Multiply the learning rate by ``factor``; ``sentence`` says why."""

    factor: float
    sentence: str


def learning_rate_advice(
    before: int, after: int, facts: TrainingFacts
) -> LearningRateAdvice | None:
    """Advice for a global batch that goes from ``before`` to ``after`` samples; None if equal.

    Source:
        DeepSpeed Autotuning documentation: the square root of the ratio keeps the variance of
        the gradient's expectation; linear for SGD.
    """
    if before == after:
        return None
    ratio = after / before
    linear = facts.scales_with_batch
    factor = ratio if linear else math.sqrt(ratio)
    law = "linear, for SGD" if linear else "by its square root"
    return LearningRateAdvice(
        factor=factor,
        sentence=f"The global batch goes from {before} to {after} ({ratio:.3g}x): unless the "
        "script scales the learning rate with its batch itself, multiply it by "
        f"{factor:.3g} ({law}).",
    )
