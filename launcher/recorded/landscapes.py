"""Tables of measurements and journals as landscapes to replay. Not: running tuners on them.

A group is one model, GPU, number of GPUs and global batch, unless said otherwise. What else
differs inside a group is a knob: settings that are no part of a layout become extras.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost.model.roofline import least_step_s
from autoconf_launch.autotuner.landscape import Landscape, merged
from autoconf_launch.autotuner.table import CandidateTable, Floats, PredictionTable
from autoconf_launch.core import Candidate, ConfigError, KnobValue, nearest_known
from autoconf_launch.tuning_spaces.clusters import usable_bytes
from autoconf_launch.tuning_spaces.machines import known_accelerator

from ..planner.given_stages import stage_layers
from ..planner.measured_memory import peaks_bytes
from ..planner.measured_runs import predicted_parts, runs_of
from ..planner.mixed_machines import kinds_of, mixed_step_s
from ..planner.other_models import PhysicsOf, factors_of_others, shipped
from .journal_landscape import journal_landscapes
from .measurement_row import Measurement
from .measurements import MeasurementFile, read_measurements

BAND = 0.1
"""Relative error to expect of step times of models that the constants were not fitted on: their
mean absolute error is 7 to 9 % (``benchmarks/results/planner_leave_one_out.md``)."""

_HOW = "the planner's time model"
_FIELDS: dict[str, Callable[[Measurement], KnobValue]] = {
    "model": lambda one: one.shape.name,
    "gpu": lambda one: one.gpu,
    "n_gpus": lambda one: one.gpus,
    "gpus_per_node": lambda one: one.gpus_per_node,
    "gbs": lambda one: one.global_batch,
    "seq": lambda one: one.shape.seq,
    "layers": lambda one: one.shape.layers,
    "precision": lambda one: one.precision,
    "interconnect": lambda one: one.interconnect,
    "compile": lambda one: one.compiled,
    "async_tp": lambda one: one.async_tensor,
}
_LAYOUT_FIELDS: dict[str, Callable[[Measurement], KnobValue]] = {
    "tp": lambda one: one.layout.tensor_parallel,
    "pp": lambda one: one.layout.pipeline_parallel,
    "vpp": lambda one: one.layout.virtual_pipeline,
    "dp": lambda one: one.layout.data_parallel,
    "cp": lambda one: one.layout.context_parallel,
    "ep": lambda one: one.layout.expert_parallel,
    "mbs": lambda one: one.layout.micro_batch,
    "zero_dist_opt": lambda one: one.layout.zero_stage,
    "recompute": lambda one: one.layout.recompute.value,
    "sequence_parallel": lambda one: one.layout.sequence_parallel,
}
_COLUMNS = {**_FIELDS, **_LAYOUT_FIELDS}
GROUP_BY = ("model", "gpu", "n_gpus", "gbs")
"""What rows of a group share; columns of a table of measurements."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandscapeFile:
    """Groups of one file, and what was left out of it, line by line."""

    name: str
    groups: tuple[Landscape, ...]
    notes: tuple[str, ...]


def parse_group_by(text: str | None) -> tuple[str, ...]:
    """Names of ``--group-by model,gpu``.

    Raises:
        ConfigError: one of them is unknown.
    """
    names = GROUP_BY if text is None else tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in _COLUMNS:
            raise ConfigError(f"--group-by has {name!r}; {nearest_known(name, _COLUMNS)}")
    return names


def read_landscapes(
    path: Path,
    group_by: Sequence[str] = GROUP_BY,
    physics_of: PhysicsOf = shipped,
    *,
    others: bool = True,
) -> LandscapeFile:
    """Groups of a CSV table, or of a journal or the results folder that holds it.

    Args:
        path: the file; a journal ends in ``.jsonl``.
        group_by: what the rows of a group share.
        physics_of: constants to predict a model's rows with.
        others: whether predictions of a model are corrected by the other models of its table;
            not where groups mix models, since no group's own times may be seen.

    Raises:
        ConfigError: it cannot be read, or a line of it cannot be what it says.
    """
    if path.is_dir() or path.suffix == ".jsonl":
        found = journal_landscapes(path / "journal.jsonl" if path.is_dir() else path)
        return LandscapeFile(name=path.name, groups=found, notes=())
    file = read_measurements(path)
    _refuse(path, file)
    every = sorted((*file.measurements, *file.at_odds), key=lambda one: one.line)
    apart = others and "model" in group_by
    factors = factors_of_others(every, physics_of) if apart else np.ones(len(every))
    groups = []
    for key, numbers in _grouped(every, group_by).items():
        rows = [every[i] for i in numbers]
        if any(one.step_time_s is not None for one in rows):
            predictions = _predictions(rows, physics_of, factors[numbers])
            groups.append(_landscape(_name(group_by, key), rows, predictions))
    return LandscapeFile(name=path.stem, groups=tuple(groups), notes=tuple(_left_out(file)))


