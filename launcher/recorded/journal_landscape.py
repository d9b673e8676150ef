"""A journal of ours as landscapes: what it measured may be searched again. Not: CSV tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.dominance import is_out_of_memory
from autoconf_launch.autotuner.landscape import Landscape, merged
from autoconf_launch.autotuner.table import CandidateTable, PredictionTable
from autoconf_launch.autotuner.trial import Record
from autoconf_launch.core import ConfigError, KnobValue

from ..results.journal import JournalContents, JournalLineError, read_journal
from .grouping import GROUP_BY, key_of_candidate

_USUAL_FOLDER = "autotuning_results"
"""Of results where nothing else was said, and what folders begin with that were moved aside."""


def journal_landscapes(
    path: Path, group_by: Sequence[str] = GROUP_BY
) -> tuple[tuple[Landscape, ...], tuple[str, ...]]:
    """Groups, and a sentence on each of which nothing ran.

    A journal is of one model and one machine, so that columns of these are equal in all of it.
    Trials that failed for another reason than memory are left out.

    Raises:
        ConfigError: there is no journal, a line of it cannot be read, or it measured nothing.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is no journal; give a journal.jsonl or the folder of one.")
    contents = _read(path)
    grouped: dict[tuple[KnobValue, ...], list[Record]] = {}
    for record in (*contents.history, *contents.repeats, *contents.finals):
        if record.measurement or is_out_of_memory(record):
            key = key_of_candidate(record.trial.candidate, group_by)
            grouped.setdefault(key, []).append(record)
    found, left_out = list[Landscape](), list[str]()
    for key, records in sorted(grouped.items(), key=lambda one: _order(one[0])):
        name = _name(path, contents, group_by, key)
        if any(record.measurement for record in records):
            found.append(_landscape(name, records))
        else:
            left_out.append(f"{path}: left out: {name}: none of its trials ran.")
    if not found:
        raise ConfigError(f"{path} has no measured trial, so there is nothing to search in.")
    return tuple(found), tuple(left_out)


def _order(key: Sequence[KnobValue]) -> list[tuple[float, str]]:
    """By size, what is no number first."""
    return [(one if isinstance(one, int | float) else -1.0, str(one)) for one in key]


def _read(path: Path) -> JournalContents:
    try:
        return read_journal(path)
    except JournalLineError as error:
        text = f"{path}:{error.line}: it is no line of a journal of ours ({error.reason})."
        raise ConfigError(text) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _name(
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
    """What tells a journal from others; the usual folder is the same for all."""
    if path.name != "journal.jsonl":
        return path.stem
    folder = path.resolve().parent
    if folder.name == _USUAL_FOLDER:
        return folder.parent.name or folder.name
    aside = folder.name.startswith(_USUAL_FOLDER)
    return f"{folder.parent.name}/{folder.name}" if aside else folder.name


def _landscape(name: str, records: Sequence[Record]) -> Landscape:
    landscape = Landscape(
        name=name,
        table=CandidateTable.from_candidates([record.trial.candidate for record in records]),
        step_s_C=np.array(
            [x.measurement.mean_step_s if x.measurement else np.nan for x in records]
        ),
        predictions=_predictions(records),
    )
    return merged(landscape, [record.trial.candidate.layout.global_batch for record in records])


def _predictions(records: Sequence[Record]) -> PredictionTable:
    """What was predicted of each candidate before it ran, as the journal says."""
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
