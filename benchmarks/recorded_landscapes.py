"""Tables of measurements and journals as landscapes to replay.

A group is one model, GPU, number of GPUs and global batch, unless said otherwise. What else
differs inside a group is a knob: settings that do not belong to a layout become extras.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from other_models import PhysicsOf, factors_of_others, shipped_physics
from tuner_walk import Landscape, merge_repeats

from autoconf_launch.autotuner.cost import estimate
from autoconf_launch.autotuner.space import (
    CandidateTable,
    Floats,
    PredictionTable,
    Record,
    is_out_of_memory,
)
from autoconf_launch.core import Candidate, ConfigError, KnobValue, Layout, nearest_known, plural
from autoconf_launch.launcher.measurements.measured_runs import (
    kinds_of,
    mixed_step_s,
    noted_stage_layers,
    peaks_bytes,
    runs_of,
    with_recompute,
)
from autoconf_launch.launcher.measurements.row import (
    MeasurementFile,
    PublishedRow,
    read_measurements,
)
from autoconf_launch.launcher.measurements.validation import suspected_unit
from autoconf_launch.launcher.results import JournalContents, JournalLineError, read_journal
from autoconf_launch.tuning_spaces import known_accelerator, usable_bytes

_USUAL_FOLDER = "autotuning_results"
"""The default results folder, and what the names of those moved aside begin with."""


GROUP_BY = ("model", "gpu", "n_gpus", "gbs")
"""Fields that rows of a group share by default."""

FIELDS: dict[str, Callable[[PublishedRow], KnobValue]] = {
    "model": lambda one: one.shape.name,
    "gpu": lambda one: one.gpu,
    "n_gpus": lambda one: one.gpus,
    "gpus_per_node": lambda one: one.gpus_per_node,
    "gbs": lambda one: one.global_batch,
    "seq": lambda one: one.shape.seq,
    "layers": lambda one: one.shape.layers,
    "precision": lambda one: one.precision.value,
    "interconnect": lambda one: one.interconnect,
    "compile": lambda one: one.compiled,
    "async_tp": lambda one: one.async_tensor,
}
"""Columns of a table that do not belong to a layout."""

_LAYOUT_FIELDS: dict[str, Callable[[Layout], KnobValue]] = {
    "tp": lambda layout: layout.tensor_parallel,
    "pp": lambda layout: layout.pipeline_parallel,
    "vpp": lambda layout: layout.virtual_pipeline,
    "dp": lambda layout: layout.data_parallel,
    "cp": lambda layout: layout.context_parallel,
    "ep": lambda layout: layout.expert_parallel,
    "mbs": lambda layout: layout.micro_batch,
    "zero_dist_opt": lambda layout: layout.zero_stage,
    "recompute": lambda layout: layout.recompute.value,
    "sequence_parallel": lambda layout: layout.sequence_parallel,
}
_OF_A_JOURNAL: dict[str, Callable[[Layout], KnobValue]] = {
    "n_gpus": lambda layout: layout.world_size,
    "gbs": lambda layout: layout.global_batch,
    **_LAYOUT_FIELDS,
}
_COLUMNS = (*FIELDS, *_LAYOUT_FIELDS)


def parse_group_by(text: str | None) -> tuple[str, ...]:
    """Names of ``--group-by model,gpu``.

    Raises:
        ConfigError: a name is unknown.
    """
    names = GROUP_BY if text is None else tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in _COLUMNS:
            raise ConfigError(f"--group-by has {name!r}; {nearest_known(name, _COLUMNS)}")
    return names


def key_of_row(one: PublishedRow, names: Sequence[str]) -> tuple[KnobValue, ...]:
    """Grouping key of a row of a table."""
    return tuple(
        FIELDS[name](one) if name in FIELDS else _LAYOUT_FIELDS[name](one.layout) for name in names
    )


def key_of_candidate(one: Candidate, names: Sequence[str]) -> tuple[KnobValue, ...]:
    """Grouping key of a trial of a journal; None for values that all its trials share."""
    extras = dict(one.extras)
    return tuple(
        _OF_A_JOURNAL[name](one.layout) if name in _OF_A_JOURNAL else extras.get(name)
        for name in names
    )


def journal_landscapes(
    path: Path, group_by: Sequence[str] = GROUP_BY
) -> tuple[tuple[Landscape, ...], tuple[str, ...]]:
    """Groups, and a sentence on each of which nothing ran.

    A journal is of one model and one machine, so that columns of these are equal in all of it.
    Trials that failed for another reason than memory are skipped.

    Raises:
        ConfigError: there is no journal, a line of it cannot be read, or it measured nothing.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is not a journal; give a journal.jsonl or the folder of one.")
    contents = _read(path)
    grouped: dict[tuple[KnobValue, ...], list[Record]] = {}
    for record in (*contents.history, *contents.repeats, *contents.finals):
        if record.measurement or is_out_of_memory(record):
            key = key_of_candidate(record.trial.candidate, group_by)
            grouped.setdefault(key, []).append(record)
    found, left_out = list[Landscape](), list[str]()
    for key, records in sorted(grouped.items(), key=lambda one: _order(one[0])):
        name = _journal_landscape_name(path, contents, group_by, key)
        if any(record.measurement for record in records):
            found.append(_journal_landscape_landscape(name, records))
        else:
            left_out.append(f"{path}: skipped: {name}: none of its trials ran.")
    if not found:
        raise ConfigError(f"{path} has no measured trial, so there is nothing to search in.")
    return tuple(found), tuple(left_out)


