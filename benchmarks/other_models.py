"""Correction of a model's predicted times by the measured times of the other models of its table.

A table counts as one machine and its software, on which errors of the time model repeat. Rows of
a model are never used for that model, nor rows of the same shape under another name.
Shapes: R = rows that are predicted, M = measured settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS, Physics
from autoconf_launch.autotuner.planner import calibration_factors
from autoconf_launch.autotuner.space import Floats, Ints
from autoconf_launch.launcher.measurements.measured_runs import runs_of
from autoconf_launch.launcher.measurements.row import PublishedRow
from autoconf_launch.launcher.measurements.row_shape import RowShape
from autoconf_launch.launcher.measurements.validation import likeness_of, repeat_key, step_times_s

PhysicsOf = Callable[[str], Physics]
"""Constants to predict a model with."""


def shipped_physics(model: str) -> Physics:
    """Our own constants, whatever the model."""
    return DEFAULT_PHYSICS


def factors_of_others(
    measurements: Sequence[PublishedRow], physics_of: PhysicsOf = shipped_physics
) -> Floats:
    """Factors by which each row's predicted seconds are multiplied.

    Returns:
        1 if no other model has a time, or if the row itself is not predicted.
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
            found = calibration_factors(
                step_times_s(runs, physics), alike, settings_M[other_M], measured_s_M[other_M]
            )
            factors[rows[is_own_R]] = found[is_own_R]
    return factors


def _settings(rows: Sequence[PublishedRow]) -> tuple[Ints, Floats]:
    """The first row of each setting that ran, and the median seconds of its repeats."""
    repeats: dict[tuple[object, ...], list[int]] = {}
    for i, one in enumerate(rows):
        if one.step_time_s is not None:
            repeats.setdefault(repeat_key(one), []).append(i)
    median_s = [
        np.median([rows[i].step_time_s or np.nan for i in same]) for same in repeats.values()
    ]
    first = np.array([same[0] for same in repeats.values()], np.int64)
    return first, np.array(median_s, np.float64)


def _body(shape: RowShape) -> tuple[int, ...]:
    """Sizes that identify a model, whatever its name and its training data."""
    return shape.layers, shape.hidden, shape.heads, shape.ffn
