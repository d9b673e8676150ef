"""Tables of published measurements (CSV) and their rows."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
)
from autoconf_launch.core import (
    ConfigError,
    Layout,
    Offload,
    Precision,
    Recompute,
    Workload,
    nearest_known,
)
from autoconf_launch.tuning_spaces import TRAINERS

from ..input_file import input_text
from .row_shape import (
    EXPERT_COLUMNS,
    KIND_COLUMNS,
    MODEL_COLUMNS,
    RECIPE_COLUMNS,
    PartialShape,
    RowError,
    RowShape,
    read_shape,
    row_choice,
    row_enum,
    row_flag,
    row_number,
    row_training,
    row_whole,
    row_whole_or_none,
    why_unknown,
)

DEFAULTS: tuple[tuple[str, str], ...] = (
    ("recompute", "none, or selective where it alone has room"),
    ("sequence_parallel", "on where tp is above 1 and the stack has flash attention"),
    ("zero_dist_opt", "0"),
    ("vpp", "1"),
    ("interconnect", "what nodes of the GPU usually have"),
)
"""Meaning of each optional setting if it is empty."""
_WHAT_RAN = ("model", "gpu", "n_gpus")
_DEGREES = ("tp", "pp", "dp", "mbs", "gbs")
COLUMNS = ("model", "seq", "gpu", "n_gpus", *_DEGREES, "step_time_s")
"""Columns that every table needs; the model's shapes may follow from its name, and a table of
memory only has ``mem_gb`` in place of the times."""
_ZERO_NAMES = {"": 0, "0": 0, "1": 1, "2": 2, "3": 3, "fsdp": 3, "fsdp2": 3, "hsdp": 3}
_PRECISIONS = {
    **{one.value.replace("_", "-"): one for one in Precision},
    **dict.fromkeys(("", "amp-bf16"), Precision.BF16),
    "amp-fp16": Precision.FP16,
    "amp-fp8": Precision.FP8,
    "fp8-tensorwise": Precision.FP8_CURRENT,
    "fp8-cs": Precision.FP8_CURRENT,
    "fp8-sc": Precision.FP8_BLOCKWISE,
    "fp8-mx": Precision.MXFP8,
}
READ_COLUMNS = frozenset(
    {
        *COLUMNS,
        *MODEL_COLUMNS,
        *(name for name, _ in DEFAULTS),
        *("gpus_per_node", "compile", "async_tp", "precision", "cp", "ep"),
        *EXPERT_COLUMNS,
        *RECIPE_COLUMNS,
        *KIND_COLUMNS,
        "offload",
        "kv_heads",
        "params_b",
        "arch",
        "mem_gb",
        "source",
        "trainer",
        "dispatcher",
        "note",
    }
)
_ALIKE = 0.8
"""Likeness of ``difflib`` from which on a column's name is a slip of another."""
_SEE = "see benchmarks/ground_truth/README.md for what a table of measurements has"
_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'"}
_MOST_COLUMNS = 1000


class SkippedRowError(ConfigError):
    """A row without a description of its run; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A run and its duration.

    Attributes:
        accumulation: fractional if the micro-batch does not divide a rank's batch.
        step_time_s: duration of a step in seconds; None for a run that failed or was not timed.
        memory_gb: peak memory; None if it is not given.
        training: by the columns on states, loss and adapters, without a model.
        trainer: the column of that name; None if it is empty or missing.
        assumed: columns that are empty and were filled by habit or from the model's name.
    """

    line: int
    shape: RowShape
    gpu: str
    gpus: int
    gpus_per_node: int | None
    interconnect: str
    layout: Layout
    accumulation: float
    global_batch: int
    precision: Precision
    compiled: bool | None
    async_tensor: bool | None
    step_time_s: float | None
    memory_gb: float | None
    out_of_memory: bool
    note: str
    source: str
    trainer: str | None
    training: Workload
    assumed: tuple[str, ...]

    @property
    def settings(self) -> tuple[object, ...]:
        """Everything but what was measured: equal for repeats."""
        measured = {"line", "step_time_s", "memory_gb", "out_of_memory"}
        told = {"note", "source", "assumed"}
        names = [x.name for x in fields(self) if x.name not in measured | told]
        return tuple(getattr(self, name) for name in names)


