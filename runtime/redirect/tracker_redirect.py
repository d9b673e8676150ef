"""Turns what a trial would tell trackers without a variable of their own away from the user.

TensorBoard's files go below the trial's folder, and Accelerate's one tracker does nothing. Not:
trackers that a variable silences (the launcher).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from .after_import import change_on_import

_FOLDERS = ("log_dir", "logdir")
"""Names of a writer's folder, its first argument."""


def silence(folder: str) -> None:
    """Turn them away from here on; ``folder`` is the trial's."""
    below = Path(folder) / "tensorboard"
    change_on_import({name: partial(change, folder=below) for name, change in _CHANGES.items()})


def _writes_elsewhere(module: Any, folder: Path) -> None:
    """Event files of ``SummaryWriter``; what it says of its folder stays."""
    original = module.FileWriter.__init__

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        kept = {name: value for name, value in named.items() if name not in _FOLDERS}
        original(self, str(folder), *arguments[1:], **kept)

    module.FileWriter.__init__ = __init__


class _AnyName(str):
    """Equal to every name: of the one tracker that is there, whichever was asked for."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)


class _Nothing:
    """Whatever is asked of it or done with it, nothing happens."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self

    def __getitem__(self, key: object) -> Any:
        return self

    def __setitem__(self, key: object, value: object) -> None:
        pass


def _without_trackers(module: Any, folder: Path) -> None:
    """An Accelerator finds one that does nothing, where the script wants any."""

    class Silent(_Nothing, module.GeneralTracker):  # type: ignore[misc]
        name = _AnyName("silent")
        requires_logging_directory = main_process_only = False
        tracker = _Nothing()

        def __init__(self) -> None:
            super().__init__(_blank=True)

        store_init_configuration = log = log_images = start = finish = lambda *_, **__: None

    def keep_silent(log_with: Any, *_: object, **__: object) -> list[object]:
        return [Silent()] if log_with else []

    module.filter_trackers = keep_silent


_CHANGES: dict[str, Callable[..., None]] = {
    "torch.utils.tensorboard.writer": _writes_elsewhere,
    "tensorboardX.writer": _writes_elsewhere,
    "accelerate.tracking": _without_trackers,
}
