"""Predictions corrected by a few measurements of the user. Not: the constants of ``physics``.

The logarithm of measured over predicted time is a sum of effects, each normal around 0 with a
spread of its own: one of the whole machine, one of each kind of part of a step, and one for each
tensor-parallel degree, inner layout and outer layout, shared by candidates that agree in it. Few
measurements move predictions little, and only those of layouts like theirs; the most probable
correction is a Gaussian process (Rasmussen and Williams 2006, equation 2.25).
Shapes: R = rows, M = measured rows, L = levels, P = kinds of parts.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ...table import Floats, Ints
from .columns import LayoutColumns
from .step import StepParts

_GROUPS = (
    ("ideal_s_C", "kernels_s_C", "recompute_s_C", "update_s_C", "bubble_s_C"),
    ("launch_s_C",),
    ("communication_s_C",),
)
_PART_SPREADS = (0.04, 0.05, 0.05)
_COMMON_SPREAD = 0.05
_LEVEL_SPREADS = (0.12, 0.09, 0.10)
"""Of a tensor-parallel degree, an inner layout and an outer one. All spreads are from what the
published tables' errors have in common, chosen once for all tables."""
_NOISE = 0.035
"""What two runs of one setting differ by."""
_LARGEST = 0.35
"""Larger errors have causes that other layouts need not share."""


def calibrated_s(
    parts_R: StepParts, levels_RL: Ints, measured_rows: Ints, measured_s_M: Floats
) -> Floats:
    """Seconds of each row, given the seconds of some; as predicted where none are given."""
    predicted = parts_R.step_s_C
    if not len(measured_rows):
        return predicted
    missing = np.log(measured_s_M / predicted[measured_rows]).clip(-_LARGEST, _LARGEST)
    shares = _shares(parts_R)
    alike = _alike(shares, levels_RL, measured_rows)
    among = alike[measured_rows] + _NOISE**2 * np.eye(len(measured_rows))
    return np.asarray(predicted * np.exp(alike @ np.linalg.solve(among, missing)), np.float64)


def levels(layouts: LayoutColumns, software: Ints) -> Ints:
    """Numbers that are equal where rows share an effect, a column for each kind of effect.

    ``software`` is equal for rows of one model, sequence length, precision and GPU.
    """
    sharded = layouts.zero_C >= 3
    degree = (software, sharded, layouts.tensor_C, layouts.context_C)
    inner = (*degree, layouts.micro_C, layouts.recompute_C, layouts.sequence_C)
    ranks = layouts.data_C * layouts.tensor_C * layouts.context_C * layouts.pipeline_C
    outer = (sharded, layouts.tensor_C, layouts.pipeline_C, ranks)
    numbered = [
        np.unique(np.column_stack(keys).astype(np.int64), axis=0, return_inverse=True)[1].ravel()
        for keys in (degree, inner, outer)
    ]
    return np.column_stack(numbered)


def rows_of(parts: StepParts, rows: list[int]) -> StepParts:
    """Some rows of all parts."""
    return StepParts(**{part.name: getattr(parts, part.name)[rows] for part in fields(parts)})


def _alike(shares_RP: Floats, levels_RL: Ints, measured_rows: Ints) -> Floats:
    """Covariance of the effects of each row with those of the measured ones."""
    weighted = shares_RP * np.square(_PART_SPREADS)
    alike = _COMMON_SPREAD**2 + weighted @ shares_RP[measured_rows].T
    for level, spread in zip(levels_RL.T, _LEVEL_SPREADS, strict=True):
        alike = alike + spread**2 * (level[:, None] == level[None, measured_rows])
    return np.asarray(alike)


def _shares(parts: StepParts) -> Floats:
    columns = [sum(getattr(parts, name) for name in names) for names in _GROUPS]
    return np.asarray(np.column_stack(columns) / parts.step_s_C[:, None])