def read_row(line: int, row: Mapping[str, str]) -> PublishedRow:
    """A line of a table by its columns.

    Raises:
        SkippedRowError: it does not say what ran, or the model's shape.
        RowError: it cannot be what it says.
    """
    cell = {**dict.fromkeys(MODEL_COLUMNS, ""), **row}
    cell = {name: (value or "").strip() for name, value in cell.items()}
    filled = _with_only_micro_batch(cell)
    for name in (*_WHAT_RAN, *_DEGREES):
        if not cell[name]:
            raise SkippedRowError(f"no {name}")
    shape = read_shape(cell)
    empty = tuple(name for name in MODEL_COLUMNS if not cell[name])
    lacks = tuple(name for name in empty if shape.lacks(name))
    layout, accumulation = _layout(cell, shape)
    gpus = row_whole(cell, "n_gpus")
    if layout.world_size != gpus:
        raise RowError(
            f"tp x pp x dp x cp is {layout.world_size}, but n_gpus is {gpus}; they must be equal"
        )
    memory_gb, failed = _memory(cell)
    step_time_s = _step_time_s(cell)
    if step_time_s is not None and failed:
        raise RowError("it ran out of memory, but has a step time; one of them must be empty")
    if lacks:
        raise SkippedRowError(why_unknown(shape, lacks[0]))
    return PublishedRow(
        line=line,
        shape=RowShape(**{x.name: getattr(shape, x.name) for x in fields(shape)}),
        gpu=cell["gpu"],
        gpus=gpus,
        gpus_per_node=row_whole_or_none(cell, "gpus_per_node"),
        interconnect=cell.get("interconnect", ""),
        layout=layout,
        accumulation=accumulation,
        global_batch=row_whole(cell, "gbs"),
        precision=_precision(cell.get("precision", "")),
        compiled=row_flag(cell, "compile"),
        async_tensor=row_flag(cell, "async_tp"),
        step_time_s=step_time_s,
        memory_gb=memory_gb,
        out_of_memory=failed or (step_time_s is None and memory_gb is None),
        note=cell.get("note", ""),
        source=cell.get("source", ""),
        trainer=_trainer(cell),
        training=row_training(cell),
        assumed=(
            *(name for name, _ in DEFAULTS if not cell.get(name)),
            *empty,
            *filled,
        ),
    )


def _with_only_micro_batch(cell: dict[str, str]) -> tuple[str, ...]:
    alone = cell["gbs"] and cell["gbs"] == cell["dp"]
    if cell["mbs"] or not alone:
        return ()
    cell["mbs"] = "1"
    return ("mbs",)


def _precision(text: str) -> Precision:
    name = re.sub(r"[ _]", "-", text.lower())
    if name in _PRECISIONS:
        return _PRECISIONS[name]
    raise RowError(f"precision is {text!r}; {nearest_known(name, _PRECISIONS)}")


def _trainer(cell: Mapping[str, str]) -> str | None:
    name = row_choice(cell, "trainer", (*TRAINERS, AUTO_TRAINER))
    return None if name == AUTO_TRAINER else name


