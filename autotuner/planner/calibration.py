"""Predictions corrected by a few measurements of the user. Not: the constants of ``physics``.

The logarithm of measured over predicted time is a sum of effects, each normal around 0 with its
own spread: the software, each tensor-parallel degree of a model, each size of micro-batch under a
degree, layers of the same kernels (equal width besides, any number of them), runs over several
nodes, and a smooth effect of layout and width, so that layouts similar to measured layouts move
with them. Models that are measured on the same machine share all but the second. Few measurements
move predictions little; the most probable correction is a Gaussian process (Rasmussen and Williams
2006, equation 2.25), and its remaining variance shows which other measurement narrows a prediction
most (equation 2.26). ``benchmarks/planner_calibration.py`` finds the spreads (the same book,
equation 2.30).
Shapes: R = rows, M = measured rows, E = effects, L = kinds of levels, D = directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cost import LayoutColumns
from ..space import Bools, Floats, Ints

EFFECTS = (
    *("software", "degree of a model", "micro-batch", "same kernels"),
    *("several nodes", "near layouts"),
)
SPREADS = (0.033, 0.057, 0.031, 0.031, 0.065, 0.063)
"""Spread of each effect: the most probable ones on all published tables together."""
NOISE = 0.022
"""Unexplained spread, including two runs of one setting; from the same fit."""
_SEVERAL_NODES = EFFECTS.index("several nodes")
_LEAST_SCALE = 0.25
LARGEST_ERROR = 0.35
"""Larger errors have causes that other layouts need not share."""
_FAR = 100.0
NINE_OF_TEN = 1.645
"""Standard deviations within which nine of ten normal numbers are."""
SURPRISE = 3.0
"""Spreads beyond which a measurement contradicts what the effects allow."""
SMALLEST_GROUP = 5
"""Settings of one model, GPU, number of GPUs and global batch that a rank correlation needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Likeness:
    """Effects that rows share.

    Attributes:
        levels_RL: numbers that are equal if rows share an effect, a column for each kind.
        are_over_nodes_R: rows whose ranks are on more than one node.
        places_RD: place of a layout; 1 apart is a factor of 2 in a degree or a size.
    """

    levels_RL: Ints
    are_over_nodes_R: Bools
    places_RD: Floats

    def covariances(self, rows_M: Ints) -> Floats:
        """Each effect's covariance, at a spread of 1, of all rows and some of them: (E, R, M)."""
        levels = [column[:, None] == column[None, rows_M] for column in self.levels_RL.T]
        over_nodes = self.are_over_nodes_R[:, None] & self.are_over_nodes_R[None, rows_M]
        levels.append(levels[0] & over_nodes)
        places = self.places_RD
        apart = places[:, None, :] - places[None, rows_M, :]
        return np.stack([*levels, np.exp(-0.5 * np.square(apart).sum(axis=2))]).astype(np.float64)

    def rows(self, numbers: Ints) -> Likeness:
        """Some rows, in this order."""
        return Likeness(
            levels_RL=self.levels_RL[numbers],
            are_over_nodes_R=self.are_over_nodes_R[numbers],
            places_RD=self.places_RD[numbers],
        )


def calibration_factors(
    predicted_s_R: Floats, likeness: Likeness, measured_rows: Ints, measured_s_M: Floats
) -> Floats:
    """Calibration for ``estimate``, from the seconds of some rows; 1 without any."""
    missing = error_logs(predicted_s_R[measured_rows], measured_s_M)
    return corrections(likeness, measured_rows, missing).factor_R


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Corrections:
    """Corrections of all rows by measured rows.

    Attributes:
        factor_R: factor for predicted seconds; 1 without measured rows.
        before_R, left_R: spread of the logarithm of the error, without and with them.
    """

    factor_R: Floats
    before_R: Floats
    left_R: Floats


def corrections(
    likeness: Likeness,
    measured_rows: Ints,
    logs_M: Floats,
    scale: float = 1.0,
    noise: float = NOISE,
) -> Corrections:
    """As :class:`ErrorBelief`, without the covariance of rows that were not measured.

    Args:
        likeness: of all rows.
        measured_rows: numbers of those measured.
        logs_M: of their measured over predicted seconds.
        scale: by how much all effects' variances are larger than in the published tables.
        noise: as :class:`ErrorBelief` has it.
    """
    alike_RM = _covariance(likeness, measured_rows, scale)
    among_MM = alike_RM[measured_rows] + noise**2 * np.eye(len(measured_rows))
    gain_RM = np.linalg.solve(among_MM, alike_RM.T).T
    squares = np.square(SPREADS)
    nodes_R = np.where(likeness.are_over_nodes_R, squares[_SEVERAL_NODES], 0.0)
    before_R = scale * (squares.sum() - squares[_SEVERAL_NODES] + nodes_R) + noise**2
    return Corrections(
        factor_R=np.exp(gain_RM @ logs_M),
        before_R=np.sqrt(before_R),
        left_R=np.sqrt(before_R - (alike_RM * gain_RM).sum(axis=1)),
    )


def _covariance(likeness: Likeness, rows_M: Ints, scale: float) -> Floats:
    return scale * np.tensordot(np.square(SPREADS), likeness.covariances(rows_M), axes=1)