def _order(key: Sequence[KnobValue]) -> list[tuple[float, str]]:
    """Sorted by size, with values that are not numbers first."""
    return [(one if isinstance(one, int | float) else -1.0, str(one)) for one in key]


def _read(path: Path) -> JournalContents:
    try:
        return read_journal(path)
    except JournalLineError as error:
        text = f"{path}:{error.line}: this line does not belong in a journal ({error.reason})."
        raise ConfigError(text) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _journal_landscape_name(
    path: Path, contents: JournalContents, group_by: Sequence[str], key: Sequence[KnobValue]
) -> str:
    if tuple(group_by) == GROUP_BY:
        _, _, ranks, batch = key
        devices = contents.fingerprint.hardware if contents.fingerprint else ()
        device = devices[0].partition(",")[0] if devices else "device"
        return f"{_folder(path)}, {ranks} x {device}, global batch {batch}"
    shared = (
        f"{name} {value}" for name, value in zip(group_by, key, strict=True) if value is not None
    )
    return ", ".join((_folder(path), *shared))


def _folder(path: Path) -> str:
    """Name that distinguishes a journal; the default folder is the same for all."""
    if path.name != "journal.jsonl":
        return path.stem
    folder = path.resolve().parent
    if folder.name == _USUAL_FOLDER:
        return folder.parent.name or folder.name
    aside = folder.name.startswith(_USUAL_FOLDER)
    return f"{folder.parent.name}/{folder.name}" if aside else folder.name


def _journal_landscape_landscape(name: str, records: Sequence[Record]) -> Landscape:
    landscape = Landscape(
        name=name,
        table=CandidateTable.from_candidates([record.trial.candidate for record in records]),
        step_s_C=np.array(
            [x.measurement.mean_step_s if x.measurement else np.nan for x in records]
        ),
        predictions=_predictions(records),
    )
    return merge_repeats(
        landscape, [record.trial.candidate.layout.global_batch for record in records]
    )


def _predictions(records: Sequence[Record]) -> PredictionTable:
    """Recorded predictions of each candidate, made before it ran."""
    said = [record.prediction for record in records]
    step_s = [np.nan if x is None or x.step_s is None else x.step_s for x in said]
    peaks = [np.nan if x is None or x.peak_bytes is None else x.peak_bytes for x in said]
    least = [np.nan if x is None or x.least_step_s is None else x.least_step_s for x in said]
    bands = [x.band for x in said if x is not None and x.band is not None]
    limits = [x.outcome.memory.limit_bytes for x in records if x.outcome.memory]
    return PredictionTable(
        peak_bytes_C=np.array(peaks, np.float64),
        step_s_C=np.array(step_s, np.float64),
        band=max(bands, default=None),
        how="as the journal has it",
        least_step_s_C=np.array(least, np.float64),
        limit_bytes=float(min(limits)) if limits else None,
    )


