"""Models, tables and columns for tests of the deciding half, each with one signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from autoconf_launch.autotuner.cost import LayoutColumns
from autoconf_launch.autotuner.space import (
    CandidateTable,
    Floats,
    Measurement,
    Outcome,
    Prediction,
    PredictionTable,
    Record,
    Trial,
)
from autoconf_launch.core import Architecture, Candidate, Layout, MemoryUse, Offload, Recompute

OneLayout = Layout | Candidate | Mapping[str, Any] | str
"""A layout, its words, or its fields that differ from the default, with ``extras`` for others."""

DEGREES = {
    "dp": "data_parallel",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "vpp": "virtual_pipeline",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "zero": "zero_stage",
    "micro": "micro_batch",
    "acc": "accumulation",
}
KINDS: dict[str, Callable[[str], Any]] = {"recompute": Recompute, "offload": Offload}
SPLITS = {"split": "pipeline_split", "micros": "micro_batch_split"}


def architecture(
    name: str = "small", *, layers: int = 6, hidden: int = 256, heads: int = 4, **others: Any
) -> Architecture:
    """A decoder; heads and inner width follow from the first numbers unless they are given."""
    sizes = {"kv_heads": heads, "head": hidden // heads, "ffn": 4 * hidden, "vocabulary": 4096}
    return Architecture(
        name=name, layers=layers, hidden=hidden, heads=heads, **{**sizes, **others}
    )


def table(*rows: OneLayout) -> CandidateTable:
    return CandidateTable.from_candidates([as_candidate(one) for one in rows])


def layouts(*rows: OneLayout) -> LayoutColumns:
    return LayoutColumns.from_table(table(*rows))


def as_candidate(one: OneLayout) -> Candidate:
    if isinstance(one, Candidate):
        return one
    if isinstance(one, Layout):
        return Candidate(layout=one)
    fields = _fields(one) if isinstance(one, str) else dict(one)
    extras = fields.pop("extras", ())
    return Candidate(layout=Layout(**fields), extras=extras)


def layout_of(words: str = "", **fields: Any) -> Layout:
    return Layout(**{**_fields(words), **fields})


def _fields(words: str) -> dict[str, Any]:
    """Fields of ``dp=8 zero=3 recompute=full split=3,1 sp``; all other words are extras."""
    fields: dict[str, Any] = {}
    for word in words.split():
        name, _, value = word.partition("=")
        if name == "sp":
            fields["sequence_parallel"] = True
        elif name in DEGREES:
            fields[DEGREES[name]] = int(value)
        elif name in KINDS:
            fields[name] = KINDS[name](value)
        elif name in SPLITS:
            fields[SPLITS[name]] = tuple(int(part) for part in value.split(","))
        else:
            fields["extras"] = (*fields.get("extras", ()), (name, yaml.safe_load(value)))
    return fields


def trial_of(number: int = 1, what: OneLayout = Layout(), name: str = "") -> Trial:  # noqa: B008
    candidate = as_candidate(what)
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
    step_s: Sequence[float] | Floats,
    peaks: Sequence[float] | Floats = (),
    *,
    band: float | None = None,
    **told: Any,
) -> PredictionTable:
    """Predictions of rows; without ``peaks`` their memory is not known."""
    return PredictionTable(
        peak_bytes_C=np.array(peaks if len(peaks) else [np.nan] * len(step_s), float),
        step_s_C=np.array(step_s, float),
        band=band,
        how="",
        **told,
    )