def _layout(cell: Mapping[str, str], shape: PartialShape) -> tuple[Layout, float]:
    tp, pp, dp = (row_whole(cell, name) for name in ("tp", "pp", "dp"))
    cp, ep, vpp = (row_whole_or_none(cell, name) or 1 for name in ("cp", "ep", "vpp"))
    mbs, gbs = row_whole(cell, "mbs"), row_whole(cell, "gbs")
    if shape.layers is not None and pp > shape.layers:
        raise RowError(f"pp={pp} is more than layers={shape.layers}")
    if shape.heads is not None and shape.heads % tp:
        raise RowError(f"tp={tp} does not divide heads={shape.heads}")
    if dp > gbs:
        raise RowError(f"dp={dp} is more than gbs={gbs}: some ranks would have no sample")
    accumulation = gbs / dp / mbs
    zero_name = cell.get("zero_dist_opt", "").lower()
    zero = 1 if "dist" in zero_name else _ZERO_NAMES.get(zero_name)
    if zero is None:
        raise RowError(f"zero_dist_opt is {zero_name!r}, but must be 0, 1, 2, 3 or fsdp2")
    layout = Layout(
        data_parallel=dp,
        tensor_parallel=tp,
        pipeline_parallel=pp,
        virtual_pipeline=vpp if pp > 1 else 1,
        context_parallel=cp,
        expert_parallel=ep,
        zero_stage=zero,
        micro_batch=min(mbs, max(1, gbs // dp)),
        accumulation=max(1, math.ceil(accumulation)),
        recompute=_recompute(cell.get("recompute", "")),
        sequence_parallel=cell.get("sequence_parallel", "") in ("1", "true", "True"),
        offload=row_enum(cell, "offload", Offload) or Offload.NONE,
    )
    return layout, max(1.0, accumulation)


def _recompute(text: str) -> Recompute:
    try:
        return Recompute(text.lower() or "none")
    except ValueError:
        raise RowError(f"recompute is {text!r}, but must be none, selective or full") from None


def _memory(cell: Mapping[str, str]) -> tuple[float | None, bool]:
    text = cell.get("mem_gb", "")
    if text.upper() == "OOM":
        return None, True
    return (row_number(cell, "mem_gb") if text else None), False


def _step_time_s(cell: Mapping[str, str]) -> float | None:
    if not cell.get("step_time_s"):
        return None
    try:
        return row_number(cell, "step_time_s")
    except RowError as error:
        raise RowError(f"{error}; leave it empty where the run was out of memory") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line that does not count, or counts with a warning."""

    line: int
    text: str

    @property
    def sentence(self) -> str:
        """The text with its full stop, unless it asks."""
        return self.text if self.text.endswith("?") else f"{self.text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFile:
    """A table; ``rows`` counts all of them.

    ``bad`` ones contradict themselves, or (``at_odds``) a repeat; ``skipped`` ones lack what
    a prediction needs.
    """

    name: str
    rows: int
    measurements: tuple[PublishedRow, ...]
    at_odds: tuple[PublishedRow, ...]
    bad: tuple[Problem, ...]
    skipped: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def read_measurements(path: Path) -> MeasurementFile:
    """Every row of a file.

    Raises:
        ConfigError: the file cannot be read, or is not such a table.
    """
    found = list[PublishedRow]()
    bad, skipped, warnings = list[Problem](), list[Problem](), list[Problem]()
    header: tuple[str, ...] | None = None
    seen: dict[tuple[str, ...], int] = {}
    count = 0
    for line, row in _lines(path):
        count += 1
        try:
            if None in row or None in row.values():
                raise RowError("it has another number of cells than the header")
            if header is None:
                header = tuple(row)
                warnings += _misspelled_columns(header)
            text = tuple(row.values())
            if text in seen:
                warnings.append(Problem(line=line, text=f"it is the same as line {seen[text]}"))
            seen.setdefault(text, line)
            found.append(read_row(line, row))
        except SkippedRowError as reason:
            skipped.append(Problem(line=line, text=str(reason)))
        except RowError as error:
            bad.append(Problem(line=line, text=str(error)))
    bad += (contradicted := _contradictions(found))
    lines = {problem.line for problem in contradicted}
    return MeasurementFile(
        name=path.name,
        rows=count,
        measurements=tuple(m for m in found if m.line not in lines),
        at_odds=tuple(m for m in found if m.line in lines),
        bad=tuple(bad),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(input_text(path, "utf-8-sig").splitlines(keepends=True))
        _refuse_header(path, reader.fieldnames)
        for row in reader:
            yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ConfigError(f"{path} cannot be read as a CSV table: {reason}.") from error


def _refuse_header(path: Path, header: Sequence[str] | None) -> None:
    if header is None:
        raise ConfigError(f"{path} is empty; {_SEE}.")
    if len(header) > _MOST_COLUMNS:
        raise ConfigError(
            f"{path}:1: it has {len(header)} columns, but must have {_MOST_COLUMNS} at most; is "
            "it one long line?"
        )
    if not any(name.strip() for name in header):
        raise ConfigError(f"{path}:1: it is blank, but must have the names of the columns.")
    for sign, word in _SEPARATORS.items():
        if len(header) == 1 and sign in header[0]:
            raise ConfigError(
                f"{path}:1: it has no comma; is it separated by {word}? Write it with commas."
            )
    missing = [name for name in COLUMNS if name not in header]
    misspelled = _misspelled_columns(header)
    has_memory_only = missing == ["step_time_s"] and "mem_gb" in header and not misspelled
    if missing and not has_memory_only:
        hints = "".join(f" ({problem.text})" for problem in misspelled)
        raise ConfigError(f"{path}:1: it lacks the columns {', '.join(missing)}{hints}; {_SEE}.")
    for name in sorted({name for name in header if header.count(name) > 1}):
        raise ConfigError(f"{path}:1: it has the column {name} twice; remove one.")


def _misspelled_columns(header: Sequence[str]) -> list[Problem]:
    missing = [name for name in READ_COLUMNS if name not in header]
    found = (
        (name, get_close_matches(name.strip().lower(), missing, 1, _ALIKE)) for name in header
    )
    return [
        Problem(line=1, text=f"column {name!r} is not read; did you mean {close[0]!r}?")
        for name, close in found
        if close and name not in READ_COLUMNS
    ]


def _contradictions(found: list[PublishedRow]) -> list[Problem]:
    """Equal settings of which some ran and some did not have room."""
    outcomes: dict[tuple[object, ...], list[PublishedRow]] = {}
    for one in found:
        outcomes.setdefault(one.settings, []).append(one)
    problems: list[Problem] = []
    for same in outcomes.values():
        if len({one.out_of_memory for one in same}) > 1:
            lines = ", ".join(str(one.line) for one in same)
            text = f"lines {lines} have the same settings, but some ran and some did not"
            problems += [Problem(line=one.line, text=text) for one in same]
    return problems
