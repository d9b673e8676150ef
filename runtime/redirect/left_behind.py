"""Traces that a trial would leave in the user's folder: logs, dated folders, records of trackers.

TensorBoard's files go below the trial's folder, and Accelerate's one tracker does nothing. A
tracker that a variable silences is the launcher's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

from .after_import import change_on_import
from .saved_files import SavedFiles, SaveListener
from .trial_paths import PASSED_OVER

_FOLDERS = ("log_dir", "logdir")
"""Names of a writer's folder, its first argument."""
_DEPTH = 3
_MOST_ENTRIES = 5000
_MOST_SHOWN = 20


class Surroundings:
    """Entries of the working directory at first, three levels deep and 5000 at most."""

    def __init__(self, *, own: str) -> None:
        """``own`` is a folder that belongs to the trial and is passed over."""
        self._folder = Path.cwd()
        self._own = Path(own).resolve()
        self._unseen: set[Path] = set()
        """Folders that were not looked into."""
        self._before = frozenset(self._entries())
        self._unseen_before = frozenset(self._unseen)
        self._saved = SavedFiles(own, self._was_there)

    def guard(self) -> None:
        """Silence trackers, and redirect the training's files."""
        silence(str(self._own))
        self._saved.install()

    def training_begins(self) -> None:
        """Note that training begins: from here on the script's files are not read."""
        self._saved.begin()

    def tell(self, listener: SaveListener) -> None:
        self._saved.listen(listener)

    def new(self) -> tuple[str, ...]:
        """Files left after all that can be moved was moved away."""
        self._saved.paths.put_away()
        return self.leftovers()

    def leftovers(self) -> tuple[str, ...]:
        """Paths that are new or were written, from the working directory; of a folder only itself.

        Those that are moved away later are not among them.
        """
        paths = self._saved.paths
        found: list[str] = []
        for entry in sorted({*self._new_entries(), *map(self._shown_path, paths.leftovers())}):
            inside = any(parent.endswith("/") and entry.startswith(parent) for parent in found)
            if not inside and not paths.is_trials(self._folder / entry):
                found.append(entry)
        return tuple(found[:_MOST_SHOWN])

    def _new_entries(self) -> set[str]:
        if len(self._before) >= _MOST_ENTRIES:
            return set()
        return set(self._entries()) - self._before

    def _shown_path(self, path: Path) -> str:
        is_inside = path.is_relative_to(self._folder)
        name = str(path.relative_to(self._folder) if is_inside else path)
        return f"{name}/" if path.is_dir() else name

    def _was_there(self, path: Path) -> bool:
        """True if a file that is about to be written is not the trial's."""
        real = path.parent.resolve() / path.name  # as the walk calls it: no links, no ".."
        known = real.is_relative_to(self._folder) and len(self._before) < _MOST_ENTRIES
        if not known or not self._unseen_before.isdisjoint((real, *real.parents)):
            return real.exists()
        inside = str(real.relative_to(self._folder))
        return inside in self._before or f"{inside}/" in self._before

    def _entries(self) -> list[str]:
        entries: list[str] = []
        for entry in self._walk(self._folder, _DEPTH):
            entries.append(entry)
            if len(entries) >= _MOST_ENTRIES:
                break
        return entries

    def _walk(self, folder: Path, depth: int) -> Iterator[str]:
        try:
            inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in inside:
            path = Path(entry.path)
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in PASSED_OVER or path == self._own or path in self._own.parents:
                self._unseen.add(path)
                continue
            yield str(path.relative_to(self._folder)) + ("/" if is_folder else "")
            if is_folder and depth > 1:
                yield from self._walk(path, depth - 1)
            elif is_folder:
                self._unseen.add(path)


def silence(folder: str) -> None:
    """Turn them away from here on; ``folder`` is the trial's."""
    below = Path(folder) / "tensorboard"
    change_on_import({name: partial(change, folder=below) for name, change in _CHANGES.items()})


def _writes_elsewhere(module: Any, folder: Path) -> None:
    """Event files of ``SummaryWriter``; its reported folder stays."""
    original = module.FileWriter.__init__

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        kept = {name: value for name, value in named.items() if name not in _FOLDERS}
        original(self, str(folder), *arguments[1:], **kept)

    module.FileWriter.__init__ = __init__


class _AnyName(str):
    """Equal to every name: the only tracker there is has whichever name is requested."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)


class _Nothing:
    """An object on which any operation has no effect."""

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
    """Give an Accelerator a tracker without effect, if the script wants any."""

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
