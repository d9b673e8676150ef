"""Candidates and what is predicted of them as numbers to learn from.

One unit of a feature is one step of its knob: a factor of 2 of a size, another value of a choice.
Shapes: R = rows (measured ones, then those of the pool), F = features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..space import (
    ABSENT,
    LAYOUT_KNOBS,
    CandidateTable,
    CodedColumn,
    Floats,
    Prediction,
    PredictionTable,
)

_MOST_CHOICES = 8
"""Most values of one knob; beyond that, rows are distinguished by the other knobs alone."""
_SHARE_UNITS = 4.0
"""A part that takes a quarter of the step more is one unit away."""


def knob_features(table: CandidateTable) -> Floats:
    """A column or more for each knob that varies."""
    found = [column for name, c in table.columns for column in _columns(name, c)]
    return _stack(found, len(table))


def prediction_features(
    seen: Sequence[Prediction | None], predictions: PredictionTable | None
) -> Floats:
    """Time, memory and parts of the measured rows, then of the pool; only what all rows have."""
    if predictions is None:
        return np.zeros((len(seen), 0))
    known = [prediction or _NOTHING for prediction in seen]
    step_s = _join([p.step_s for p in known], predictions.step_s_C)
    columns = [
        np.log2(step_s),
        np.log2(_join([p.peak_bytes for p in known], predictions.peak_bytes_C)),
    ]
    for name, seconds in predictions.parts:
        part_s = _join([dict(p.parts).get(name) for p in known], seconds)
        columns.append(_SHARE_UNITS * part_s / step_s)
    whole = [column for column in columns if np.isfinite(column).all() and np.ptp(column) > 0]
    return _stack(whole, len(step_s))


_NOTHING = Prediction(peak_bytes=None, step_s=None, band=None, how="")


def _join(seen: Sequence[float | None], pool: Floats) -> Floats:
    return np.concatenate([np.array([np.nan if x is None else x for x in seen], float), pool])


def _columns(name: str, column: CodedColumn) -> list[Floats]:
    codes = column.codes
    if not len(codes) or codes.min() == codes.max():
        return []
    knob = LAYOUT_KNOBS.get(name)
    if knob is not None and knob.is_number:
        return [codes.astype(float) if knob.values else np.log2(codes)]
    sizes = _sizes(column)
    if sizes is not None:
        return [sizes[codes]]
    present = np.unique(codes)
    if len(present) > _MOST_CHOICES:
        return []
    return [np.sqrt(0.5) * (codes == code) for code in present]


def _sizes(column: CodedColumn) -> Floats | None:
    """Octaves of a column of plain numbers above 0, by code; None where it is of other values."""
    values = column.categories or ()
    if not values or (column.codes == ABSENT).any():
        return None
    if all(type(x) in (int, float) and x > 0 for x in values):  # type: ignore[operator]
        return np.asarray(np.log2(np.array(values, float)))
    return None


def _stack(columns: list[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
