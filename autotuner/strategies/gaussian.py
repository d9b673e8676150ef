"""A Gaussian process over features: what few measurements say of all rows.

The covariance is a quarter each of what all rows share, of a trend along the features, of effects
that rows share the more the closer they are (a Matérn kernel of order 1/2: no smoothness is
assumed), and of what is a row's own. Its scale is learned together with the mean: a normal prior
of inverse-gamma variance (Rasmussen and Williams 2006, 2.25; O'Hagan 1994, 9.3), so that beliefs
are Student's t. Where the measurements are more probable so, what rows share may be far off:
another machine, or a unit.
Shapes: S = measured rows, C = rows of the pool, F = features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..space import Floats
from .belief import MEASUREMENT_NOISE, OWN, PRIOR_FREEDOM, Belief

REACH = 2.0
"""Units of features over which effects fade to 1/e."""
_SHARED = (1.0, 100.0)
"""Variances of what all rows share, over that of each other part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernel:
    """Covariance of rows in units of the prior variance; see the module for its four parts."""

    shared: float
    trend: float

    def between(self, a_RF: Floats, b_RF: Floats) -> Floats:
        """Covariance of each row of ``a`` with each of ``b``."""
        products = a_RF @ b_RF.T
        squares = _squares(a_RF)[:, None] + _squares(b_RF)[None, :]
        near = np.exp(np.sqrt(np.maximum(squares - 2.0 * products, 0.0)) / -REACH)
        return np.asarray((self.shared + self.trend * products + near) / 4.0)

    def own(self, a_RF: Floats) -> Floats:
        """Variance of each row."""
        return np.asarray((self.shared + self.trend * _squares(a_RF) + 2.0) / 4.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """A kernel with what it makes of the targets; ``whiten_SS`` decorrelates measured rows."""

    kernel: Kernel
    whiten_SS: Floats
    white_S: Floats
    scale: float
    evidence: float


def fit_process(
    features_RF: Floats, targets_S: Floats, *, spread: float, constant: bool = True
) -> Belief:
    """What targets of the first rows say of the others.

    Args:
        features_RF: of the measured rows, then of the pool.
        targets_S: what was found for each measured row, around 0.
        spread: standard deviation to expect of a target.
        constant: whether a part of the covariance is common to all rows.
    """
    count = len(targets_S)
    features = features_RF - features_RF.mean(axis=0)
    size = float(_squares(features).mean())
    trend = 1.0 / size if size > 0 else 0.0
    kernels = [Kernel(shared=x, trend=trend) for x in (_SHARED if constant else (0.0,))]
    seen, pool = features[:count], features[count:]
    own = (OWN + MEASUREMENT_NOISE**2 / spread**2) * np.eye(count)
    fits = (_fit(k, k.between(seen, seen) + own, targets_S, spread) for k in kernels)
    fit = max(fits, key=lambda found: found.evidence)
    half_SC = fit.whiten_SS @ fit.kernel.between(seen, pool)
    return Belief(
        mean_C=np.asarray(half_SC.T @ fit.white_S),
        variance_C=fit.kernel.own(pool) - np.einsum("sc,sc->c", half_SC, half_SC),
        scale=fit.scale,
        freedom=PRIOR_FREEDOM + count,
        kernel=fit.kernel,
        features_CF=pool,
        seen_CS=np.asarray(half_SC.T, np.float64),
    )


def _fit(kernel: Kernel, among_SS: Floats, targets_S: Floats, spread: float) -> _Fit:
    root = np.linalg.cholesky(among_SS)
    whiten = np.linalg.inv(root)
    white = whiten @ targets_S
    freedom = PRIOR_FREEDOM + len(targets_S)
    squares = PRIOR_FREEDOM * spread**2 + float(white @ white)
    evidence = -np.log(np.diag(root)).sum() - freedom / 2.0 * np.log(squares)
    return _Fit(
        kernel=kernel,
        whiten_SS=np.asarray(whiten, np.float64),
        white_S=white,
        scale=squares / freedom,
        evidence=float(evidence),
    )


def _squares(a_RF: Floats) -> Floats:
    return np.asarray(np.einsum("rf,rf->r", a_RF, a_RF))
