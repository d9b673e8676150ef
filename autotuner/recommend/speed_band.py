"""How far from a predicted speed trainings are, from published ones. Not: the prediction.

``benchmarks/nvidia_published_speeds.py`` sets each beside what ``recommend`` predicts for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..layouts.bands import STEP_TIME_BAND, UNMEASURED_BAND

_NINE_OF_TEN = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpeed:
    """One published training; ``ratio`` is its speed over what is predicted for the best layout.

    ``training`` is equal for runs that differ in the number of GPUs alone.
    """

    training: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedBand:
    """Speeds over a predicted one that nine of ten trainings lie between.

    Attributes:
        slowest, fastest: below and above 1.
        source: what it comes from, as a sentence's part.
    """

    slowest: float
    fastest: float
    source: str


def speed_band(published: Sequence[PublishedSpeed], *, has_experts: bool) -> SpeedBand:
    """The band of published speeds, never narrower than that of a single predicted step.

    Each training counts once, however many runs it has. Where no table has such a model (with
    experts), the band of a step is that of unmeasured ones.

    Args:
        published: at least one.
        has_experts: of the model that is predicted.
    """
    runs = Counter(one.training for one in published)
    weighed = sorted((one.ratio, 1.0 / runs[one.training]) for one in published)
    tail = (1.0 - _NINE_OF_TEN) / 2.0
    least = UNMEASURED_BAND if has_experts else STEP_TIME_BAND
    note = "; none of them has experts, so that it is wider" if has_experts else ""
    return SpeedBand(
        slowest=min(_quantile(weighed, tail), 1.0 - least),
        fastest=max(_quantile(weighed, 1.0 - tail), 1.0 + least),
        source=(
            f"nine of ten of NVIDIA's {len(runs)} published trainings ({len(published)} runs)"
            f"{note}"
        ),
    )


def _quantile(weighed: Sequence[tuple[float, float]], share: float) -> float:
    """The first value at which so much of the weight lies below or at it."""
    wanted = share * sum(weight for _, weight in weighed)
    seen = 0.0
    for value, weight in weighed:
        seen += weight
        if seen >= wanted - 1e-9:
            return value
    return weighed[-1][0]
