"""The tracker TensorBoard: an event file per run, with the parameters for its HParams page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from .base import Metrics, Parameters, TrackedBest, TrackedChoice, TrackedStudy, TrackedTrial

_STUDY = "study"
_BEST = "best/"
_CHOICE = "choice/"


class TensorBoardTracker:
    """Each run is a folder below ``<folder>/runs``; the study has one more, named ``study``."""

    requires: ClassVar[str] = "tensorboard"

    def __init__(self, study: TrackedStudy) -> None:
        self._folder = Path(study.folder) / "runs"
        self._format = _Format()
        self._study = self._format.writer(self._folder / _STUDY)

    @property
    def where(self) -> str:
        return str(self._folder)

    @property
    def trouble(self) -> str | None:
        return None

    def log_trial(self, trial: TrackedTrial) -> None:
        """Scalars at step 0, and the parameters with the trial's end."""
        make = self._format
        failed = trial.failure is not None
        texts = (("failure", trial.failure),) if trial.failure else ()
        with closing(make.writer(self._folder / re.sub(r"[/\0]", "_", trial.run))) as writer:
            writer.add_event(make.event(make.session_start(trial.parameters, trial.run)))
            writer.add_event(make.event(make.scalars("", trial.metrics)))
            writer.add_event(make.event(make.texts(texts)))
            writer.add_event(make.event(make.session_end(failed=failed)))

    def log_best(self, best: TrackedBest) -> None:
        """Scalars ``best/…`` over the number of finished launches."""
        make = self._format
        values = [*make.scalars(_BEST, best.metrics), *make.texts([(f"{_BEST}run", best.run)])]
        self._study.add_event(make.event(values, step=best.finished))
        self._study.flush()

    def log_choice(self, choice: TrackedChoice) -> None:
        make = self._format
        told = [("run", choice.run), *((name, str(value)) for name, value in choice.parameters)]
        texts = make.texts((f"{_CHOICE}{name}", text) for name, text in told)
        self._study.add_event(make.event([*make.scalars(_CHOICE, choice.metrics), *texts]))

    def close(self) -> None:
        self._study.close()


class _Format:
    """TensorBoard's messages; imports the package when it is made."""

    def __init__(self) -> None:
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._writer: Any = writer.EventFileWriter
        self._event: Any = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._tensor: Any = import_module("tensorboard.util.tensor_util").make_tensor_proto
        self._text: Any = import_module("tensorboard.plugins.text.metadata")
        self._hparams: Any = import_module("tensorboard.plugins.hparams.metadata")
        self._hparams_data: Any = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
        self._status: Any = import_module("tensorboard.plugins.hparams.api_pb2").Status

    def writer(self, folder: Path) -> Any:
        return self._writer(str(folder))

    def event(self, values: Iterable[Any], step: int = 0) -> Any:
        summary = self._summary(value=list(values))
        return self._event(wall_time=time.time(), step=step, summary=summary)

    def scalars(self, prefix: str, metrics: Metrics) -> list[Any]:
        return [
            self._summary.Value(tag=f"{prefix}{name}", simple_value=value)
            for name, value in metrics
        ]

    def texts(self, texts: Iterable[tuple[str, str]]) -> list[Any]:
        return [
            self._summary.Value(
                tag=tag,
                tensor=self._tensor([text.encode()]),
                metadata=self._text.create_summary_metadata(tag, ""),
            )
            for tag, text in texts
        ]

    def session_start(self, parameters: Parameters, name: str) -> list[Any]:
        info = self._hparams_data.SessionStartInfo(group_name=name, start_time_secs=time.time())
        for parameter, value in parameters:
            if isinstance(value, bool):
                info.hparams[parameter].bool_value = value
            elif isinstance(value, (int, float)):
                info.hparams[parameter].number_value = value
            else:
                info.hparams[parameter].string_value = str(value)
        data = self._hparams_data.HParamsPluginData(session_start_info=info)
        return [self._session(self._hparams.SESSION_START_INFO_TAG, data)]

    def session_end(self, *, failed: bool) -> list[Any]:
        status = "STATUS_FAILURE" if failed else "STATUS_SUCCESS"
        info = self._hparams_data.SessionEndInfo(
            status=self._status.Value(status), end_time_secs=time.time()
        )
        data = self._hparams_data.HParamsPluginData(session_end_info=info)
        return [self._session(self._hparams.SESSION_END_INFO_TAG, data)]

    def _session(self, tag: str, data: Any) -> Any:
        metadata = self._hparams.create_summary_metadata(data)
        return self._summary.Value(tag=tag, metadata=metadata, tensor=self._hparams.NULL_TENSOR)
