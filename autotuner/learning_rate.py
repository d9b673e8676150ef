"""Advice on the learning rate when the global batch changed. Not: any change of a setting."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .cost.facts import TrainingFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateAdvice:
    """Multiply the learning rate by ``factor``, as the global batch changed.

    ``linear``: the factor is the ratio of the batches, else its square root.
    """

    factor: float
    before: int
    after: int
    linear: bool


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
    return LearningRateAdvice(factor=factor, before=before, after=after, linear=linear)
