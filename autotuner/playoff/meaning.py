"""Whether the winner trains as the user's configuration does: their losses over the same batches.

Not: a promise for the whole training; a few optimizer steps are compared.
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
"""So many times what the baseline differs from itself is within the tolerance."""

_USELESS = 0.05
"""Where the baseline differs from itself by more, nothing can be said."""


class MeaningVerdict(str, Enum):
    """What came of the comparison."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_COMPARED = "not_compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The comparison of the losses of trial 0 and of the winner.

    Attributes:
        sentence: for people, with the tolerance or the reason why they were not compared.
        worst: largest relative difference of a step's loss; None where not compared, and where a
            loss of one of them alone is finite.
        tolerance: relative.
    """

    verdict: MeaningVerdict
    sentence: str
    worst: float | None = None
    tolerance: float | None = None


def compare_losses(
    baseline: Record | None, winner: Record | None, repeats: Sequence[Record] = ()
) -> Meaning | None:
    """Compare step by step from the first on; None where there is nothing to compare.

    Args:
        baseline: trial 0.
        winner: what is to be trained with.
        repeats: further launches of trial 0, which tell how far it differs from itself.
    """
    if baseline is None or winner is None or winner.trial.number == 0:
        return None
    reason = _obstacle(baseline, winner)
    if reason is not None or baseline.measurement is None or winner.measurement is None:
        return _not_compared(reason or "one of them was not measured")
    own = max((_gap(baseline, repeat) for repeat in repeats), default=0.0)
    if math.isinf(own):
        return _not_compared(
            "a loss of your own configuration is finite in one of two launches alone"
        )
    if own > _USELESS:
        return _not_compared(
            f"two launches of your own configuration differ by {100 * own:.1f} % (the script "
            "draws its data or weights anew each time)"
        )
    tolerance = max(_tolerance(baseline.measurement), _REPEATS * own)
    return _compared(_gap(baseline, winner), tolerance, _steps(baseline, winner))


def _compared(worst: float, tolerance: float, steps: int) -> Meaning:
    over = f"over the first {steps} global batches"
    how = f"by {worst:.1e} at most {over} (tolerance {tolerance:g})"
    if math.isinf(worst):
        how = f"{over}: one of them alone is finite"
    if worst <= tolerance:
        return Meaning(
            verdict=MeaningVerdict.SAME,
            sentence=f"The winner trains the same: its losses and those of your configuration "
            f"differ {how}.",
            worst=worst,
            tolerance=tolerance,
        )
    return Meaning(
        verdict=MeaningVerdict.DIFFERS,
        sentence=f"The losses of your configuration and of the winner differ {how}; before you "
        "trust the winner, check that the script draws the same data for each global batch, "
        "however it is split.",
        worst=worst if math.isfinite(worst) else None,
        tolerance=tolerance,
    )


def _not_compared(reason: str) -> Meaning:
    return Meaning(
        verdict=MeaningVerdict.NOT_COMPARED,
        sentence="The losses of your configuration and of the winner were not compared: "
        f"{reason}.",
    )


def _obstacle(baseline: Record, winner: Record) -> str | None:
    before, after = baseline.trial.candidate.layout, winner.trial.candidate.layout
    if baseline.measurement is None:
        return "your configuration was not measured"
    if before.global_batch != after.global_batch:
        return f"their global batches are {before.global_batch} and {after.global_batch}"
    if not any(map(math.isfinite, _losses(baseline)[: _steps(baseline, winner)])):
        return "the script reports no losses that are finite"
    return None


def _losses(record: Record) -> tuple[float, ...]:
    return record.measurement.all_losses if record.measurement else ()


def _steps(a: Record, b: Record) -> int:
    return min(len(_losses(a)), len(_losses(b)))


def _gap(a: Record, b: Record) -> float:
    pairs = zip(_losses(a), _losses(b), strict=False)
    return max((_off(x, y) for x, y in pairs), default=0.0)


def _off(x: float, y: float) -> float:
    """Relative; infinite where one of them alone is finite."""
    if x == y:
        return 0.0
    off = abs(x - y) / max(abs(x), abs(y), 1e-12)
    return off if math.isfinite(off) else math.inf


def _tolerance(measurement: Measurement) -> float:
    applied = measurement.applied
    return _TOLERANCE.get(applied.precision, _HALF_TOLERANCE) if applied else _HALF_TOLERANCE