BAND = 0.1
"""Relative error to expect of step times of models that the constants were not fitted on: their
mean absolute error is 7 to 9 % (``benchmarks/results/planner_leave_one_out.md``)."""

_HOW = "the planner's time model"
_UNKNOWN = "unknown GPU"
_NO_ANSWER = "the time model has no answer"


def predict_rows(
    rows: Sequence[PublishedRow], physics_of: PhysicsOf, factors: Floats
) -> PredictionTable:
    """The planner's prediction of each row without its measured time; NaN for the rest."""
    count = len(rows)
    step_s, least_s = (np.full(count, np.nan) for _ in range(2))
    parts: dict[str, Floats] = {}
    for run in runs_of(rows)[0]:
        mine = np.array(run.rows, np.int64)
        machine = replace(run.machine, physics=physics_of(rows[run.rows[0]].shape.name))
        found = estimate(run.layouts, run.workload, machine, factors[mine])
        step_s[mine], least_s[mine] = found.step_s_C, found.least_step_s_C
        for name, seconds in found.parts:
            parts.setdefault(name, np.full(count, np.nan))[mine] = seconds
    mixed_s = mixed_step_s(rows, physics_of(rows[0].shape.name))
    return PredictionTable(
        peak_bytes_C=peaks_bytes(rows, range(count)),
        step_s_C=np.where(np.isnan(step_s), mixed_s, step_s),
        band=BAND,
        how=_HOW if (factors == 1.0).all() else f"{_HOW}; corrected by other models",
        least_step_s_C=least_s,
        parts=tuple(parts.items()),
        limit_bytes=_limit_bytes(rows),
    )


def count_unpredicted(rows: Sequence[PublishedRow], step_s: Floats) -> Counter[str]:
    """Number of rows without a predicted time, by reason."""
    _, reasons = runs_of(rows)
    return Counter(
        f"{why} {one.gpu!r}" if (why := reasons.get(i, _NO_ANSWER)) == _UNKNOWN else why
        for i, one in enumerate(rows)
        if np.isnan(step_s[i])
    )


