"""A trial's saved files, kept away from the user's own files.

A checkpoint of a trial would be loaded by the next one, and by the training itself; one that the
user has would be overwritten. What is saved before the first backward pass is data, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .after_import import change_on_import
from .file_calls import FileCalls
from .trial_paths import TrialPaths

_LOOKED_INTO = 100
"""Entries of a container, when it is looked whether it holds tensors."""
_DEEP = 3


class SaveListener(Protocol):
    """Is told of tensors that the training saves."""

    def saves(self) -> None:
        """Tensors are about to be written."""

    def on_save(self, size_bytes: int) -> None:
        """Tensors were written."""


class SavedFiles:
    """Follows ``torch.save`` and what else writes checkpoints; one for each process."""

    def __init__(self, folder: str, was_there: Callable[[Path], bool]) -> None:
        """``folder`` is the trial's; ``was_there`` says of a path whether it is the user's."""
        self.paths = TrialPaths(folder, was_there)
        self._calls = FileCalls(self.paths)
        self._listener: SaveListener | None = None

    def install(self) -> None:
        """Listen from here on, in children that are forked, too."""
        torch.save = self._follow_save(torch.save)
        torch.load = self._follow_load(torch.load)
        change_on_import(dict.fromkeys((*_WRITERS, *_READERS, *_FOLDER_WRITERS), self._change))
        self._calls.install()
        self.paths.live()

    def begin(self) -> None:
        """The first backward pass begins: what is written from here on is of a training."""
        self.paths.trains = True

    def listen(self, listener: SaveListener) -> None:
        """Tell of tensors that are saved from here on."""
        self._listener = listener

    def _change(self, module: ModuleType) -> None:
        for name in _WRITERS.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, self._follow_save(getattr(module, name)))
        for name in _READERS.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, self._follow_load(getattr(module, name)))
        for kind, name in _FOLDER_WRITERS.get(module.__name__, ()):
            if hasattr(module, kind):
                owner = getattr(module, kind)
                setattr(owner, name, self._into_folder(getattr(owner, name)))

    def _follow_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function of what is saved and where, by place or by name."""

        @wraps(original)
        def save(*arguments: Any, **named: Any) -> Any:
            if len(arguments) > 1:
                arguments = (arguments[0], self._target(arguments[1]), *arguments[2:])
            named = {k: self._target(v) if k in _WHERE else v for k, v in named.items()}
            with self._tell_of_save(
                _argument(arguments, named, 0, _WHAT), _argument(arguments, named, 1, _WHERE)
            ):
                return original(*arguments, **named)

        return save

    def _into_folder(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A method of a folder, whose files are not all written by Python."""

        @wraps(original)
        def save(this: Any, *arguments: Any, **named: Any) -> Any:
            places = tuple(map(self._folder, arguments[:1]))
            named = {k: self._folder(v) if k in _FOLDERS else v for k, v in named.items()}
            return original(this, *places, *arguments[1:], **named)

        return save

    def _folder(self, folder: Any) -> Any:
        path = self.paths.path(folder) if self.paths.trains else None
        place = path and self.paths.folder(path)
        return folder if place == path else str(place)

    @contextmanager
    def _tell_of_save(self, obj: object, place: Any) -> Iterator[None]:
        """Tell of it, unless it goes to memory alone or holds no tensors."""
        listener = self._listener
        if listener is None or hasattr(place, "getbuffer") or not _holds_tensors(obj):
            yield
            return
        before = _size_bytes(place) if hasattr(place, "tell") else 0
        with suppress(Exception):  # our own errors are none of the script's
            listener.saves()
        yield
        with suppress(Exception):
            listener.on_save(max(0, _size_bytes(place) - before))

    def _follow_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A function of where, by place or by name, that may not open it as Python does."""

        @wraps(original)
        def load(*arguments: Any, **named: Any) -> Any:
            where = tuple(self._calls.read(file) for file in arguments[:1])
            named = {k: self._calls.read(v) if k in _WHERE else v for k, v in named.items()}
            return original(*where, *arguments[1:], **named)

        return load

    def _target(self, file: Any) -> Any:
        """File to write: the script's own, but never over a file that is not the trial's."""
        name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
        if (path := self.paths.path(name)) is None:
            return file
        behind = self.paths.behind(path)
        if not self.paths.trains:
            self.paths.wrote(behind)
            return file
        place = self.paths.target(behind, checkpoint=True)
        is_moved = name is file and place != Path(os.path.realpath(path))
        return place if is_moved else file


_WHAT = ("obj", "tensors", "checkpoint", "state_dict")
_WHERE = ("f", "filename", "filepath")
_FOLDERS = ("save_directory",)
_WRITERS: dict[str, tuple[str, ...]] = {
    "safetensors.torch": ("save_file",),
    "lightning.fabric.utilities.cloud_io": ("_atomic_save",),
    "lightning_fabric.utilities.cloud_io": ("_atomic_save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "save_state_dict", "async_save"),
}
"""Functions of other modules that write checkpoints."""
_READERS: dict[str, tuple[str, ...]] = {
    "safetensors": ("safe_open",),
    "safetensors.torch": ("load_file", "safe_open"),
}
"""Functions that read checkpoints without Python's files."""
_FOLDER_WRITERS: dict[str, tuple[tuple[str, str], ...]] = {
    "transformers.tokenization_utils_base": (("PreTrainedTokenizerBase", "save_pretrained"),),
}
"""Classes and their methods that write a folder otherwise than by Python's files."""


def _argument(
    arguments: tuple[Any, ...], named: Mapping[str, Any], index: int, names: tuple[str, ...]
) -> Any:
    if len(arguments) > index:
        return arguments[index]
    return next((named[name] for name in names if name in named), None)


def _size_bytes(place: Any) -> int:
    """Size of a file by its path, or so far of an open one; 0 where there is neither.

    torch's distributed checkpoint writes through a wrapper that does not know its place.
    """
    for file in (place, getattr(place, "raw", place)):
        with suppress(OSError, ValueError, TypeError):
            if hasattr(file, "tell"):
                return int(file.tell())
    with suppress(OSError, ValueError, TypeError):
        path = Path(os.fspath(place))
        return path.stat().st_size if path.is_file() else 0
    return 0


def _holds_tensors(obj: object, deep: int = _DEEP) -> bool:
    if isinstance(obj, (Tensor, nn.Module)):
        return True
    if not isinstance(obj, (Mapping, list, tuple)) or not deep:
        return False
    inside = obj.values() if isinstance(obj, Mapping) else obj
    return any(_holds_tensors(value, deep - 1) for value in islice(inside, _LOOKED_INTO))
