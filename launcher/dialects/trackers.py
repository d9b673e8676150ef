"""How experiment trackers are kept silent in trials, by variables alone. Not: our own trackers.

Sources: each tool's documentation of its environment variables.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """A tool that training scripts report to; ``folder`` variables point into the trial's."""

    name: str
    variables: tuple[tuple[str, str], ...] = ()
    folder_variables: tuple[tuple[str, str], ...] = ()


TRACKERS = (
    Tracker(name="Weights & Biases", variables=(("WANDB_MODE", "disabled"),)),
    Tracker(
        name="MLflow",
        variables=(("DISABLE_MLFLOW_INTEGRATION", "TRUE"),),
        folder_variables=(("MLFLOW_TRACKING_URI", "file:{folder}/mlruns"),),
    ),
    Tracker(
        name="Comet",
        variables=(("COMET_MODE", "DISABLED"), ("COMET_START_ONLINE", "0")),
    ),
    Tracker(name="Neptune", variables=(("NEPTUNE_MODE", "debug"),)),
    Tracker(name="ClearML", variables=(("CLEARML_OFFLINE_MODE", "1"),)),
    Tracker(name="SwanLab", variables=(("SWANLAB_MODE", "disabled"),)),
    Tracker(name="DVCLive", variables=(("DVC_STUDIO_OFFLINE", "true"),)),
    Tracker(name="Trackio", folder_variables=(("TRACKIO_DIR", "{folder}/trackio"),)),
    Tracker(name="CodeCarbon", variables=(("CODECARBON_SAVE_TO_API", "false"),)),
)
"""TensorBoard has no such variable: the probe turns its files to the trial's folder."""


def silent(folder: str) -> tuple[tuple[str, str], ...]:
    """Variables of a trial whose folder this is."""
    fixed = [pair for tracker in TRACKERS for pair in tracker.variables]
    here = [
        (name, value.format(folder=folder))
        for tracker in TRACKERS
        for name, value in tracker.folder_variables
    ]
    return (*fixed, *here)