def effect_scale(spread: float, *, over_nodes: bool) -> float:
    """Variances of effects that give a row its spread, over the published tables' variances.

    Args:
        spread: spread of the row's error, noise included.
        over_nodes: whether its ranks are on several nodes.
    """
    seen = np.square(SPREADS).sum() - (0 if over_nodes else SPREADS[_SEVERAL_NODES] ** 2)
    return max(float((spread**2 - NOISE**2) / seen), _LEAST_SCALE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErrorBelief:
    """Logarithms of measured over predicted seconds, as far as they are known.

    Attributes:
        mean_R: the most probable ones.
        covariance_RR: of their errors, without ``noise``.
        noise: spread that no effect explains, two runs of one setting included.
    """

    mean_R: Floats
    covariance_RR: Floats
    noise: float = NOISE

    @staticmethod
    def before(likeness: Likeness, scale: float = 1.0, noise: float = NOISE) -> ErrorBelief:
        """Belief before any measurement; ``scale`` as above."""
        count = len(likeness.levels_RL)
        shared_RR = _covariance(likeness, np.arange(count), scale)
        return ErrorBelief(mean_R=np.zeros(count), covariance_RR=shared_RR, noise=noise)

    def spread(self, row: int) -> float:
        """Standard deviation of the measured error in a run of a row."""
        return float(np.sqrt(self.covariance_RR[row, row] + self.noise**2))

    def after(self, rows_M: Ints, logs_M: Floats) -> ErrorBelief:
        """Belief after some rows were measured (equations 2.25 and 2.26).

        Args:
            rows_M: measured rows, each at most once.
            logs_M: logarithms of measured over predicted seconds.
        """
        with_rows_RM = self.covariance_RR[:, rows_M]
        gain_RM = np.linalg.solve(self._among(rows_M), with_rows_RM.T).T
        return ErrorBelief(
            mean_R=self.mean_R + gain_RM @ (logs_M - self.mean_R[rows_M]),
            covariance_RR=self.covariance_RR - gain_RM @ with_rows_RM.T,
            noise=self.noise,
        )

    def surprises(self, rows_M: Ints, logs_M: Floats) -> Floats:
        """Distance of each measured error from its prediction by all the others, in spreads.

        Equation 5.12 of the same book, left-one-out prediction.
        """
        inverse_MM = np.linalg.inv(self._among(rows_M))
        solved_M = inverse_MM @ (logs_M - self.mean_R[rows_M])
        return np.asarray(solved_M / np.sqrt(np.diag(inverse_MM)))

    def _among(self, rows_M: Ints) -> Floats:
        among_MM = self.covariance_RR[np.ix_(rows_M, rows_M)]
        return np.asarray(among_MM + self.noise**2 * np.eye(len(rows_M)))


def error_logs(predicted_s_M: Floats, measured_s_M: Floats) -> Floats:
    """Logarithm of measured over predicted, cut off at ``LARGEST_ERROR``."""
    logs_M = np.log(measured_s_M / predicted_s_M)
    return np.asarray(logs_M.clip(-LARGEST_ERROR, LARGEST_ERROR))


def likeness(
    layouts: LayoutColumns, software: Ints, model: Ints, shapes: Floats, gpus_per_node: Ints
) -> Likeness:
    """Effects that rows share.

    ``software``: equal for rows of one GPU, precision and training code. ``shapes``: hidden width
    and tokens of a sample of each row's model, as two columns.
    """
    sharded = (layouts.zero_stage_C >= 3).astype(np.int64)
    width, tokens = shapes.T
    mine = (software, sharded, layouts.recompute_C)
    degree = (layouts.tensor_C, layouts.context_C, sharded)
    micro = (*mine, *degree, layouts.micro_batch_C, tokens)
    levels = [_number_rows(keys) for keys in (mine, (model, *degree), micro, (*micro, width))]
    sizes = (layouts.tensor_C, layouts.pipeline_C, layouts.micro_batch_C, width)
    places = [*(np.log2(size) for size in sizes), _FAR * sharded]
    ranks = layouts.shards_C * layouts.tensor_C * layouts.pipeline_C
    return Likeness(
        levels_RL=np.column_stack(levels),
        are_over_nodes_R=ranks > gpus_per_node,
        places_RD=np.column_stack(places),
    )


def _number_rows(keys: tuple[Ints | Floats, ...]) -> Ints:
    """A number for each row, equal if all keys are equal."""
    table = np.column_stack(keys).astype(np.int64)
    return np.asarray(np.unique(table, axis=0, return_inverse=True)[1].ravel())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAccuracy:
    """Errors in percent, Spearman's correlation between -1 and 1; None without data.

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
    """Correlation of ranks, equal values sharing theirs; 0 if all of one side are equal."""
    a, b = _ranks(a_R), _ranks(b_R)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else 0.0


def top1_regret(predicted_R: Floats, measured_R: Floats) -> float:
    """Share by which the predicted best takes longer than the true best."""
    return float(measured_R[np.argmin(predicted_R)] / measured_R.min()) - 1.0


def _ranks(values_R: Floats) -> Floats:
    _, which, counts = np.unique(values_R, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[which], np.float64)
