"""Files that a trial leaves in the user's folder: logs, dated folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .saved_files import SavedFiles, SaveListener
from .tracker_redirect import silence
from .trial_paths import PASSED_OVER

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
        """Keep out of it what trackers write, and what the training does."""
        silence(str(self._own))
        self._saved.install()

    def training_begins(self) -> None:
        """Note that training begins: from here on nobody reads what the script writes."""
        self._saved.begin()

    def tell(self, listener: SaveListener) -> None:
        """Let it hear of checkpoints."""
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
