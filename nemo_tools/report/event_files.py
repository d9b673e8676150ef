"""Reads numbers from TensorBoard's event files of runs made elsewhere.

The package tensorboard is imported when a file is read.

Each candidate has its own folder, so that a missing file is only that candidate's failure. Nothing
of ours ran there, so that a log which ends in out of memory decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import ConfigError, Failure, FailureKind, MemoryUse
from autoconf_launch.launcher.launch import file_tail

from .outcome import NOT_STARTED

_START = "events.out.tfevents"
STEP_TIME = "train_step_timing in s"
LOSS = "reduced_train_loss"
PEAK_MEMORY_BYTES = "mem-max-allocated-bytes"
"""Megatron's, with --log-memory-to-tensorboard."""
WARM_UP_STEPS = 1
LEAST_STEPS = 3
"""Beside the warm-up; fewer say too little of a step."""
JOB_LOG = "log_"
"""Prefix of the logs that our own jobs write."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|\bCUDA out of memory\b|\boom-kill\b")
_LAST_LINES = 100
"""In which a log ends: launchers report every rank after the rank that failed."""


def event_files(folder: Path) -> tuple[Path, ...]:
    """All event files below a folder, sorted; none if there is no such folder."""
    return tuple(sorted(path for path in folder.rglob(f"{_START}*") if path.is_file()))


def read_numbers(files: Sequence[Path], tags: Sequence[str]) -> Mapping[str, tuple[float, ...]]:
    """The numbers under each tag, by their steps; of a repeated step the later number.

    A file that ends in the middle of a record gives the records before it; values that are not
    numbers are skipped.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {tag: {} for tag in tags}
    for path in files:
        for event, tag, value in _values(path):
            if tag not in found:
                continue
            known = found[tag].get(event.step)
            if known is None or known[0] <= event.wall_time:
                found[tag][event.step] = (event.wall_time, value)
    return {tag: tuple(by[step][1] for step in sorted(by)) for tag, by in found.items()}


def _values(path: Path) -> Iterator[tuple[Any, str, float]]:
    library = _library()
    events = iter(library.loader.EventFileLoader(str(path)).Load())
    while True:
        try:
            event = next(events)
        except (StopIteration, library.damage, OSError, ValueError):
            return
        for value in event.summary.value:
            number = _number(value, library)
            if number is not None:
                yield event, value.tag, number


def _number(value: Any, library: _Library) -> float | None:
    kind = value.metadata.plugin_data.plugin_name
    if not value.HasField("tensor") or kind != "scalars":
        return None
    if any(dimension.size != 1 for dimension in value.tensor.tensor_shape.dim):
        return None
    try:
        return float(library.to_array(value.tensor).item())
    except (KeyError, TypeError, ValueError):
        return None


class _Library(NamedTuple):
    loader: Any
    to_array: Any
    damage: type[Exception]


def _library() -> _Library:
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "Results of runs made elsewhere are in TensorBoard's files, and the package "
            "tensorboard is not installed; pip install 'autoconf-launch[tensorboard]'."
        )
    return _Library(
        import_module("tensorboard.backend.event_processing.event_file_loader"),
        import_module("tensorboard.util.tensor_util").make_ndarray,
        import_module("google.protobuf.message").DecodeError,
    )


def read_run(folder: Path, log_prefix: str, *, samples: int, gpus: int, gpu_bytes: int) -> Outcome:
    """Read one run's folder.

    Args:
        folder: folder of this run only; TensorBoard's files may be deeper.
        log_prefix: start of the names of its logs.
        samples: global batch.
        gpus: number of GPUs.
        gpu_bytes: memory of one GPU.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        detail = f"{NOT_STARTED}, or it left nothing in {folder}."
        return FailedTrial(failure=Failure(kind=FailureKind.NO_STEPS, detail=detail))
    for tail in _tails(folder, log_prefix):
        if said := next(filter(_OUT_OF_MEMORY.search, reversed(tail)), ""):
            failure = Failure(kind=FailureKind.OUT_OF_MEMORY, detail=said, log_tail=tail)
            return FailedTrial(failure=failure)
    files = event_files(folder)
    if not files:
        return _failure(folder, log_prefix, "The run wrote no TensorBoard file.")
    numbers = read_numbers(files, (STEP_TIME, LOSS, PEAK_MEMORY_BYTES))
    times = [time_s for time_s in numbers[STEP_TIME][WARM_UP_STEPS:] if _is_time(time_s)]
    if len(times) < LEAST_STEPS:
        return _failure(
            folder,
            log_prefix,
            f"The run logged {len(numbers[STEP_TIME])} step times ({STEP_TIME!r}), of which "
            f"{len(times)} after the first are numbers above 0, but at least {LEAST_STEPS} must "
            "be.",
        )
    peaks = [int(value) for value in numbers[PEAK_MEMORY_BYTES] if _is_time(value)]
    memory = peaks and MemoryUse(
        free_before_bytes=gpu_bytes, peak_bytes=max(peaks), limit_bytes=gpu_bytes
    )
    return Measurement(
        step_s=tuple(times),
        samples_per_step=samples,
        world_size=gpus,
        memory=memory or None,
        losses=numbers[LOSS][-1:],
    )


def _tails(folder: Path, log_prefix: str) -> Iterator[tuple[str, ...]]:
    starts = (log_prefix, JOB_LOG)
    logs = sorted(path for path in folder.rglob("*") if path.name.startswith(starts))
    return (lines for path in reversed(logs) if (lines := file_tail(path, lines=_LAST_LINES)))


def _is_time(time_s: float) -> bool:
    return math.isfinite(time_s) and time_s > 0


def _failure(folder: Path, log_prefix: str, why: str) -> FailedTrial:
    tail = next(_tails(folder, log_prefix), ())
    said = f" Its log ends: {tail[-1]}" if tail else ""
    failure = Failure(kind=FailureKind.NO_STEPS, detail=why + said, log_tail=tail)
    return FailedTrial(failure=failure)
