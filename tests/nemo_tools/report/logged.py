"""Logs as NeMo's runs leave them, for tests of what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

STEP_TIME = "train_step_timing in s"


def log_tensor(folder: Path, **fields: Any) -> None:
    """A further event file, whose only step time says of itself what ``fields`` do."""
    tensors: Any = import_module("tensorboard.compat.proto.tensor_pb2")
    shapes: Any = import_module("tensorboard.compat.proto.tensor_shape_pb2")
    metadata: Any = import_module("tensorboard.compat.proto.summary_pb2").SummaryMetadata
    scalars = metadata(plugin_data=metadata.PluginData(plugin_name="scalars"))
    shape = shapes.TensorShapeProto()
    shape.dim.extend(shape.Dim(size=size) for size in fields.pop("sizes", ()))
    tensor = tensors.TensorProto(**fields, tensor_shape=shape)
    _write(folder, [{"tag": STEP_TIME, "tensor": tensor, "metadata": scalars}])


def log_damaged_record(folder: Path) -> None:
    """A further event file with a whole record that is not an event."""
    records: Any = import_module("tensorboard.summary.writer.record_writer").RecordWriter
    with (folder / "events.out.tfevents.9").open("wb") as file:
        records(file).write(b"\xff\xff\xffjunk")


def _write(folder: Path, values: Sequence[dict[str, Any]]) -> None:
    event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
    summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
    writer: Any = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter
    file = writer(str(folder), filename_suffix=".more")
    for fields in values:
        one = summary.Value(**fields)
        file.add_event(event(wall_time=2.0, step=1, summary=summary(value=[one])))
    file.close()


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
