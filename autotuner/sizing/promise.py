"""In which order a search runs the points of a space. Not: which points, nor their predictions.

Few runs are to find the fastest although predictions are wrong, and those of like layouts are
wrong together. So each point is set beside the one that speaks most against it: where its like
is 5 % faster it is hardly the better one, where another kind of layout is it may well be.
Shapes: P = points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Architecture

from ..cost import NOISE, SPREADS, LayoutColumns, likeness
from ..measurement import chance_below
from ..planner import STEP_TIME_BAND, UNMEASURED_BAND, Points, Training
from ..space import Floats, Ints

_MOST = 1000
"""Points that are set beside each other; the others follow as the planner has them."""
_NINE_OF_TEN = 1.645
"""Standard deviations within which nine of ten normal numbers lie."""
_ROUTING_SPREAD = float(np.sqrt(UNMEASURED_BAND**2 - STEP_TIME_BAND**2)) / _NINE_OF_TEN
"""Error of sending tokens to experts on other ranks, which no table has."""


def run_order(found: Points, training: Training) -> Ints:
    """Numbers of the points in the order in which they are run.

    The planner's first is the first, then come those that are likeliest to be the fastest of all
    (``plausible_order``). Layouts whose tensor-parallel ranks stand on several nodes come after
    all others, unless the first is one: Narayanan et al. 2021 (section 3.2, takeaway 1) and
    NVIDIA's grids keep them within a node, and the one that the published tables have is twice as
    slow as eight ranks in a node (vTrain, 18.4B on 256 GPUs).
    """
    if found.rows is None:
        return np.zeros(0, np.int64)
    crosses_P = found.rows.tensor_C > training.machine.gpus_per_node
    if crosses_P[0]:
        crosses_P[:] = False
    parts = [np.flatnonzero(~crosses_P), np.flatnonzero(crosses_P)]
    return np.concatenate([_part(found, part, training.workload.architecture) for part in parts])


def _part(found: Points, numbers: Ints, architecture: Architecture) -> Ints:
    """Some points, given as the planner has them, in their order."""
    if found.rows is None or not len(numbers):
        return numbers
    few = numbers[:_MOST]
    alike = error_covariance(found.rows.take(few), architecture)
    order = plausible_order(np.log(found.step_s_P[few]), found.chance_P[few], alike)
    return np.concatenate([few[order], numbers[_MOST:]])


def plausible_order(log_s_P: Floats, chance_P: Floats, covariance_PP: Floats) -> Ints:
    """Numbers of points that are given as the planner has them, its first one first.

    A point is worth a run by the chance that it fits and then is faster than that other one which
    it is least likely to be faster than; one that may not fit speaks the less against it.

    Args:
        log_s_P: logarithm of the predicted seconds.
        chance_P: to fit into memory.
        covariance_PP: of the errors of ``log_s_P``.
    """
    own_P = np.diag(covariance_PP)
    apart_PP = own_P[:, None] + own_P[None, :] - 2.0 * covariance_PP
    np.fill_diagonal(apart_PP, 1.0)
    slower_PP = (log_s_P[:, None] - log_s_P[None, :]) / np.sqrt(apart_PP)
    np.fill_diagonal(slower_PP, -np.inf)
    stands_PP = 1.0 - chance_P[None, :] * (1.0 - chance_below(-slower_PP))
    worth_P = chance_P * stands_PP.min(axis=1)
    worth_P[0] = np.inf
    return np.argsort(-worth_P, kind="stable")


def error_covariance(rows: LayoutColumns, architecture: Architecture) -> Floats:
    """Covariance of the log errors of one model's predicted times on one machine.

    The spreads are those of the published tables (``cost.model.calibration``).
    """
    count = len(rows)
    same, shapes = np.zeros(count, np.int64), np.full((count, 2), float(architecture.hidden))
    alike = likeness(rows, software=same, model=rows.expert_C, shapes=shapes)
    shared = np.tensordot(np.square(SPREADS), alike.covariances(np.arange(count)), axes=1)
    if architecture.experts is not None:
        travel = rows.expert_C > 1
        shared += _ROUTING_SPREAD**2 * (travel[:, None] == travel[None, :])
    return np.asarray(shared + NOISE**2 * np.eye(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Predefined:
    """A search by the name that ``search_config=`` takes, such as ``gpt3/5b``."""

    name: str
    family: str
    size_b: float


def nearest_predefined(known: Sequence[Predefined], family: str, size_b: float) -> str | None:
    """The name of the family's nearest size by its ratio; None where the family has none.

    Of equal ones the first by name.
    """
    own = sorted((one for one in known if one.family == family), key=lambda one: one.name)
    if not own or size_b <= 0:
        return None
    return min(own, key=lambda one: abs(math.log(one.size_b / size_b))).name