def _limit_bytes(rows: Sequence[PublishedRow]) -> float | None:
    """Memory of the smallest GPU; None if a GPU is unknown."""
    names = {kind.gpu for one in rows for kind in kinds_of(one)} or {one.gpu for one in rows}
    if any(known_accelerator(name) is None for name in names):
        return None
    return float(min(usable_bytes(name) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LandscapeFile:
    """Groups of one file.

    Attributes:
        name: distinguishes the file from others.
        groups: groups with at least one measurement.
        notes: skipped lines, and groups of which nothing ran.
        unpredicted: number of rows without a prediction, by reason.
    """

    name: str
    groups: tuple[Landscape, ...]
    notes: tuple[str, ...]
    unpredicted: tuple[str, ...] = ()


def read_landscapes(
    path: Path,
    group_by: Sequence[str] = GROUP_BY,
    physics_of: PhysicsOf = shipped_physics,
    *,
    others: bool = True,
) -> LandscapeFile:
    """Groups of a CSV table, or of a journal or the results folder that holds it.

    Args:
        path: the file; a journal ends in ``.jsonl``.
        group_by: fields that the rows of a group share.
        physics_of: constants to predict a model's rows with.
        others: whether predictions of a model are corrected by the other models of its table;
            not if groups mix models, since no group's own times may be seen.

    Raises:
        ConfigError: it cannot be read, or a line of it cannot be what it says.
    """
    if path.is_dir() or path.suffix == ".jsonl":
        journal = path / "journal.jsonl" if path.is_dir() else path
        found, left_out = journal_landscapes(journal, group_by)
        return LandscapeFile(name=str(path), groups=found, notes=left_out)
    file = read_measurements(path)
    _refuse(path, file)
    rows = (*with_recompute(file.measurements), *file.at_odds)
    every = sorted(rows, key=lambda one: one.line)
    apart = others and "model" in group_by
    factors = factors_of_others(every, physics_of) if apart else np.ones(len(every))
    groups, notes, lacking = list[Landscape](), _left_out(file), Counter[str]()
    for key, numbers in _group_rows(every, group_by).items():
        mine, name = [every[i] for i in numbers], _name(group_by, key)
        if all(one.step_time_s is None for one in mine):
            notes.append(f"{file.name}: skipped: {name}: none of its rows has a time.")
            continue
        predictions = predict_rows(mine, physics_of, factors[numbers])
        lacking += count_unpredicted(mine, predictions.step_s_C)
        groups.append(_landscape(name, mine, predictions))
    ratios = [ratio for group in groups for ratio in _over_predicted(group)]
    notes += suspected_unit(file.name, ratios)
    return LandscapeFile(
        name=path.stem,
        groups=tuple(groups),
        notes=tuple(notes),
        unpredicted=tuple(_unpredicted_note(file.name, *one) for one in sorted(lacking.items())),
    )


def _over_predicted(group: Landscape) -> list[float]:
    """Measured over predicted seconds of each row that has both."""
    if group.predictions is None:
        return []
    return [float(ratio) for ratio in group.step_s_C / group.predictions.step_s_C]


def _group_rows(
    rows: Sequence[PublishedRow], group_by: Sequence[str]
) -> dict[tuple[KnobValue, ...], list[int]]:
    """Numbers of the rows of each group."""
    grouped: dict[tuple[KnobValue, ...], list[int]] = {}
    for i, one in enumerate(rows):
        grouped.setdefault(key_of_row(one, group_by), []).append(i)
    return grouped


def _unpredicted_note(file: str, why: str, count: int) -> str:
    return (
        f"{file}: {plural(count, 'row')} without a prediction ({why}); the measured values count."
    )


def _refuse(path: Path, file: MeasurementFile) -> None:
    """A tuner must not be judged by a time that cannot be."""
    for problem in file.bad:
        if problem.text.startswith("step_time_s"):
            raise ConfigError(f"{path}:{problem.line}: {problem.sentence}")


def _left_out(file: MeasurementFile) -> list[str]:
    """A sentence on each line; repeats of which some failed are merged as all others are."""
    used = {one.line for one in file.at_odds}
    problems = sorted((*file.bad, *file.skipped), key=lambda problem: problem.line)
    return [
        f"{file.name}:{one.line}: skipped: {one.sentence}"
        for one in problems
        if one.line not in used
    ]


def _name(group_by: Sequence[str], key: Sequence[KnobValue]) -> str:
    if tuple(group_by) == GROUP_BY:
        model, gpu, gpus, batch = key
        return f"{model}, {gpus} x {gpu}, global batch {batch}"
    return ", ".join(f"{name} {value}" for name, value in zip(group_by, key, strict=True))


def _landscape(name: str, rows: Sequence[PublishedRow], predictions: PredictionTable) -> Landscape:
    landscape = Landscape(
        name=name,
        table=CandidateTable.from_candidates(_candidates(rows)),
        step_s_C=np.array([np.nan if x.step_time_s is None else x.step_time_s for x in rows]),
        predictions=predictions,
    )
    return merge_repeats(landscape, [one.global_batch for one in rows])


def _candidates(rows: Sequence[PublishedRow]) -> list[Candidate]:
    values = {name: [of(one) for one in rows] for name, of in FIELDS.items() if name != "gbs"}
    differ = [name for name, found in values.items() if len(set(found)) > 1]
    return [
        Candidate(
            layout=replace(
                one.layout, pipeline_split=noted_stage_layers(one) if kinds_of(one) else None
            ),
            extras=tuple((name, values[name][i]) for name in differ),
        )
        for i, one in enumerate(rows)
    ]
