"""Training codes with habits and features, and pipeline schedules: rows of two JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autoconf_launch.autotuner.cost import AUTO_TRAINER, Abilities, TrainerHabits
from autoconf_launch.core import (
    ConfigError,
    Dispatcher,
    Framework,
    Loss,
    Offload,
    PipelineSchedule,
    Precision,
    Software,
    States,
    UpdatedWeights,
    nearest_known,
)


def _read(name: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name(name).read_text(encoding="utf-8")
    )
    return rows


def _read_rows() -> Mapping[str, TrainerHabits]:
    rows = _read("trainers.json")
    return MappingProxyType({name: _habits(_whole_row(rows, name)) for name in rows})


def _whole_row(rows: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    row = dict(rows[name])
    like = row.pop("like", None)
    return row if like is None else {**_whole_row(rows, like), **row}


def _habits(row: Mapping[str, Any]) -> TrainerHabits:
    zero = {int(stage): words for stage, words in row["zero"].items()}
    software = dict(row.get("software", {}))
    for name, kind in (("updated_weights", UpdatedWeights), ("dispatcher", Dispatcher)):
        if name in software:
            software[name] = kind(software[name])
    return TrainerHabits(
        software=Software(
            framework=Framework(row["framework"]),
            states=States(row["states"][0]),
            loss=Loss(row["losses"][0]),
            **software,
        ),
        sequence_parallel=row.get("sequence_parallel", False),
        tf32=row.get("tf32", False),
        checked=frozenset(row.get("checked", ())),
        source=row["source"],
        abilities=Abilities(
            parallel=frozenset(row.get("parallel", ())),
            zero=tuple(zero.items()),
            zero_in_pipelines=frozenset(row.get("zero_in_pipelines", zero)),
            zero_beside_tensor=frozenset(row.get("zero_beside_tensor", zero)),
            offload=frozenset(map(Offload, row.get("offload", ("none",)))),
            recompute=frozenset(row["recompute"]),
            precisions=frozenset(map(Precision, row["precisions"])),
            eight_bit_states=row.get("eight_bit_states", False),
            adapters=row.get("adapters", False),
            states=frozenset(map(States, row["states"])),
            losses=frozenset(map(Loss, row["losses"])),
            in_backward=row.get("in_backward", False),
            offload_alone=row.get("offload_alone", False),
            schedules=frozenset(row.get("schedules", ("1f1b",))),
        ),
    )


SCHEDULES = MappingProxyType(
    {name: PipelineSchedule(name=name, **row) for name, row in _read("schedules.json").items()}
)
"""Pipeline schedules by name; ``1f1b`` interleaves the virtual stages of a layout."""
TRAINERS = _read_rows()
"""Training codes by name; those which represent others come first."""
TRAINER_NAMES = (AUTO_TRAINER, *TRAINERS)
CHECKED = MappingProxyType({name: habits.checked for name, habits in TRAINERS.items()})
"""Architectures of GPUs on which published runs of each were predicted."""


def trainer(name: str) -> TrainerHabits:
    """The habits of a code.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in TRAINERS:
        raise ConfigError(f"Trainer {name!r} is unknown; {nearest_known(name, TRAINERS)}")
    return TRAINERS[name]
