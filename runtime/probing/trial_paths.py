"""Where a trial's checkpoints may be written, and which files are the trial's. Not: who writes.

Each path is noted in the trial's folder before its file is there: a rank that is ended from
outside leaves them to the launcher.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autoconf_launch.core.rank import notes_of_saved


class TrialPaths:
    """Those of one process."""

    def __init__(self, folder: str, was_there: Callable[[Path], bool]) -> None:
        """``folder`` is the trial's; ``was_there`` says of a path whether it is the user's."""
        self._own = Path(folder)
        self._was_there = was_there
        self._made: dict[Path, int] = {}
        """The trial's files, and which process made each."""
        self._instead: dict[Path, Path] = {}
        """Where a file of the trial is, for a path of the user's."""
        self._places: dict[Path, Path] = {}

    def is_users(self, path: Path) -> bool:
        """Whether a file there is neither the trial's nor new."""
        return path not in self._made and not self._is_own(path) and self._was_there(path)

    def target(self, path: Path) -> Path:
        """Where to write instead of ``path``: there, but never over what is the user's."""
        if self.is_users(path):
            self._instead[path] = self._place(path)
            return self._instead[path]
        self._make(path)
        return path

    def found(self, path: Path) -> Path | None:
        """Where the file is that the trial wrote as ``path``; None: it wrote none."""
        return self._instead.get(path, path if path in self._made else None)

    def moved(self, path: Path) -> None:
        """What was written as ``path`` is there no more."""
        if self._instead.pop(path, None) is None:
            self._made.pop(path, None)

    @property
    def has_others(self) -> bool:
        """Whether anything was written elsewhere than the script said."""
        return bool(self._instead)

    def instead(self, path: Path) -> Path:
        """Where to read what the script last wrote as ``path``."""
        place = self._instead.get(path)
        return place if place is not None and place.exists() else path

    def put_away(self) -> None:
        """Move what this process has made below the trial's folder."""
        for path in [path for path, pid in self._made.items() if pid == os.getpid()]:
            with suppress(OSError):
                if path.is_file():
                    shutil.move(path, self._place(path))
            self._made.pop(path, None)
        with suppress(OSError):
            self._notes.unlink(missing_ok=True)

    def _make(self, path: Path) -> None:
        if path in self._made or self._is_own(path):
            return
        self._made[path] = os.getpid()
        with suppress(OSError), self._notes.open("a") as file:
            file.write(json.dumps(str(path.parent.resolve() / path.name)) + "\n")

    @property
    def _notes(self) -> Path:
        return self._own / notes_of_saved(os.getpid())

    def _is_own(self, path: Path) -> bool:
        return self._own in path.parents

    def _place(self, path: Path) -> Path:
        """One for each path: checkpoints in several folders have files of the same names."""
        if path not in self._places:
            alike = sum(other.name == path.name for other in self._places)
            folder = self._own / "saved" / (str(alike) if alike else "")
            folder.mkdir(parents=True, exist_ok=True)
            self._places[path] = folder / f"{os.getpid()}_{path.name}"
        return self._places[path]
