"""Turns what a trial would tell trackers without a variable of their own away from the user.

TensorBoard's files go below the trial's folder, and Accelerate has no trackers. Not: trackers
that a variable silences (the launcher).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from .after_import import after_import

_FOLDERS = ("log_dir", "logdir")
"""Names of a writer's folder, its first argument."""


def silence(folder: str) -> None:
    """Turn them away from here on; ``folder`` is the trial's."""
    below = Path(folder) / "tensorboard"
    after_import({name: partial(change, folder=below) for name, change in _CHANGES.items()})


def _writes_elsewhere(module: Any, folder: Path) -> None:
    """Event files of ``SummaryWriter``; what it says of its folder stays."""
    original = module.FileWriter.__init__

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        kept = {name: value for name, value in named.items() if name not in _FOLDERS}
        original(self, str(folder), *arguments[1:], **kept)

    module.FileWriter.__init__ = __init__


def _without_trackers(module: Any, folder: Path) -> None:
    """An Accelerator finds none; its own methods for them do nothing then."""
    module.filter_trackers = _none


def _none(*_: object, **__: object) -> list[object]:
    return []


_CHANGES: dict[str, Callable[..., None]] = {
    "torch.utils.tensorboard.writer": _writes_elsewhere,
    "tensorboardX.writer": _writes_elsewhere,
    "accelerate.tracking": _without_trackers,
}
