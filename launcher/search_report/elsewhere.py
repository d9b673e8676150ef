"""What a run made elsewhere left in its folder: step times, or why there are none. Not: our runs.

Each candidate is looked for in its own folder, so that a missing file is the failure of that
candidate alone. Logs decide nothing: their last line is told as the reason.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import Failure, FailureKind

from ..outcomes.log_tail import file_tail
from .event_files import event_files, read_numbers

STEP_TIME = "train_step_timing in s"
LOSS = "reduced_train_loss"
WARM_UP_STEPS = 1
LEAST_STEPS = 3
"""Beside the warm-up; fewer say too little of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredElsewhere:
    """Steps of one run; the fields are those of :class:`~.outcome.SearchRun`."""

    steps: int
    step_s: float
    step_spread_s: float
    loss: float | None


def read_run(folder: Path, log_prefix: str) -> MeasuredElsewhere | Failure:
    """Read one run's folder.

    Args:
        folder: of that run alone; TensorBoard's files may lie deeper.
        log_prefix: how the names of its logs begin.

    Raises:
        ConfigError: the package tensorboard is not installed.
    """
    if not folder.is_dir():
        return _failure(folder, log_prefix, f"The run left no folder {folder}.")
    files = event_files(folder)
    if not files:
        return _failure(folder, log_prefix, "The run left no TensorBoard file.")
    numbers = read_numbers(files, (STEP_TIME, LOSS))
    times = [time_s for time_s in numbers[STEP_TIME][WARM_UP_STEPS:] if _is_time(time_s)]
    if len(times) < LEAST_STEPS:
        return _failure(
            folder,
            log_prefix,
            f"The run logged {len(numbers[STEP_TIME])} step times ({STEP_TIME!r}), of which "
            f"{len(times)} after the first are numbers above 0, but at least {LEAST_STEPS} must "
            "be.",
        )
    losses: Sequence[float] = numbers[LOSS]
    return MeasuredElsewhere(
        steps=len(times),
        step_s=statistics.fmean(times),
        step_spread_s=statistics.stdev(times),
        loss=losses[-1] if losses else None,
    )


def _is_time(time_s: float) -> bool:
    return math.isfinite(time_s) and time_s > 0


def _failure(folder: Path, log_prefix: str, why: str) -> Failure:
    files = (path for path in folder.rglob("*") if path.is_file())
    logs = sorted(path for path in files if path.name.startswith(log_prefix))
    tail = next((lines for path in reversed(logs) if (lines := file_tail(path))), ())
    said = f" Its log ends: {tail[-1]}" if tail else ""
    return Failure(kind=FailureKind.NO_STEPS, detail=why + said, log_tail=tail)
