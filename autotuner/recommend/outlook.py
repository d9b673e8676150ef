"""Days and money of a training by our planner. Not: the layout's choice (throughput)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .goodput import Goodput, Sensitivity, sensitivities
from .model_size import SECONDS_PER_DAY
from .speed_band import SpeedBand
from .throughput import Achieved

_ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a training takes on a cluster.

    Attributes:
        step_days: of steps alone; ``days`` has all that is lost beside them.
        days_low, days_high: with the band of published speeds.
        usd: None where no price is known.
        price: whose price it is.
        sensitivities: of ``days`` to each assumption.
    """

    achieved: Achieved
    step_days: float
    goodput_share: float
    days: float
    days_low: float
    days_high: float
    band: SpeedBand
    usd: float | None
    price: str
    sensitivities: tuple[Sensitivity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one GPU costs; None where no price is known."""

    usd_per_gpu_hour: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What an outlook assumes beside a speed."""

    goodput: Goodput
    rate: Rate
    band: SpeedBand


def outlook(achieved: Achieved, tokens_b: float, gpus: int, assumed: Assumed) -> Outlook:
    """Days and money of ``tokens_b`` billion tokens."""
    step_days = tokens_b * 1e9 / achieved.tokens_per_s / SECONDS_PER_DAY
    goodput, rate, band = assumed.goodput, assumed.rate, assumed.band
    share = goodput.share(gpus)
    days = step_days / share
    hourly = rate.usd_per_gpu_hour
    return Outlook(
        achieved=achieved,
        step_days=step_days,
        goodput_share=share,
        days=days,
        days_low=days / band.fastest,
        days_high=days / band.slowest,
        band=band,
        usd=None if hourly is None else days * 24 * gpus * hourly,
        price=rate.source,
        sensitivities=sensitivities(goodput, gpus, step_days),
    )


def size_for_days(
    size_b: float, days: float, days_of: Callable[[float], float | None]
) -> float | None:
    """The largest size, to two digits, whose training takes at most ``days``.

    Args:
        size_b: where to begin.
        days: the limit.
        days_of: days of a size; None where it does not fit or has no shape.

    Returns:
        None where even sizes far below the first do not.
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
    """In the middle once both ends are known, until then by how far the last one was off."""
    if least and most:
        return math.sqrt(least * most)
    return size * (min(factor, 0.95) if most else max(factor, 1.05))
