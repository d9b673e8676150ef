"""What other models of a table say of a model's steps. Not: how errors go together (calibration).

A table is taken for one machine and its software, on which errors of the time model repeat: a
layer of the same kernels waits for the same host. Rows of a model are never used for that model,
nor rows of the same shape under another name. Repeats count once, by their median.
Shapes: R = rows that are predicted, M = measured settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autoconf_launch.autotuner.cost.model.calibration import calibrated_s
from autoconf_launch.autotuner.cost.model.physics import DEFAULT_PHYSICS, Physics
from autoconf_launch.autotuner.cost.model.step import concatenated
from autoconf_launch.autotuner.table import Floats, Ints

from ..recorded.measurement_row import Measurement, Shape
from .measured_runs import predicted_parts, runs_of
from .validation import likeness_of

PhysicsOf = Callable[[str], Physics]
"""Constants to predict a model with."""


def shipped(model: str) -> Physics:
    """The same constants for every model."""
    return DEFAULT_PHYSICS


def factors_of_others(
    measurements: Sequence[Measurement], physics_of: PhysicsOf = shipped
) -> Floats:
    """By how much each row's predicted seconds are to be multiplied.

    Returns:
        1 where no other model has a time, or where the row itself is not predicted.
    """
    factors = np.ones(len(measurements))
    runs, _ = runs_of(measurements)
    rows = np.array([i for run in runs for i in run.rows], np.int64)
    if not len(rows):
        return factors
    rows_R = [measurements[i] for i in rows]
    alike, (settings_M, measured_s_M) = likeness_of(runs), _settings(rows_R)
    for name in dict.fromkeys(one.shape.name for one in rows_R):
        bodies = {_body(one.shape) for one in rows_R if one.shape.name == name}
        is_own_R = np.array([one.shape.name == name for one in rows_R])
        other_M = np.array([_body(rows_R[i].shape) not in bodies for i in settings_M], np.bool_)
        if other_M.any():
            physics = physics_of(name)
            plain_s = concatenated([predicted_parts(run, physics) for run in runs]).step_s_C
            found_s = calibrated_s(plain_s, alike, settings_M[other_M], measured_s_M[other_M])
            factors[rows[is_own_R]] = (found_s / plain_s)[is_own_R]
    return factors


def _settings(rows: Sequence[Measurement]) -> tuple[Ints, Floats]:
    """The first row of each setting that ran, and the median seconds of its repeats."""
    repeats: dict[tuple[object, ...], list[int]] = {}
    for i, one in enumerate(rows):
        if one.step_time_s is not None:
            repeats.setdefault(one.settings, []).append(i)
    median_s = [
        np.median([rows[i].step_time_s or np.nan for i in same]) for same in repeats.values()
    ]
    first = np.array([same[0] for same in repeats.values()], np.int64)
    return first, np.array(median_s, np.float64)


def _body(shape: Shape) -> tuple[int, ...]:
    """What a model is known by, whatever it is called and whatever it is trained on."""
    return shape.layers, shape.hidden, shape.heads, shape.ffn
