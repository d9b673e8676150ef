"""Tables of measurements and journals as landscapes to replay. Not: running tuners on them.

A group is one model, GPU, number of GPUs and global batch, unless said otherwise. What else
differs inside a group is a knob: settings that are no part of a layout become extras.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.landscape import Landscape, merged
from autoconf_launch.autotuner.table import CandidateTable, PredictionTable
from autoconf_launch.core import Candidate, ConfigError, KnobValue

from ..planner.given_stages import stage_layers
from ..planner.mixed_machines import kinds_of
from ..planner.other_models import PhysicsOf, shipped
from .grouping import FIELDS, GROUP_BY, key_of_row
from .journal_landscape import journal_landscapes
from .measurement_row import Row
from .measurements import MeasurementFile, read_measurements
from .predicted_rows import factors_of_rows, predicted, unpredicted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandscapeFile:
    """Groups of one file.

    Attributes:
        name: what tells the file from others.
        groups: those of which something was measured.
        notes: what was left out, line by line, and groups of which nothing ran.
        unpredicted: of how many rows nothing is predicted, and why.
    """

    name: str
    groups: tuple[Landscape, ...]
    notes: tuple[str, ...]
    unpredicted: tuple[str, ...] = ()


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
        journal = path / "journal.jsonl" if path.is_dir() else path
        found, left_out = journal_landscapes(journal, group_by)
        return LandscapeFile(name=str(path), groups=found, notes=left_out)
    file = read_measurements(path)
    _refuse(path, file)
    rows = (*file.measurements, *file.at_odds, *file.partial)
    every = sorted(rows, key=lambda one: (bool(one.lacks), one.line))
    apart = others and "model" in group_by
    factors = factors_of_rows(every, physics_of) if apart else np.ones(len(every))
    groups, notes, lacking = list[Landscape](), _left_out(file), Counter[str]()
    for key, numbers in _grouped(every, group_by).items():
        mine, name = [every[i] for i in numbers], _name(group_by, key)
        if all(one.step_time_s is None for one in mine):
            notes.append(f"{file.name}: left out: {name}: none of its rows has a time.")
            continue
        predictions = predicted(mine, physics_of, factors[numbers])
        lacking += unpredicted(mine, predictions.step_s_C)
        groups.append(_landscape(name, mine, predictions))
    return LandscapeFile(
        name=path.stem,
        groups=tuple(groups),
        notes=tuple(notes),
        unpredicted=tuple(_said(file.name, *one) for one in sorted(lacking.items())),
    )


def _grouped(
    rows: Sequence[Row], group_by: Sequence[str]
) -> dict[tuple[KnobValue, ...], list[int]]:
    """Numbers of the rows of each group."""
    grouped: dict[tuple[KnobValue, ...], list[int]] = {}
    for i, one in enumerate(rows):
        grouped.setdefault(key_of_row(one, group_by), []).append(i)
    return grouped


def _said(file: str, why: str, count: int) -> str:
    rows = "1 row" if count == 1 else f"{count} rows"
    return f"{file}: nothing is predicted of {rows} ({why}); what was measured of them counts."


def _refuse(path: Path, file: MeasurementFile) -> None:
    """A tuner must not be judged by a time that cannot be."""
    for problem in file.bad:
        if problem.text.startswith("step_time_s"):
            raise ConfigError(f"{path}:{problem.line}: {problem.text}.")


def _left_out(file: MeasurementFile) -> list[str]:
    """A sentence on each line; repeats of which some failed are merged as all others are."""
    used = {one.line for one in (*file.at_odds, *file.partial)}
    problems = sorted((*file.bad, *file.skipped), key=lambda problem: problem.line)
    return [
        f"{file.name}:{one.line}: left out: {one.text}."
        for one in problems
        if one.line not in used
    ]


def _name(group_by: Sequence[str], key: Sequence[KnobValue]) -> str:
    if tuple(group_by) == GROUP_BY:
        model, gpu, gpus, batch = key
        return f"{model}, {gpus} x {gpu}, global batch {batch}"
    return ", ".join(f"{name} {value}" for name, value in zip(group_by, key, strict=True))


def _landscape(name: str, rows: Sequence[Row], predictions: PredictionTable) -> Landscape:
    landscape = Landscape(
        name=name,
        table=CandidateTable.from_candidates(_candidates(rows)),
        step_s_C=np.array([np.nan if x.step_time_s is None else x.step_time_s for x in rows]),
        predictions=predictions,
    )
    return merged(landscape, [one.global_batch for one in rows])


def _candidates(rows: Sequence[Row]) -> list[Candidate]:
    values = {name: [of(one) for one in rows] for name, of in FIELDS.items() if name != "gbs"}
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
