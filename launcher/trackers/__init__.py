"""Trackers, which keep the runs of a study: one row each.

A tracker's library is imported only in its own process (outlet).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..extension_points import load_reference
from ..input_file import input_text
from ..request import TrackingChoice
from .base import TRACKERS, Feed, Tracker, feed_of, find_tracker
from .outlet import track_events


def check_tracking(choice: TrackingChoice) -> None:
    """Check that every tracker can be made, before anything is launched.

    Raises:
        ConfigError: no tracker has this name, its library is missing, or the file of the key has
            none.
    """
    for name in choice.trackers:
        reference = find_tracker(name)
        if name in TRACKERS:
            _require(name, reference)
    if "wandb" in choice.trackers and choice.wandb_key_file is not None:
        read_key(choice.wandb_key_file)


def read_key(path: str) -> str:
    """The key on the first line of a file.

    Raises:
        ConfigError: the file cannot be read, or its first line is empty.
    """
    try:
        lines = input_text(Path(path).expanduser()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(
            f"{path} for the Weights & Biases key cannot be read: {reason}; give the path of a "
            "file that has the key on its first line."
        ) from error
    if not lines or not lines[0].strip():
        raise ConfigError(f"{path} must have the Weights & Biases key on its first line.")
    return lines[0].strip()


def _require(name: str, reference: str) -> None:
    package = load_reference(reference).requires
    found = find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is no library
        raise ConfigError(
            f"--report-to {name} needs the package {package}, which is not installed; "
            f"pip install 'autoconf-launch[{name}]', or remove {name}."
        )