def _grouped(
    measurements: Sequence[Measurement], group_by: Sequence[str]
) -> dict[tuple[KnobValue, ...], list[int]]:
    """Numbers of the rows of each group."""
    grouped: dict[tuple[KnobValue, ...], list[int]] = {}
    for i, one in enumerate(measurements):
        grouped.setdefault(tuple(_COLUMNS[name](one) for name in group_by), []).append(i)
    return grouped


def _refuse(path: Path, file: MeasurementFile) -> None:
    """A tuner must not be judged by a time that cannot be."""
    for problem in file.bad:
        if problem.text.startswith("step_time_s"):
            raise ConfigError(f"{path}:{problem.line}: {problem.text}.")


def _left_out(file: MeasurementFile) -> list[str]:
    """A sentence on each line; repeats of which some failed are merged as all others are."""
    merged_lines = {one.line for one in file.at_odds}
    problems = sorted((*file.bad, *file.skipped), key=lambda problem: problem.line)
    return [
        f"{file.name}:{one.line}: left out: {one.text}."
        for one in problems
        if one.line not in merged_lines
    ]


def _name(group_by: Sequence[str], key: Sequence[KnobValue]) -> str:
    if tuple(group_by) == GROUP_BY:
        model, gpu, gpus, batch = key
        return f"{model}, {gpus} x {gpu}, global batch {batch}"
    return ", ".join(f"{name} {value}" for name, value in zip(group_by, key, strict=True))


def _landscape(name: str, rows: Sequence[Measurement], predictions: PredictionTable) -> Landscape:
    landscape = Landscape(
        name=name,
        table=CandidateTable.from_candidates(_candidates(rows)),
        step_s_C=np.array([np.nan if x.step_time_s is None else x.step_time_s for x in rows]),
        predictions=predictions,
    )
    return merged(landscape, [one.global_batch for one in rows])


def _candidates(rows: Sequence[Measurement]) -> list[Candidate]:
    values = {name: [of(one) for one in rows] for name, of in _FIELDS.items() if name != "gbs"}
    differ = [name for name, found in values.items() if len(set(found)) > 1]
    return [
        Candidate(
            layout=replace(
                one.layout, pipeline_split=stage_layers(one) if kinds_of(one) else None
            ),
            extras=tuple((name, values[name][i]) for name in differ),
        )
        for i, one in enumerate(rows)
    ]


def _predictions(
    rows: Sequence[Measurement], physics_of: PhysicsOf, factors: Floats
) -> PredictionTable:
    """What the planner says of each row, which it has not seen the time of."""
    step_s, least_s = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    parts: dict[str, Floats] = {}
    runs, _ = runs_of(rows)
    for run in runs:
        model = rows[run.rows[0]].shape.name
        found = predicted_parts(run, physics_of(model))
        step_s[list(run.rows)] = found.step_s_C
        least_s[list(run.rows)] = least_step_s(run.layouts, run.workload, run.machine)
        for name in type(found).__dataclass_fields__:
            column = parts.setdefault(name.removesuffix("_C"), np.full(len(rows), np.nan))
            column[list(run.rows)] = getattr(found, name)
    mixed_s = mixed_step_s(rows, physics_of(rows[0].shape.name))
    return PredictionTable(
        peak_bytes_C=peaks_bytes(rows, range(len(rows))),
        step_s_C=np.where(np.isnan(step_s), mixed_s, step_s * factors),
        band=BAND,
        how=_HOW if (factors == 1.0).all() else f"{_HOW}; corrected by other models",
        least_step_s_C=least_s,
        parts=tuple((name, seconds * factors) for name, seconds in parts.items()),
        limit_bytes=_limit_bytes(rows),
    )


def _limit_bytes(rows: Sequence[Measurement]) -> float | None:
    """Memory of the smallest GPU; None where one is unknown."""
    names = {kind.gpu for one in rows for kind in kinds_of(one)} or {one.gpu for one in rows}
    if any(known_accelerator(name) is None for name in names):
        return None
    return float(min(usable_bytes(name) for name in names))
