"""What each tracker's files hold, read with its own library. Not: how they were written."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class Run:
    """A run; parameters as text, each metric by its last value."""

    parameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str | None = None
    failed: bool = False


@dataclass(kw_only=True)
class Kept:
    """Runs by name; best throughput by the number of finished launches; the chosen run."""

    runs: dict[str, Run]
    best: dict[int, float]
    choice: str | None
    complete: bool
    """True if the study ended with a choice, where the tracker can say so."""
    project: str | None = None


def read_tensorboard(folder: Path) -> Kept:
    """Event files below ``runs``."""
    read = import_module("tensorboard.backend.event_processing.event_accumulator")
    loaded = {}
    for path in sorted((folder / "runs").iterdir()):
        loaded[path.name] = read.EventAccumulator(str(path))
        loaded[path.name].Reload()
    study = loaded.pop("study")
    choice = _text(study, "choice/run") if "choice/run" in study.Tags()["tensors"] else None
    return Kept(
        runs={name: _tensorboard_run(one) for name, one in loaded.items()},
        best={one.step: one.value for one in study.Scalars("best/throughput_samples_per_s")},
        choice=choice,
        complete=choice is not None,
    )


def _tensorboard_run(events: Any) -> Run:
    metadata = import_module("tensorboard.plugins.hparams.metadata")
    plugin = {tag: events.SummaryMetadata(tag).plugin_data for tag in events.Tags()["tensors"]}
    start = metadata.parse_session_start_info_plugin_data(
        plugin[metadata.SESSION_START_INFO_TAG].content
    )
    end = metadata.parse_session_end_info_plugin_data(
        plugin[metadata.SESSION_END_INFO_TAG].content
    )
    return Run(
        parameters={name: _plain(value) for name, value in start.hparams.items()},
        metrics={tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]},
        failure=_text(events, "failure") if "failure" in plugin else None,
        failed=end.status == import_module("tensorboard.plugins.hparams.api_pb2").STATUS_FAILURE,
    )


def _plain(value: Any) -> str:
    kind = value.WhichOneof("kind")
    found = getattr(value, kind)
    return str(int(found) if kind == "number_value" and found == int(found) < 1e6 else found)


def _text(events: Any, tag: str) -> str:
    return str(events.Tensors(tag)[-1].tensor_proto.string_val[0].decode())


def read_mlflow(folder: Path) -> Kept:
    """The file store."""
    client = import_module("mlflow.tracking").MlflowClient((folder / "mlruns").as_uri())
    (experiment,) = (e for e in client.search_experiments() if e.name != "Default")
    found = client.search_runs([experiment.experiment_id])
    (study,) = (run for run in found if "mlflow.parentRunId" not in run.data.tags)
    history = client.get_metric_history(study.info.run_id, "best_throughput_samples_per_s")
    return Kept(
        runs={
            run.info.run_name: Run(
                parameters=run.data.params,
                metrics=run.data.metrics,
                failure=run.data.tags.get("failure"),
                failed=run.info.status == "FAILED",
            )
            for run in found
            if run.data.tags.get("mlflow.parentRunId") == study.info.run_id
        },
        best={one.step: one.value for one in history},
        choice=study.data.tags.get("choice"),
        complete=study.info.status == "FINISHED",
        project=experiment.name,
    )


def read_wandb(folder: Path) -> Kept:
    """Files of offline runs."""
    runs: dict[str, Run] = {}
    kept = Kept(runs=runs, best={}, choice=None, complete=False)
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        name, job, run, history = _wandb_run(path, kept)
        if job == "trial":
            runs[name] = run
            continue
        key = "best/throughput_samples_per_s"
        kept.best |= {int(row["finished"]): row[key] for row in history if key in row}
        kept.choice = run.parameters.get("choice/run", kept.choice)
        kept.complete = not run.failed
    return kept


def _wandb_run(path: Path, kept: Kept) -> tuple[str, str, Run, list[dict[str, Any]]]:
    run, history, name, job = Run(), [], "", ""
    for record in _wandb_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name, job = record.run.display_name or name, record.run.job_type or job
            kept.project = record.run.project or kept.project
        updates = {"run": "config", "config": "config", "summary": "summary"}
        if kind == "history":
            history.append(_values(record.history.item))
            run.metrics |= {k: v for k, v in history[-1].items() if isinstance(v, float | int)}
        elif kind in updates:
            part = record.run.config if kind == "run" else getattr(record, kind)
            run.parameters |= {k: _show(v) for k, v in _values(part.update).items()}
        elif kind == "exit":
            run.failed = record.exit.exit_code != 0
    run.failure = run.parameters.pop("failure", None)
    return name, job, run, history


def _values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _show(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _wandb_records(path: Path) -> Iterator[Any]:
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    parts = b""
    for kind, data in _chunks(path.read_bytes()):
        parts = data if kind in (1, 2) else parts + data
        if kind in (1, 4):
            yield record_type.FromString(parts)


def _chunks(content: bytes) -> Iterator[tuple[int, bytes]]:
    """LevelDB's log: blocks of 32 KiB, each chunk after its checksum, length and kind."""
    block, header = 32768, struct.Struct("<IHB")
    at = 7  # after W&B's own mark
    while at + header.size <= len(content):
        if block - at % block < header.size:
            at += block - at % block
            continue
        _, length, kind = header.unpack_from(content, at)
        at += header.size
        yield kind, content[at : at + length]
        at += length
