"""The size of model or the number of GPUs for some days, by NVIDIA's formula or any prediction.

The formula ignores gates, experts and grouped queries, so that numbers compare with published
numbers of that tool.
Source: NeMo-Framework-Launcher, auto_configurator, ``compare_throughput.py`` (24.12).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autoconf_launch.core import ConfigError

from .families import Family

FLOPS_PER_PARAMETER_AND_TOKEN = 8
"""Forward 2, backward 4, and the forward pass again: full recomputation is assumed."""
SECONDS_PER_DAY = 86_400
_PENALTIES = {"mt5": 0.87}
_TRAINING_TIME_PENALTIES = {"mt5": 1.15}
_ROUNDS = 6
_MOST_GPUS = 1 << 17
_MOST_VAIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Machines and their number of tokens.

    Attributes:
        tflops_per_gpu: speed of one GPU, counted as the formula does (8 operations for each
            parameter and token).
        tokens_b: in billions.
    """

    gpus: int
    tflops_per_gpu: float
    tokens_b: float


def model_size_b(family: str, budget: Budget, days: float) -> float:
    """Billions of parameters, rounded to two digits; 0 if the budget is below 5 million.

    Source: NeMo-Framework-Launcher, auto_configurator (24.12), and NeMo 2.0's.
    """
    done = days * SECONDS_PER_DAY * budget.gpus * budget.tflops_per_gpu * 1e12
    per_parameter = FLOPS_PER_PARAMETER_AND_TOKEN * budget.tokens_b * 1e9
    return round(_PENALTIES.get(family, 1.0) * done / per_parameter / 1e9, 2)


def recommended_size_b(family: str, budget: Budget, days: float) -> float:
    """The recommended size of a new model, in billions.

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


def training_days(family: str, size_b: float, budget: Budget) -> float:
    """Days, rounded to two digits.

    Args:
        family: its name; mt5 has a penalty.
        size_b: billions of parameters.
        budget: machines and tokens.

    Source: NeMo-Framework-Launcher, auto_configurator (24.12), and NeMo 2.0's.
    """
    return round(exact_training_days(family, size_b, budget), 2)


def exact_training_days(family: str, size_b: float, budget: Budget) -> float:
    """Training days, not rounded: 0.00 days would say nothing of a small model."""
    needed = size_b * 1e9 * FLOPS_PER_PARAMETER_AND_TOKEN * budget.tokens_b * 1e9
    done_per_day = SECONDS_PER_DAY * budget.gpus * budget.tflops_per_gpu * 1e12
    return _TRAINING_TIME_PENALTIES.get(family, 1.0) * needed / done_per_day


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleShape:
    """Computation of one sample; ``layers`` of T5 count one stack.

    Attributes:
        sequence: tokens of a sample; for T5 of the encoder.
        decoder_sequence: tokens that T5's decoder writes; not read for others.
    """

    family: Family
    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    sequence: int
    decoder_sequence: int = 128


def step_flops(shape: SampleShape, global_batch: int) -> float:
    """Floating-point operations of forward and backward pass over the global batch."""
    family = shape.family
    if family.is_encoder_decoder:
        return global_batch * _t5(shape)
    return global_batch * (_bert(shape) if family.name == "bert" else _gpt(shape))


def least_step_flops(shape: SampleShape, global_batch: int) -> float:
    """Operations that a step cannot do without: a causal decoder needs half of its attention."""
    flops, family = step_flops(shape, global_batch), shape.family
    if family.is_encoder_decoder or family.name == "bert":
        return flops
    return flops - 6.0 * global_batch * shape.layers * shape.sequence**2 * shape.hidden


def _gpt(shape: SampleShape) -> float:
    tokens, hidden = shape.sequence, shape.hidden
    layer = 24 * tokens * hidden**2 + 4 * tokens**2 * hidden
    return 3 * shape.layers * layer + 6 * tokens * hidden * shape.vocabulary


def _bert(shape: SampleShape) -> float:
    tokens, hidden = shape.sequence, shape.hidden
    beside = tokens / (6 * hidden) + shape.vocabulary / (12 * hidden * shape.layers)
    return 72 * tokens * shape.layers * hidden**2 * (1 + beside)


def _t5(shape: SampleShape) -> float:
    hidden, ffn = shape.hidden, shape.ffn
    read, written = shape.sequence, shape.decoder_sequence
    encoder = 8 * read * hidden**2 + 4 * read**2 * hidden + 6 * read * hidden * ffn
    across = 4 * hidden**2 * (read + written) + 4 * read * written * hidden
    decoder = 8 * written * hidden**2 + 4 * written**2 * hidden + 6 * written * hidden * ffn
    layers = shape.layers * (encoder + decoder + across)
    return 3 * (layers + 2 * written * hidden * shape.vocabulary)


def size_for_days(
    size_b: float, days: float, days_of: Callable[[float], float | None]
) -> float | None:
    """The largest size, to two digits, whose training takes at most ``days``.

    Args:
        size_b: first size to try.
        days: the limit.
        days_of: days of a size; None if it does not fit or has no shape.

    Returns:
        None if even far smaller sizes do not.
    """
    least, most = 0.0, 0.0
    size = size_b
    for _ in range(2 * _ROUNDS):
        taken = days_of(size)
        if taken is not None and taken <= days:
            least = max(least, size)
        else:
            most = min(most, size) if most else size
        if least and most and most / least < 1.02:
            break
        size = _next(size, least, most, days / taken if taken else 0.5)
    return round(least, 2) or None


def _next(size: float, least: float, most: float, factor: float) -> float:
    """The next size: the middle of known ends, until then by how far the last one was off."""
    if least and most:
        return math.sqrt(least * most)
    return size * (min(factor, 0.95) if most else max(factor, 1.05))


def gpus_for_days(each: int, days: float, days_of: Callable[[int], float | None]) -> int | None:
    """The fewest GPUs whose training takes at most ``days``: part of a node, or whole nodes.

    They are doubled until it does and then halved back, as if more never took longer.

    Args:
        each: GPUs of a node.
        days: the limit.
        days_of: days on a number of GPUs; None if nothing fits on them.

    Returns:
        None if more GPUs bring it no nearer.
    """

    def gpus_at(position: int) -> int:
        return position if position <= each else (position - each + 1) * each

    def is_enough(position: int) -> bool:
        found = days_of(gpus_at(position))
        return found is not None and found <= days

    low, high, best, vain = 0, 1, math.inf, 0
    while not (found := days_of(gpus_at(high)) or math.inf) <= days:
        vain = 0 if found < 0.99 * best or best == math.inf else vain + 1
        low, best = high, min(best, found)
        high = min(2 * high, each) if high < each else each - 1 + 2 * (high - each + 1)
        if vain == _MOST_VAIN or gpus_at(high) > _MOST_GPUS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return gpus_at(high)
