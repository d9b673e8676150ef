"""A trial's saved files, kept away from the user's own files.

A checkpoint of a trial would be loaded by the next trial, and by the training itself; it would
also overwrite the user's. Files saved before the first backward pass are data, and stay.
Python's calls that write, make, rename and remove files are sent if ``trial_paths`` says.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from autoconf_launch.core import is_part

from .after_import import change_on_import
from .trial_paths import TrialPaths

_PATHLIBS_OWN = getattr(pathlib, "_NormalAccessor", None)
"""Object with the functions that Python 3.10's paths call."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_CREAT | os.O_APPEND
_TEMPORARY = getattr(os, "O_TMPFILE", 0)
_OPEN_FILES = "/proc/self/fd"
_LOOKED_INTO = 100
"""Entries of a container, when it is looked whether it holds tensors."""
_DEEP = 3
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


class SaveListener(Protocol):
    """Receives tensors that the training saves."""

    def saves(self) -> None:
        """Tensors are about to be written."""

    def on_save(self, size_bytes: int) -> None:
        """Tensors were written."""


class SavedFiles:
    """Follows ``torch.save`` and other functions that write checkpoints; one for each process."""

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
        """The first backward pass begins: files written from here on belong to the training."""
        self.paths.trains = True

    def listen(self, listener: SaveListener) -> None:
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
        """A function of an object and its path, by place or by name."""

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
        """Tell of it, unless it goes to memory only or holds no tensors."""
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
        """A function of if, by place or by name, that may not open it as Python does."""

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


def _argument(
    arguments: tuple[Any, ...], named: Mapping[str, Any], index: int, names: tuple[str, ...]
) -> Any:
    if len(arguments) > index:
        return arguments[index]
    return next((named[name] for name in names if name in named), None)


