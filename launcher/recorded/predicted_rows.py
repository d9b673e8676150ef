"""What the planner says of a table's rows, and why of some nothing. Not: reading the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from autoconf_launch.autotuner.cost.model.roofline import least_step_s
from autoconf_launch.autotuner.table import Floats, PredictionTable
from autoconf_launch.tuning_spaces.clusters import usable_bytes
from autoconf_launch.tuning_spaces.machines import known_accelerator

from ..planner.measured_memory import peaks_bytes
from ..planner.measured_runs import predicted_parts, runs_of
from ..planner.mixed_machines import kinds_of, mixed_step_s
from ..planner.other_models import PhysicsOf, factors_of_others
from .measurement_row import Measurement, Row

BAND = 0.1
"""Relative error to expect of step times of models that the constants were not fitted on: their
mean absolute error is 7 to 9 % (``benchmarks/results/planner_leave_one_out.md``)."""

_HOW = "the planner's time model"
_UNKNOWN = "unknown GPU"
_NO_ANSWER = "the time model has no answer"


def factors_of_rows(rows: Sequence[Row], physics_of: PhysicsOf) -> Floats:
    """By how much other models correct each row; 1 for those that cannot be predicted."""
    factors = np.ones(len(rows))
    numbers = [i for i, one in enumerate(rows) if isinstance(one, Measurement)]
    whole = [one for one in rows if isinstance(one, Measurement)]
    factors[numbers] = factors_of_others(whole, physics_of)
    return factors


def predicted(rows: Sequence[Row], physics_of: PhysicsOf, factors: Floats) -> PredictionTable:
    """What the planner says of each row, which it has not seen the time of; NaN for the rest."""
    count = len(rows)
    peaks, step_s, least_s = (np.full(count, np.nan) for _ in range(3))
    parts: dict[str, Floats] = {}
    numbers = np.array([i for i, x in enumerate(rows) if isinstance(x, Measurement)], np.int64)
    whole = [one for one in rows if isinstance(one, Measurement)]
    for run in runs_of(whole)[0]:
        mine = numbers[list(run.rows)]
        found = predicted_parts(run, physics_of(whole[run.rows[0]].shape.name))
        step_s[mine] = found.step_s_C
        least_s[mine] = least_step_s(run.layouts, run.workload, run.machine)
        for name in type(found).__dataclass_fields__:
            column = parts.setdefault(name.removesuffix("_C"), np.full(count, np.nan))
            column[mine] = getattr(found, name)
    mixed_s = np.full(count, np.nan)
    if whole:
        mixed_s[numbers] = mixed_step_s(whole, physics_of(whole[0].shape.name))
        peaks[numbers] = peaks_bytes(whole, range(len(whole)))
    return PredictionTable(
        peak_bytes_C=peaks,
        step_s_C=np.where(np.isnan(step_s), mixed_s, step_s * factors),
        band=BAND,
        how=_HOW if (factors == 1.0).all() else f"{_HOW}; corrected by other models",
        least_step_s_C=least_s,
        parts=tuple((name, seconds * factors) for name, seconds in parts.items()),
        limit_bytes=_limit_bytes(rows),
    )


def unpredicted(rows: Sequence[Row], step_s: Floats) -> Counter[str]:
    """How many rows have no predicted time, by the reason."""
    whole = [one for one in rows if isinstance(one, Measurement)]
    _, reasons = runs_of(whole)
    why = {one.line: reasons[i] for i, one in enumerate(whole) if i in reasons}
    lacking = (one for one, seconds in zip(rows, step_s, strict=True) if np.isnan(seconds))
    return Counter(_reason(one, why.get(one.line, _NO_ANSWER)) for one in lacking)


def _reason(one: Row, why: str) -> str:
    if one.lacks:
        return f"no {', '.join(one.lacks)}"
    return f"{why} {one.gpu!r}" if why == _UNKNOWN else why


def _limit_bytes(rows: Sequence[Row]) -> float | None:
    """Memory of the smallest GPU; None where one is unknown."""
    names = {kind.gpu for one in rows for kind in kinds_of(one)} or {one.gpu for one in rows}
    if any(known_accelerator(name) is None for name in names):
        return None
    return float(min(usable_bytes(name) for name in names))
