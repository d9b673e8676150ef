"""Opens and renames of a training's checkpoints, kept off the user's files. Not: the saving.

Scripts save beside the file and rename, or open it themselves. Other files are left alone.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .trial_paths import TrialPaths

_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar"})
_RENAMES = ("replace", "rename")
_PATHLIBS_OWN = getattr(pathlib, "_NormalAccessor", None)
"""Where Python 3.10's paths keep what they call."""


class FileCalls:
    """Follows them in one process, from ``begin`` on."""

    def __init__(self, paths: TrialPaths) -> None:
        self._paths = paths
        self._training = False

    def install(self) -> None:
        """Stand before them."""
        for name in _RENAMES:
            _stand_before((os,), name, self._rename)
        _stand_before((io, builtins), "open", self._open)

    def begin(self) -> None:
        """The training has begun."""
        self._training = True

    def _rename(self, original: Callable[..., Any], src: Any, dst: Any, **named: Any) -> Any:
        """What the trial has saved goes where the trial may write."""
        path, aim = _path(src), _path(dst)
        found = self._paths.found(path) if self._training and path and not named else None
        if path is None or aim is None or found is None:
            return original(src, dst, **named)
        place = self._paths.target(aim)
        if place == aim and found == path:
            original(src, dst)
        else:
            shutil.move(found, place)
        self._paths.moved(path)
        return None

    def _open(
        self, original: Callable[..., Any], file: Any, mode: Any = "r", *rest: Any, **named: Any
    ) -> Any:
        """A checkpoint of the user's is not opened for new bytes."""
        if self._training and _writes_bytes(mode):
            path = _path(file)
            if path and path.suffix in _SUFFIXES and self._paths.is_users(path):
                return original(self._paths.target(path), mode, *rest, **named)
        return original(file, mode, *rest, **named)


class _Stand:
    """No function: as a member of a class it is no method. It is saved by its name."""

    def __init__(
        self, module: str, name: str, original: Callable[..., Any], call: Callable[..., Any]
    ) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name, name
        self.__doc__ = original.__doc__
        self.__wrapped__ = original
        self._call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._call(self.__wrapped__, *arguments, **named)

    def __reduce__(self) -> str:
        return self.__name__


def _stand_before(modules: tuple[ModuleType, ...], name: str, call: Callable[..., Any]) -> None:
    first = modules[0]
    stand = _Stand(first.__name__, name, getattr(first, name), call)
    for holder in filter(None, (*modules, _PATHLIBS_OWN)):
        setattr(holder, name, stand)


def _path(file: Any) -> Path | None:
    """The absolute path; None for a descriptor, or where it is no text."""
    name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else None
    return Path(name).absolute() if isinstance(name, str) else None


def _writes_bytes(mode: Any) -> bool:
    return isinstance(mode, str) and "b" in mode and not {"w", "a"}.isdisjoint(mode)
