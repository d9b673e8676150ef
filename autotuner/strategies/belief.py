"""What is expected of each row, and how surely. Not: which model expects it (gaussian, trees).

Shapes: S = measured rows, C = rows of the pool, F = features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..table import Floats

NOISE = 0.02
"""What two runs of one setting differ by, as a share."""
OWN = 0.25
"""Share of the variance that no other row tells of."""
PRIOR_FREEDOM = 4.0
"""Measurements that the prior scale counts as."""


class Covariance(Protocol):
    """Of rows by their features, in units of the prior variance, a row's own part left out."""

    def between(self, a_RF: Floats, b_RF: Floats) -> Floats:
        """Of each row with each other one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Belief:
    """Logarithms to expect. Shapes: as in the module.

    Attributes:
        mean_C: expected value.
        variance_C: in units of ``scale``, noise of a new measurement left out.
        scale: variance that the prior's unit stands for.
        freedom: of the t-distribution.
        left_out_S: what each measured row is off by where the others alone say what it is.
    """

    mean_C: Floats
    variance_C: Floats
    scale: float
    freedom: float
    kernel: Covariance
    features_CF: Floats
    seen_CS: Floats
    left_out_S: Floats

    @property
    def spread_C(self) -> Floats:
        """Standard deviation of each row's true value."""
        return np.sqrt(self.scale * self.variance_C)

    def after(self, row: int) -> Belief:
        """As if ``row`` had been measured and were just what is expected of it."""
        near = self.kernel.between(self.features_CF, self.features_CF[row : row + 1])[:, 0]
        covariance = near - self.seen_CS @ self.seen_CS[row]
        column = covariance / np.sqrt(max(self.variance_C[row], OWN) + NOISE**2 / self.scale)
        return replace(
            self,
            variance_C=np.maximum(self.variance_C - column**2, OWN),
            seen_CS=np.column_stack([self.seen_CS, column]),
        )
