"""Cells of trials, tables of cells, and how numbers are written for people."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from autoconf_launch.autotuner.measurement import measured_name
from autoconf_launch.autotuner.space import (
    KNOBS,
    Naming,
    Trial,
    extra_order,
)
from autoconf_launch.core import (
    GIB,
    INPUT_LEN,
    Candidate,
    ConfigError,
    MemoryUse,
    Precision,
    Workload,
    visible,
)

if TYPE_CHECKING:  # with numpy, which --help does not wait for
    from autoconf_launch.autotuner.cost import FormatGain, TrainerChoice
    from autoconf_launch.autotuner.measurement import SpeedUp
    from autoconf_launch.autotuner.playoff import TimeRange

_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
_ROUGH_UNITS = ((7200.0, 3600.0, "hours", 1), (120.0, 60.0, "minutes", 0), (0.0, 1.0, "s", 0))
"""Units of a rough time: seconds from which each is used, and its decimals."""
_GB = 1e9
_SMALL_BYTES = 1e5
_SHORT_S = 0.1
_MIB = 2**20
_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TF32_SWITCH = "torch.set_float32_matmul_precision('high')"
_DEGREES = {
    "tensor_parallel": "tensor",
    "pipeline_parallel": "pipeline",
    "virtual_pipeline": "virtual",
    "context_parallel": "context",
    "expert_parallel": "expert",
    "recompute": "recompute",
    "offload": "offload",
}
"""Words before a value; other knobs go by their own names."""
_LAST = ("accumulation", "micro_batch")
_PIPE_PADDING = 2
"""Characters that a header of a pipe table has at least besides its own, as tabulate's."""
_FORMULA = ("=", "+", "-", "@")
"""First characters of a cell that a spreadsheet computes."""
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")
_WIDEST = 10.0
"""Largest distance of the end of an interval from a ratio that is shown."""


def duration_text(seconds: float) -> str:
    """``2.3 days``, ``14.1 hours``, ``40 s``: three digits of its largest whole unit."""
    for size, name in _UNITS:
        if seconds >= size:
            number = three_digits(seconds / size)
            return f"{number} {name.removesuffix('s') if number == '1' else name}"
    return f"{three_digits(seconds)} s"


def time_text(seconds: float) -> str:
    """``60 s``, ``20 minutes``: a time of a tune."""
    return f"{seconds:.0f} s" if seconds < 120.0 else duration_text(seconds)


def range_text(seconds: TimeRange) -> str:
    """``2 to 6 minutes``, ``40 s to 3 minutes``, ``about 3.5 hours``."""
    (low, unit), (high, name) = map(_roughly, (seconds.low_s, seconds.high_s))
    if (low, unit) == (high, name):
        return f"about {high} {name}"
    return f"{low} to {high} {name}" if unit == name else f"{low} {unit} to {high} {name}"


def _roughly(seconds: float) -> tuple[str, str]:
    """A number and its unit."""
    found = next(row for row in _ROUGH_UNITS if seconds >= row[0])
    return f"{seconds / found[1]:.{found[3]}f}", found[2]


def number_text(value: float, digits: int = 4) -> str:
    """``12,345``, ``32.72``, ``0.0667``: a number of digits, never an exponent."""
    if value >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.{digits + 6}f}".rstrip("0")


def three_digits(value: float) -> str:
    """``12,345``, ``32.7``: a number of three digits or more."""
    return number_text(value, 3)


def step_time_text(duration_s: float) -> str:
    """``32.72 s``, ``253.1 ms``: one step."""
    if duration_s >= 1:
        return f"{number_text(duration_s)} s"
    return f"{number_text(1e3 * duration_s)} ms"


def step_text(step: int) -> str:
    """Progress of a running trial."""
    return f"step {step}" if step else "starting"


def size_text(count_bytes: float) -> str:
    """``77.0 kB``, ``55.9 MB``, ``10.94 GB``."""
    if count_bytes < _SMALL_BYTES:
        return f"{count_bytes / 1e3:.1f} kB"
    if count_bytes < _GB / 10:
        return f"{count_bytes / 1e6:.1f} MB"
    return f"{count_bytes / _GB:.2f} GB"


def memory_unit(largest_bytes: float) -> tuple[str, int]:
    """Name and bytes of the unit for a column of memory that goes up to this size."""
    return ("GiB", GIB) if largest_bytes >= GIB / 10 else ("MiB", _MIB)


def memory_size(count_bytes: float, digits: int = 1) -> str:
    """``74.5 GiB``, ``8.3 MiB``: memory of a device."""
    name, unit = memory_unit(count_bytes)
    return f"{count_bytes / unit:.{digits}f} {name}"


def host_text(count_bytes: float) -> str:
    """Host memory; a dash if none is used."""
    return memory_size(count_bytes) if count_bytes else "-"


