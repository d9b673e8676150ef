"""How wrong predictions are, as ``validate`` reports it. Not: the predictions.

Shapes: R = timed settings, G = failed or ran settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...table import Floats

SMALLEST_GROUP = 5
"""Settings of one model, GPU, number of GPUs and global batch that a rank correlation needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAccuracy:
    """Errors in percent, Spearman's correlation between -1 and 1; None where there is nothing.

    Regret: time of the predicted best over the true best, less 1.
    """

    mape: float | None
    median_ape: float | None
    spearman: float | None
    top1_regret_mean: float | None
    top1_regret_max: float | None
    groups: int


def mape(predicted_R: Floats, measured_R: Floats) -> float | None:
    """Mean absolute error in percent of the measured value."""
    errors = np.abs(predicted_R / measured_R - 1.0)
    return 100.0 * float(errors.mean()) if len(errors) else None


def time_accuracy(
    predicted_R: Floats,
    measured_R: Floats,
    groups_R: Sequence[object],
    smallest: int = SMALLEST_GROUP,
) -> TimeAccuracy:
    """Errors of all settings, and order inside of groups; means weigh groups by settings."""
    errors = np.abs(predicted_R / measured_R - 1.0)
    members: dict[object, list[int]] = {}
    for i, group in enumerate(groups_R):
        members.setdefault(group, []).append(i)
    large = [np.array(rows) for rows in members.values() if len(rows) >= smallest]
    orders = [spearman(predicted_R[rows], measured_R[rows]) for rows in large]
    regrets = [top1_regret(predicted_R[rows], measured_R[rows]) for rows in large]
    sizes = [len(rows) for rows in large]
    return TimeAccuracy(
        mape=100.0 * float(errors.mean()) if len(errors) else None,
        median_ape=100.0 * float(np.median(errors)) if len(errors) else None,
        spearman=float(np.average(orders, weights=sizes)) if large else None,
        top1_regret_mean=100.0 * float(np.average(regrets, weights=sizes)) if large else None,
        top1_regret_max=100.0 * max(regrets) if large else None,
        groups=len(large),
    )


def spearman(a_R: Floats, b_R: Floats) -> float:
    """Correlation of ranks, equal values sharing theirs; 0 where all of one side are equal."""
    a, b = _ranks(a_R), _ranks(b_R)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else 0.0


def top1_regret(predicted_R: Floats, measured_R: Floats) -> float:
    """How much longer the predicted best takes than the true best, as a share."""
    return float(measured_R[np.argmin(predicted_R)] / measured_R.min()) - 1.0


def _ranks(values_R: Floats) -> Floats:
    _, which, counts = np.unique(values_R, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[which], np.float64)
