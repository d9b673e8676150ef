"""Compare the losses of the winner and of the user's configuration over the same batches.

Not: a proof for the whole training; a few optimizer steps are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from autoconf_launch.core import Precision

from ..space import Measurement, Record

_TOLERANCE = {Precision.FP32: 1e-3}
_HALF_TOLERANCE = 2e-2
"""Relative, of a loss within a few steps: other orders of summation, rounded to 16 bits."""

_REPEATS = 3.0
"""Tolerance over the difference between two launches of the baseline."""

_USELESS = 0.05
"""Relative difference between two launches of the baseline above which nothing is compared."""


class MeaningVerdict(str, Enum):
    """The outcome of the comparison."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_COMPARED = "not_compared"


class Obstacle(str, Enum):
    """The reason why losses were not compared."""

    NOT_MEASURED = "not_measured"
    OTHER_BATCH = "other_batch"
    NO_LOSSES = "no_losses"
    BASELINE_DIFFERS = "baseline_differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossComparison:
    """The comparison of the losses of trial 0 and of the winner.

    Attributes:
        verdict: outcome of the comparison.
        worst: largest relative difference of a step's loss; None if not compared, or if it is
            infinite.
        tolerance: largest relative difference that counts as the same.
        steps: number of global batches over which they were compared.
        obstacle: reason why they were not compared.
        batches: global batches of trial 0 and of the winner, if they are the obstacle.
        own_gap: relative difference between two launches of trial 0, if it is the obstacle.
    """

    verdict: MeaningVerdict = MeaningVerdict.NOT_COMPARED
    worst: float | None = None
    tolerance: float | None = None
    steps: int = 0
    obstacle: Obstacle | None = None
    batches: tuple[int, int] = (0, 0)
    own_gap: float = 0.0


def compare_losses(
    baseline: Record | None, winner: Record | None, repeats: Sequence[Record] = ()
) -> LossComparison | None:
    """Compare step by step from the first on; None if there is nothing to compare.

    Args:
        baseline: trial 0.
        winner: the configuration to train with.
        repeats: other launches of trial 0, which show how far it differs from itself.
    """
    if baseline is None or winner is None or winner.trial.number == 0:
        return None
    obstacle = _obstacle(baseline, winner)
    if obstacle is not None or baseline.measurement is None:
        batches = tuple(r.trial.candidate.layout.global_batch for r in (baseline, winner))
        return LossComparison(obstacle=obstacle, batches=(batches[0], batches[1]))
    own = max((_gap(baseline, repeat) for repeat in repeats), default=0.0)
    if own > _USELESS:
        return LossComparison(obstacle=Obstacle.BASELINE_DIFFERS, own_gap=min(own, 1.0))
    tolerance = max(_tolerance(baseline.measurement), _REPEATS * own)
    worst = _gap(baseline, winner)
    return LossComparison(
        verdict=MeaningVerdict.SAME if worst <= tolerance else MeaningVerdict.DIFFERS,
        worst=worst if math.isfinite(worst) else None,
        tolerance=tolerance,
        steps=_steps(baseline, winner),
    )


def _obstacle(baseline: Record, winner: Record) -> Obstacle | None:
    before, after = baseline.trial.candidate.layout, winner.trial.candidate.layout
    if baseline.measurement is None or winner.measurement is None:
        return Obstacle.NOT_MEASURED
    if before.global_batch != after.global_batch:
        return Obstacle.OTHER_BATCH
    if not any(map(math.isfinite, _losses(baseline)[: _steps(baseline, winner)])):
        return Obstacle.NO_LOSSES
    return None


def _losses(record: Record) -> tuple[float, ...]:
    return record.measurement.all_losses if record.measurement else ()


def _steps(a: Record, b: Record) -> int:
    return min(len(_losses(a)), len(_losses(b)))


def _gap(a: Record, b: Record) -> float:
    pairs = zip(_losses(a), _losses(b), strict=False)
    return max((_off(x, y) for x, y in pairs), default=0.0)


def _off(x: float, y: float) -> float:
    """Relative difference; infinite unless they are equal or both finite."""
    if x == y:
        return 0.0
    off = abs(x - y) / max(abs(x), abs(y), 1e-12)
    return off if math.isfinite(off) else math.inf


def _tolerance(measurement: Measurement) -> float:
    applied = measurement.applied
    return _TOLERANCE.get(applied.precision, _HALF_TOLERANCE) if applied else _HALF_TOLERANCE