def gib(size_bytes: float) -> float:
    """A size as documents have it."""
    return round(size_bytes / GIB, 3)


def amount(value: float) -> str:
    """``6.74 T``: three digits and a letter for the thousands."""
    scale, letter = next(((s, c) for s, c in _SCALES if value >= 0.9995 * s), (1.0, ""))
    return f"{value / scale:.3g} {letter}"


def count_text(parameters: float) -> str:
    """``1.1 M``, ``6.74 B``, as models are spoken of."""
    return amount(parameters).replace("G", "B").rstrip()


def adapters_text(workload: Workload) -> str:
    """``, LoRA of rank 16 on nf4 weights``; empty if all weights are trained."""
    if not workload.trains_adapters:
        return ""
    form = workload.weight_format
    stored = f" on {form.value} weights" if form else ""
    return f", LoRA of rank {workload.lora_rank}{stored}"


def states_text(workload: Workload) -> str:
    """``, states bf16, loss fused``: requests on states, sums, updates and the loss."""
    asked = {
        "optimizer": workload.optimizer.name if workload.optimizer.is_paged else None,
        "states": workload.states and workload.states.value,
        "gradients": workload.gradients and workload.gradients.value,
        "loss": workload.loss and workload.loss.value,
        "update": "in backward" if workload.updates_in_backward else None,
    }
    return "".join(f", {name} {word}" for name, word in asked.items() if word)


def trainer_text(choice: TrainerChoice) -> str:
    """``trainer nemo (default, checked on Hopper)``: whose rules an answer follows."""
    return f"trainer {choice.name} ({choice.why})"


def trainers_text(rows: Sequence[tuple[str, int]]) -> str:
    """``Trainer: nemo.``: whose rules the rows of tables were predicted by."""
    if len(rows) == 1:
        return f"Trainer: {rows[0][0]}."
    return f"Trainers: {', '.join(f'{name} ({count} rows)' for name, count in rows)}."


def format_gains_text(gains: Sequence[FormatGain], tf32_switch: str = TF32_SWITCH) -> str:
    """A line on formats in which products of fp32 numbers are faster; empty if none is."""
    if not gains:
        return ""
    first, *others = gains
    switch = f" ({tf32_switch})" if first.precision is Precision.TF32 else ""
    more = "".join(f", {one.precision.value} {one.speed_up:.1f}x" for one in others)
    name = first.precision.value.upper() if switch else first.precision.value
    return f"{name} would make a step {first.speed_up:.1f}x faster{switch}{more}."


def format_gains_document(gains: Sequence[FormatGain]) -> dict[str, float]:
    """Speed-up of a step in each format."""
    return {one.precision.value: round(one.speed_up, 3) for one in gains}


def percent(share: float, sign: str = "") -> str:
    """``16 %``; ``+16 %`` with ``sign="+"``."""
    return f"{100 * share:{sign}.0f} %"


def seconds_text(duration_s: float) -> str:
    """``0.253 s``, ``12.3 ms``."""
    return f"{duration_s:.3f} s" if duration_s >= _SHORT_S else f"{1e3 * duration_s:.1f} ms"


def minutes_text(duration_s: float) -> str:
    """``0:46``, ``75:03``: minutes and seconds."""
    minutes, seconds = divmod(int(duration_s), 60)
    return f"{minutes:d}:{seconds:02d}"


def memory_text(memory: MemoryUse | None) -> str:
    """The peak, and how much of the limit that is."""
    if memory is None:
        return "-"
    peak = size_text(memory.peak_bytes)
    share = (
        f" ({100 * memory.peak_bytes / memory.limit_bytes:.0f} %)" if memory.limit_bytes else ""
    )
    return f"{peak}{share}"


def launch_label(trial: Trial) -> str:
    """Purpose of a launch: ``trial 3``, ``re-measured 3``, ``playoff 2``."""
    if trial.is_soak:
        return "verification run"
    if trial.final:
        return f"playoff {trial.attempt}"
    if not trial.again:
        return f"trial {trial.number}"
    return f"re-measured {trial.number}" if trial.number else "baseline again"


def shown_name(trial: Trial) -> str:
    """The configuration's name, without the suffix of a repeated launch."""
    if not trial.is_soak:
        return measured_name(trial.name)
    from autoconf_launch.autotuner.playoff import soaked_name  # loads numpy, unlike --help

    return soaked_name(trial)


