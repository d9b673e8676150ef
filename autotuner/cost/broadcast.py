"""Sums of arrays of unequal shapes. Not: what they mean."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..table import Floats


def broadcast_sum(arrays: Iterable[Floats]) -> Floats:
    """Their sum; small ones are added first, so that few additions run over the whole grid.

    Arrays of one shape are added in their order.
    """
    total: Floats | float = 0.0
    for array in sorted(arrays, key=np.size):
        total = total + array
    return np.asarray(total, np.float64)
