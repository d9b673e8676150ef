"""Models, tables and columns for tests of the deciding half, each with one signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns
from autoconf_launch.autotuner.space import (
    CandidateTable,
    Measurement,
    Outcome,
    Prediction,
    PredictionTable,
    Record,
    Trial,
)
from autoconf_launch.core import Architecture, Candidate, Layout, MemoryUse

OneLayout = Layout | Mapping[str, Any]
"""A layout, or its fields that differ from the default, with ``extras`` for other knobs."""


def architecture(
    name: str = "small", *, layers: int = 6, hidden: int = 256, heads: int = 4, **others: Any
) -> Architecture:
    """A decoder; heads and inner width follow from the first numbers unless they are given."""
    sizes = {"kv_heads": heads, "head": hidden // heads, "ffn": 4 * hidden, "vocabulary": 4096}
    return Architecture(
        name=name, layers=layers, hidden=hidden, heads=heads, **{**sizes, **others}
    )


def table(*rows: OneLayout) -> CandidateTable:
    return CandidateTable.from_candidates([_candidate(one) for one in rows])


def layouts(*rows: OneLayout) -> LayoutColumns:
    return LayoutColumns.from_table(table(*rows))


def _candidate(one: OneLayout) -> Candidate:
    if isinstance(one, Layout):
        return Candidate(layout=one)
    fields = dict(one)
    extras = fields.pop("extras", ())
    return Candidate(layout=Layout(**fields), extras=extras)


def trial_of(number: int = 1, what: OneLayout | Candidate = Layout(), name: str = "") -> Trial:  # noqa: B008
    candidate = what if isinstance(what, Candidate) else _candidate(what)
    return Trial(number=number, name=name or f"t{number}", candidate=candidate, space="z0")


def measurement(*step_s: float, samples: int = 1, peak: int | None = None) -> Measurement:
    """Steps of a launch; ``peak`` is of 100 bytes."""
    memory = None
    if peak is not None:
        memory = MemoryUse(free_before_bytes=100, peak_bytes=peak, limit_bytes=100)
    return Measurement(step_s=step_s, samples_per_step=samples, world_size=1, memory=memory)


def launch(
    trial: Trial,
    outcome: Outcome,
    predicted_s: float | None = None,
    *,
    wall_s: float = 1.0,
    **told: Any,
) -> Record:
    """A record; ``told`` are other fields of its prediction."""
    fields = {"peak_bytes": None, "band": None, "how": "", **told}
    prediction = Prediction(step_s=predicted_s, **fields)
    return Record(trial=trial, outcome=outcome, wall_s=wall_s, prediction=prediction)


def prediction_table(
    step_s: Sequence[float], peaks: Sequence[float] = (), *, band: float | None = None, **told: Any
) -> PredictionTable:
    """Predictions of rows; without ``peaks`` their memory is not known."""
    return PredictionTable(
        peak_bytes_C=np.array(peaks or [np.nan] * len(step_s), float),
        step_s_C=np.array(step_s, float),
        band=band,
        how="",
        **told,
    )