def label(candidate: Candidate) -> str:
    """``ZeRO 1 · micro 16 · accum 1``, and all other values that are not defaults.

    Only the number of ranks is not in it.
    """
    layout = candidate.layout
    knobs = [(knob, getattr(layout, knob.name)) for knob in KNOBS if knob.name not in _LAST]
    unusual = [
        _knob_text(_DEGREES.get(knob.name, knob.name), value)
        for knob, value in knobs
        if knob.naming is Naming.UNLESS_DEFAULT and value != knob.default
    ]
    extras = [
        _knob_text(name, value)
        for name, value in sorted(candidate.extras, key=lambda extra: extra_order(extra[0]))
    ]
    if INPUT_LEN in dict(candidate.extras):  # it writes text, and trains nothing
        return " · ".join((*unusual, f"batch {layout.micro_batch}", *extras))
    split = (f"micro {layout.micro_batch}", f"accum {layout.accumulation}")
    return " · ".join((f"ZeRO {layout.zero_stage}", *unusual, *extras, *split))


def _knob_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"{name} {'on' if value else 'off'}"
    if isinstance(value, Enum):
        return f"{name} {value.value}"
    if isinstance(value, tuple):
        return f"{name} {','.join(map(str, value))}"
    return f"{name} {value}"


def table_of(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    align: Sequence[str],
    *,
    markdown: bool = False,
) -> str:
    """Columns under their headers, each as narrow as its cells, or a pipe table."""
    more = _PIPE_PADDING if markdown else 0
    padded = []
    for side, (header, *cells) in zip(align, zip(headers, *rows, strict=True), strict=True):
        width = max(len(header) + more, *map(len, cells), 0)
        pad = str.ljust if side == "left" else str.rjust
        rule = "-" * width
        if markdown:
            rule = f":{rule}-" if side == "left" else f"{rule}-:"
        cells = [pad(cell, width) for cell in (header, *cells)]
        padded.append([f" {cell} " if markdown else cell for cell in cells])
        padded[-1].insert(1, rule)
    lines = [*zip(*padded, strict=True)]
    if markdown:
        return "\n".join(f"|{'|'.join(line)}|" for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, each line with its end."""
    text = io.StringIO()
    write_csv(text, rows)
    return text.getvalue()


def write_csv(file: TextIO, rows: Iterable[Sequence[object]], *, delimiter: str = ",") -> None:
    """Write rows as CSV in which no text is a formula of a spreadsheet or a control character.

    Every CSV file and text of ours is written here.
    """
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in rows)


def save_file(path: Path, write: Callable[[TextIO], object], flag: str = "") -> None:
    """Write a file that the user named, in place of an older one; a part of it never stays.

    Raises:
        ConfigError: it cannot be written; the message starts with the flag.
    """
    is_open = False
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            is_open = True
            write(file)
    except OSError as error:
        if is_open and path.is_file():
            path.unlink()
        named = f"{flag} {path}".strip()
        raise ConfigError(f"{named} cannot be written: {error.strerror}.") from error


def save_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    save_file(path, lambda file: file.write(text))


def _csv_cell(value: object) -> object:
    if value is None or isinstance(value, (int, float)):
        return value
    return _csv_text(value if isinstance(value, str) else str(value))


@lru_cache(maxsize=1 << 10)
def _csv_text(value: str) -> str:
    text = visible(value)
    is_plain = text.lstrip()[:1] not in _FORMULA or text == "-" or _NUMBER.fullmatch(text)
    return text if is_plain else f"'{text}"


def speed_up_text(speed_up: SpeedUp, other: str, how: str = "") -> str:
    """``1.63x faster than OTHER (95 % interval 1.46 to 1.82x)``, or ``12 % slower than OTHER``.

    Faster or slower only if the interval shows it, and a factor only if it is narrow.
    """
    ratio, is_wide = speed_up.ratio, _is_too_noisy(speed_up)
    why = "these measurements are too noisy to give a factor"
    if math.isinf(speed_up.high):
        why = "they met in too few rounds for an interval"
    if is_unshown(speed_up):
        interval = (
            f"95 % interval of the speed ratio {speed_up.low:.2f} to {speed_up.high:.2f}x{how}"
        )
        return f"not shown to be faster than {other} ({why if is_wide else interval})"
    if is_wide:
        return f"{'faster' if ratio > 1.0 else 'slower'} than {other} ({why})"
    interval = f"{speed_up.low:.2f} to {speed_up.high:.2f}x{how}"
    if ratio < 1.0:
        slower = f"{100.0 * (1.0 - ratio):.0f} % slower than {other}"
        return f"{slower} (95 % interval of the speed ratio {interval})"
    return f"{ratio:.2f}x faster than {other} (95 % interval {interval})"


def is_unshown(speed_up: SpeedUp) -> bool:
    """True if the interval leaves open which of the two is faster."""
    return speed_up.low <= 1.0 <= speed_up.high


def _is_too_noisy(speed_up: SpeedUp) -> bool:
    return speed_up.high > _WIDEST * speed_up.ratio or speed_up.ratio > _WIDEST * speed_up.low