def _size_bytes(place: Any) -> int:
    """Size of a file by its path, or so far of an open one; 0 if there is neither.

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


class FileCalls:
    """Follows them in one process."""

    def __init__(self, paths: TrialPaths) -> None:
        self._paths = paths

    def install(self) -> None:
        for name in ("replace", "rename"):
            _stand_before((os,), name, self._rename)
        for name in ("remove", "unlink"):
            _stand_before((os,), name, self._remove)
        _stand_before((os,), "open", self._open_descriptor)
        _stand_before((os,), "truncate", self._truncate)
        _stand_before((os,), "link", self._link)
        _stand_before((os,), "symlink", self._symlink)
        _stand_before((os,), "mkdir", self._make_folder)
        _stand_before((shutil,), "rmtree", self._remove_tree)
        _stand_before((io, builtins), "open", self._open)

    def read(self, file: Any) -> Any:
        """The file that the trial wrote under this name, if it did so elsewhere."""
        if not self._paths.has_others or (path := self._paths.path(file)) is None:
            return file
        place = self._paths.read(path)
        return file if place == path else place

    def _open(
        self, original: Callable[..., Any], file: Any, mode: Any = "r", *rest: Any, **named: Any
    ) -> Any:
        if not isinstance(mode, str) or {"w", "a", "x", "+"}.isdisjoint(mode):
            return original(self.read(file), mode, *rest, **named)
        if (path := self._paths.path(file)) is not None:
            place = self._place_to_write(self._paths.behind(path), mode)
            file = file if place == Path(os.path.realpath(path)) else place
        return original(file, mode, *rest, **named)

    def _open_descriptor(
        self, original: Callable[..., Any], path: Any, flags: int, *rest: Any, **named: Any
    ) -> Any:
        """``os.open``: by the meaning of its flags, as :meth:`_open` by its mode."""
        is_nameless = flags & _TEMPORARY == _TEMPORARY != 0
        if is_nameless or (aim := self._path(path, named.get("dir_fd"))) is None:
            return original(path, flags, *rest, **named)
        if not flags & _WRITES:
            is_folder = aim.is_dir() and not self._paths.made_anew(aim)
            place = self._paths.read(aim) if self._paths.has_others and not is_folder else aim
        else:
            mode = "w" if flags & os.O_TRUNC else "a" if flags & os.O_CREAT else "+"
            mode = "x" if flags & os.O_EXCL else mode
            place = self._place_to_write(self._paths.behind(aim), mode)
            if place == Path(os.path.realpath(aim)):
                place = aim
        if place == aim:
            return original(path, flags, *rest, **named)
        named.pop("dir_fd", None)
        is_there = os.path.lexists(aim) and not self._paths.made_anew(aim)
        creates = flags & _WRITES and is_there
        return original(place, flags | os.O_CREAT if creates else flags, *rest, **named)

    def _truncate(self, original: Callable[..., Any], path: Any, length: int) -> None:
        if (aim := self._paths.path(path)) is not None:
            path = self._place_to_write(self._paths.behind(aim), "+")
        original(path, length)

    def _path(self, path: Any, folder: int | None) -> Path | None:
        return self._paths.path(_from_descriptor(path, folder))

    def _place_to_write(self, path: Path, mode: str) -> Path:
        if not self._paths.trains:
            self._paths.wrote(path)
            return path
        if "x" in mode and self._paths.is_users(path) and not self._paths.made_anew(path):
            return path  # it is there, as Python will say
        if "w" in mode or "a" in mode or "x" in mode:
            return self._paths.target(path, checkpoint=is_part(path), copies="a" in mode)
        return self._paths.edit_target(path)

    def _make_folder(
        self, original: Callable[..., Any], path: Any, *rest: Any, **named: Any
    ) -> None:
        """Make a folder; a folder that the script has removed, in its view, still exists."""
        place = self._path(path, named.get("dir_fd"))
        try:
            original(path, *rest, **named)
        except FileExistsError:
            if place is None or not self._paths.made_anew(place):
                raise
            return
        if place is not None:
            self._paths.made_folder(place)

    def _rename(self, original: Callable[..., Any], src: Any, dst: Any, **named: Any) -> Any:
        """The trial's file moves if the trial may write; the user's file is copied there."""
        path = self._path(src, named.get("src_dir_fd"))
        aim = self._path(dst, named.get("dst_dir_fd"))
        if not self._paths.trains or path is None or aim is None:
            return original(src, dst, **named)
        source = self._paths.locate(path)
        is_users = source == path and self._paths.keeps(path)
        if not os.path.lexists(source) or (self._is_full_folder(aim) and not is_users):
            return original(src, dst, **named)
        place = self._paths.target(aim)
        if is_users:
            _copy(source, place)
            self._paths.on_removal(path)
        elif place == aim and source == path:
            original(src, dst, **named)
        else:
            _clear(place)
            shutil.move(source, place)
        self._paths.on_move(path)
        return None

    def _is_full_folder(self, path: Path) -> bool:
        """True if nothing can be renamed to it, as the system will say."""
        return path.is_dir() and self._paths.keeps(path) and not self._paths.made_anew(path)

    def _link(self, original: Callable[..., Any], src: Any, dst: Any, **named: Any) -> Any:
        """Make a second name of the trial's file, never of a user's file."""
        path = self._path(src, named.pop("src_dir_fd", None))
        aim = self._path(dst, named.pop("dst_dir_fd", None))
        if not self._paths.trains or path is None or aim is None:
            return original(path or src, aim or dst, **named)
        source, place = self._paths.locate(path), self._paths.target(aim)
        if source == path and self._paths.keeps(path):
            return _copy(source, place)
        return original(source, place, **named)

    def _symlink(
        self, original: Callable[..., Any], src: Any, dst: Any, *rest: Any, **named: Any
    ) -> Any:
        aim = self._path(dst, named.get("dir_fd"))
        if not self._paths.trains or aim is None:
            return original(src, dst, *rest, **named)
        place = self._paths.target(aim)
        self._paths.on_link()
        if place == aim:
            return original(src, dst, *rest, **named)
        named.pop("dir_fd", None)
        return original(aim.parent / src, place, *rest, **named)

    def _remove(self, original: Callable[..., Any], path: Any, **named: Any) -> Any:
        """The user's file stays; the trial's copy of it goes."""
        place = self._path(path, named.get("dir_fd"))
        self._paths.on_link()
        if place is None or not self._paths.trains or not self._paths.keeps(place):
            return original(path, **named)
        if (ours := self._paths.locate(place)) != place:
            original(ours)
        self._paths.on_removal(place)
        return None

    def _remove_tree(
        self, original: Callable[..., Any], path: Any, *rest: Any, **named: Any
    ) -> Any:
        place = self._paths.path(path) if self._paths.trains else None
        if place is None or not place.is_dir() or not self._paths.keeps(place):
            return original(path, *rest, **named)
        if (ours := self._paths.locate(place)) != place:
            original(ours)
        for made in self._paths.made_below(place):
            _clear(made)
            self._paths.on_move(made)
        self._paths.on_removal(place)
        return None


class _Stand:
    """No function: as a member of a class it is not a method. It is saved by its name."""

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


def _from_descriptor(path: Any, folder: int | None) -> Any:
    """A path that may begin at a folder that is open, without it; a descriptor as it is."""
    if folder is None or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    try:
        above = os.readlink(f"{_OPEN_FILES}/{folder}")  # noqa: PTH115
        return os.path.join(above, os.fsdecode(path))  # noqa: PTH118
    except OSError:
        return path if os.path.isabs(path) else None  # noqa: PTH117


def _copy(source: Path, place: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, place)


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
