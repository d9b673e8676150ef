"""Turns what a trial would tell trackers without a variable of their own away from the user.

TensorBoard's files go below the trial's folder, and Accelerate has no trackers. Acts once their
modules are imported, if they ever are. Not: trackers that a variable silences (the launcher).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDERS = ("log_dir", "logdir")
"""Names of a writer's folder, its first argument."""


class SideOutputs(MetaPathFinder):
    """Steps aside for whoever finds a module, and changes it when its import is done."""

    def __init__(self, folder: str) -> None:
        """``folder`` is the trial's."""
        self._folder = Path(folder) / "tensorboard"

    def install(self) -> None:
        """Listen from here on; at once for what is imported already."""
        sys.meta_path.insert(0, self)
        for name in _CHANGES.keys() & sys.modules.keys():
            self._change(sys.modules[name])

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name not in _CHANGES:
            return None
        spec = self._found(name, path, target)
        if spec is not None and spec.loader is not None:
            self._change_after(spec.loader)
        return spec

    def _found(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _change_after(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            self._change(module)

        loader.exec_module = exec_module

    def _change(self, module: ModuleType) -> None:
        with suppress(Exception):  # another version: the files then stand where the script says
            _CHANGES[module.__name__](module, self._folder)


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


_CHANGES: dict[str, Callable[[Any, Path], None]] = {
    "torch.utils.tensorboard.writer": _writes_elsewhere,
    "tensorboardX.writer": _writes_elsewhere,
    "accelerate.tracking": _without_trackers,
}
