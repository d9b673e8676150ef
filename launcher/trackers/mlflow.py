"""The tracker MLflow: runs below one run of the study.

The store is ``MLFLOW_TRACKING_URI``, else files in the tracker's own folder.
"""

from __future__ import annotations

import os
import re
import time
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from .base import Metrics, Parameters, TrackedBest, TrackedChoice, TrackedStudy, TrackedTrial

DEFAULT_EXPERIMENT = "autoconf-launch"
_STUDY_TAG = "autoconf_launch.study"
_PARENT_TAG = "mlflow.parentRunId"
_NOT_IN_NAMES = re.compile(r"[^\w.\- /]")
_DEFAULTS = (
    ("MLFLOW_ALLOW_FILE_STORE", "true"),
    ("MLFLOW_DISABLE_TELEMETRY", "true"),
    ("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"),
    ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
)


class MlflowTracker:
    """An experiment for the project; a run for the study, and one for each launch below it."""

    requires: ClassVar[str] = "mlflow"

    def __init__(self, study: TrackedStudy) -> None:
        for name, value in _DEFAULTS:
            os.environ.setdefault(name, value)
        tracking = import_module("mlflow.tracking")
        self._entities: Any = import_module("mlflow.entities")
        own = (Path(study.folder) / "mlruns").as_uri()
        self._where = os.environ.get("MLFLOW_TRACKING_URI") or own
        self._client: Any = tracking.MlflowClient(tracking_uri=self._where)
        self._experiment = self._find_experiment(study.project)
        self._study = self._find_study(study)
        self._chosen = False

    @property
    def where(self) -> str:
        return self._where

    @property
    def trouble(self) -> str | None:
        return None

    def log_trial(self, trial: TrackedTrial) -> None:
        tags = {_PARENT_TAG: self._study, "phase": trial.phase.value, "trial": str(trial.number)}
        if trial.failure:
            tags["failure"] = trial.failure
        run = self._client.create_run(self._experiment, run_name=trial.run, tags=tags)
        self._log(run.info.run_id, trial.metrics, trial.parameters)
        status = "FAILED" if trial.failure else "FINISHED"
        self._client.set_terminated(run.info.run_id, status=status)

    def log_best(self, best: TrackedBest) -> None:
        """Metrics ``best_…`` over the number of finished launches."""
        self._log(self._study, _add_prefix("best_", best.metrics), step=best.finished)
        self._client.set_tag(self._study, "best", best.run)

    def log_choice(self, choice: TrackedChoice) -> None:
        """The study's parameters are the chosen ones; a later session may choose others."""
        self._log(self._study, _add_prefix("choice_", choice.metrics))
        for name, value in (("choice", choice.run), *choice.parameters):
            self._client.set_tag(self._study, _name(name), str(value))
        self._chosen = True

    def close(self) -> None:
        self._client.set_terminated(self._study, status="FINISHED" if self._chosen else "KILLED")

    def _find_experiment(self, project: str | None) -> str:
        name = project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known else self._client.create_experiment(name))

    def _find_study(self, study: TrackedStudy) -> str:
        known = self._client.search_runs(
            [self._experiment], filter_string=f"tags.`{_STUDY_TAG}` = '{study.id}'", max_results=1
        )
        if known:
            run_id = str(known[0].info.run_id)
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {_STUDY_TAG: study.id}
        run = self._client.create_run(self._experiment, run_name=study.name, tags=tags)
        return str(run.info.run_id)

    def _log(
        self, run_id: str, metrics: Metrics, parameters: Parameters = (), step: int = 0
    ) -> None:
        now_ms = int(1e3 * time.time())
        values = [self._entities.Metric(_name(n), v, now_ms, step) for n, v in metrics]
        params = [self._entities.Param(_name(n), str(v)) for n, v in parameters]
        self._client.log_batch(run_id, metrics=values, params=params)


def _add_prefix(prefix: str, metrics: Metrics) -> Metrics:
    return tuple((f"{prefix}{name}", value) for name, value in metrics)


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text)
