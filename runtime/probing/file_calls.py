"""File calls of a training that would change the user's checkpoints. Not: the saving.

Scripts save beside the file and rename, open it themselves, or remove all but the last ones.
What the trial wrote instead of a file is what it reads. Other files are left alone.
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
from weakref import WeakValueDictionary

from .late_file import LateFile
from .trial_paths import TrialPaths

_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".distcp"})
_METADATA = (".metadata", ".metadata.tmp")
"""How names end of what stands beside ``.distcp`` files."""
_RENAMES = ("replace", "rename")
_REMOVALS = ("remove", "unlink")
_PATHLIBS_OWN = getattr(pathlib, "_NormalAccessor", None)
"""Where Python 3.10's paths keep what they call."""


class FileCalls:
    """Follows them in one process, from ``begin`` on."""

    def __init__(self, paths: TrialPaths) -> None:
        self._paths = paths
        self._training = False
        self._late: WeakValueDictionary[Path, LateFile] = WeakValueDictionary()

    def install(self) -> None:
        """Stand before them."""
        for name in _RENAMES:
            _stand_before((os,), name, self._rename)
        for name in _REMOVALS:
            _stand_before((os,), name, self._remove)
        _stand_before((shutil,), "rmtree", self._remove_tree)
        _stand_before((io, builtins), "open", self._open)

    def begin(self) -> None:
        """The training has begun."""
        self._training = True

    def saves_into(self, path: Path) -> None:
        """What comes next in an open file is a checkpoint."""
        late = self._late.get(path)
        if late is not None and late.is_whole:
            late.divert(self._paths.target(path))

    def _rename(self, original: Callable[..., Any], src: Any, dst: Any, **named: Any) -> Any:
        """What the trial has saved goes where the trial may write.

        So does all else that would take the place of a checkpoint of the user's.
        """
        path, aim = _path(src), _path(dst)
        if not self._training or path is None or aim is None or named:
            return original(src, dst, **named)
        found = self._paths.found(path)
        if found is None and not (_is_checkpoint(aim) and self._paths.is_users(aim)):
            return original(src, dst)
        place = self._paths.target(aim)
        if found is None and self._paths.is_users(path):
            shutil.copyfile(path, place)
        elif place == aim and found == path:
            original(src, dst)
        else:
            shutil.move(found or path, place)
        self._paths.moved(path)
        return None

    def _remove(self, original: Callable[..., Any], path: Any, **named: Any) -> Any:
        """A checkpoint of the user's stays; what stands for it goes."""
        place = _path(path) if self._training and not named else None
        if place is None or not _is_checkpoint(place) or not self._paths.is_users(place):
            return original(path, **named)
        if (ours := self._paths.found(place)) is not None:
            self._paths.moved(place)
            original(ours)
        return None

    def _remove_tree(
        self, original: Callable[..., Any], path: Any, *rest: Any, **named: Any
    ) -> Any:
        """So does a folder of the user's with checkpoints in it."""
        place = _path(path) if self._training else None
        if place is not None and self._paths.is_users(place) and _has_checkpoints(place):
            return None
        return original(path, *rest, **named)

    def _open(
        self, original: Callable[..., Any], file: Any, mode: Any = "r", *rest: Any, **named: Any
    ) -> Any:
        """A checkpoint of the user's is not opened for new bytes, another file late."""
        if not self._training or not isinstance(mode, str):
            return original(file, mode, *rest, **named)
        if not _writes_bytes(mode):
            return original(self.read(file), mode, *rest, **named)
        path = _path(file)
        if path is None or not self._paths.is_users(path):
            if path is not None and _is_part(path):
                self._paths.target(path)
            return original(file, mode, *rest, **named)
        if _is_checkpoint(path):
            return original(self._paths.target(path), mode, *rest, **named)
        if mode in ("wb", "bw") and path.is_file() and _is_usual(*rest, *named.values()):
            late = self._late[path] = LateFile(file)
            return io.BufferedWriter(late)
        return original(file, mode, *rest, **named)

    def read(self, file: Any) -> Any:
        """The file that the trial wrote under this name, where it did so elsewhere."""
        path = _path(file) if self._paths.has_others else None
        place = self._paths.instead(path) if path else None
        return file if place == path else place


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _stand_before(modules: tuple[ModuleType, ...], name: str, call: Callable[..., Any]) -> None:
    first = modules[0]
    stand = _Stand(first.__name__, name, getattr(first, name), call)
    for holder in filter(None, (*modules, _PATHLIBS_OWN)):
        setattr(holder, name, stand)


def _is_checkpoint(path: Path) -> bool:
    return path.suffix in _SUFFIXES or _is_part(path)


def _is_part(path: Path) -> bool:
    """Of a checkpoint that torch writes in many files, and nobody writes anything else so."""
    return path.suffix == ".distcp" or path.name.endswith(_METADATA)


def _has_checkpoints(folder: Path) -> bool:
    return any(_is_checkpoint(Path(name)) for _, _, names in os.walk(folder) for name in names)


def _path(file: Any) -> Path | None:
    """The absolute path; None for a descriptor, or where it is no text."""
    name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else None
    return Path(name).absolute() if isinstance(name, str) else None


def _writes_bytes(mode: str) -> bool:
    return "b" in mode and not {"w", "a"}.isdisjoint(mode)


def _is_usual(*how: Any) -> bool:
    """Whether these arguments of ``open`` behind its mode ask for nothing."""
    return all(value in (-1, None) for value in how)
