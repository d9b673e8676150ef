"""The tracker Weights & Biases: a run per launch in a group per study.

Its own variables (``WANDB_MODE``, ``WANDB_BASE_URL``, ``WANDB_ENTITY``, …) count. Nothing about
the machine, git or installed packages is sent.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from .base import Metrics, TrackedBest, TrackedChoice, TrackedStudy, TrackedTrial, read_key

DEFAULT_PROJECT = "autoconf-launch"
LONGEST_NAME = 128
_DIGEST = 8
_KEPT_END = 40
"""Characters kept at the end of a long name: its last word is the phase, such as ``_round1``."""
_CONNECT_WITHIN_S = 10.0
_KEY_VARIABLE = "WANDB_API_KEY"
_SETTINGS: dict[str, object] = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_job_creation": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    "init_timeout": _CONNECT_WITHIN_S,
}


class WandbTracker:
    """The study has its own run; if W&B cannot be reached, all are kept on disk."""

    requires: ClassVar[str] = "wandb"

    def __init__(self, study: TrackedStudy) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        if study.api_key_file is not None:
            os.environ[_KEY_VARIABLE] = read_key(study.api_key_file)
        self._wandb: Any = import_module("wandb")
        self._id = study.id
        self._name = study.name
        self._project = study.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
        self._folder = Path(os.environ.get("WANDB_DIR") or study.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mode: str | None = None
        self._trouble: str | None = None
        self._study: Any = self._open_study()
        self._chosen = False

    @property
    def where(self) -> str:
        return str(self._folder / "wandb" if self._study.offline else self._study.url)

    @property
    def trouble(self) -> str | None:
        return self._trouble

    def log_trial(self, trial: TrackedTrial) -> None:
        parameters = {**dict(trial.parameters), "phase": trial.phase.value, "trial": trial.number}
        run = self._init(trial.run, self._run_id(trial.key), "trial", parameters)
        run.log(dict(trial.metrics))
        if trial.failure:
            run.summary["failure"] = trial.failure
        run.finish(exit_code=1 if trial.failure else 0)

    def log_best(self, best: TrackedBest) -> None:
        """Metrics ``best/…`` over the number of finished launches, and the run's name."""
        metrics = _add_prefix("best/", best.metrics)
        self._study.log({"finished": best.finished, **metrics}, step=best.finished)
        self._study.summary["best/run"] = best.run

    def log_choice(self, choice: TrackedChoice) -> None:
        """The study's summary has ``choice/…``; its config is the candidate."""
        self._study.config.update(dict(choice.parameters), allow_val_change=True)
        metrics = _add_prefix("choice/", choice.metrics)
        self._study.summary.update({"choice/run": choice.run, **metrics})
        self._chosen = True

    def close(self) -> None:
        self._study.finish(exit_code=0 if self._chosen else 1)

    def _open_study(self) -> Any:
        try:
            return self._init(self._name, self._id, "study", {})
        except Exception as error:
            self._mode = "offline"
            first = str(error).strip().splitlines()[0] if str(error).strip() else ""
            self._trouble = (
                f"it cannot be reached ({type(error).__name__}: {first}), so runs are kept in "
                f"{self._folder / 'wandb'}; send them later with: wandb sync"
            )
            self._wandb.teardown()  # it takes the run for one in use
            return self._init(self._name, self._id, "study", {})

    def _init(self, name: str, run_id: str, job: str, parameters: dict[str, Any]) -> Any:
        return self._wandb.init(
            project=self._project,
            name=shorten_name(name),
            id=run_id,
            group=f"{self._name}_{self._id[:8]}",
            job_type=job,
            config=parameters,
            dir=str(self._folder),
            mode=self._mode,
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(**_SETTINGS),
        )

    def _run_id(self, key: str) -> str:
        return f"{self._id[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def shorten_name(name: str) -> str:
    """A name that W&B accepts; of a longer one, both ends with a digest between them."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    start = LONGEST_NAME - _KEPT_END - _DIGEST - 2
    return f"{name[:start]}_{digest}_{name[-_KEPT_END:]}"


def _add_prefix(prefix: str, metrics: Metrics) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in metrics}
