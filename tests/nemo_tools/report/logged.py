"""Logs as NeMo's runs leave them, for tests of what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

STEP_TIME = "train_step_timing in s"


def log_steps(folder: Path, times_s: Sequence[float], losses: Sequence[float] = ()) -> Path:
    """An event file with step times and losses, in the form that Lightning writes."""
    event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
    summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
    writer: Any = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter
    folder.mkdir(parents=True, exist_ok=True)
    file = writer(str(folder))
    for tag, values in ((STEP_TIME, times_s), ("reduced_train_loss", losses)):
        for step, value in enumerate(values):
            one = summary.Value(tag=tag, simple_value=value)
            file.add_event(event(wall_time=1.0, step=step, summary=summary(value=[one])))
    file.close()
    return next(folder.glob("events.out.tfevents*"))
