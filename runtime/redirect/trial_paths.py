"""Paths that a trial may write, and the replacements of all others.

From the first backward pass on, files that the script writes in its working directory, or in a
folder of a checkpoint, belong to the trial. New files stay in place until the script's process
ends, and then move below the trial's folder. Existing files are never changed: a copy below the
trial's folder takes their place, for writing and for reading.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoconf_launch.core import (
    SAVED,
    is_checkpoint,
    is_part,
    mirror,
    note,
    notes_of,
    take_in,
)

_MOST_KNOWN = 10_000
_MOST_OUTPUT = 1 << 20
"""Bytes of configurations, vocabularies and logs that a script writes before its training."""
_SYSTEMS = frozenset({"dev", "proc", "sys"})
PASSED_OVER = frozenset({".git", "__pycache__", "node_modules", ".venv", ".pytest_cache"})


class TrialPaths:
    """Paths of a trial, as seen by each of its processes."""

    def __init__(self, folder: str, was_there: Callable[[Path], bool]) -> None:
        """``folder`` is the trial's; ``was_there`` says of a path whether it is the user's."""
        self.trains = False
        self._own = Path(folder).resolve()
        self._saved = str(self._own / SAVED)
        self._here = Path.cwd()
        self._was_there = was_there
        self._made: dict[Path, int] = {}
        """The trial's files and whole folders, and which process made each."""
        self._folders: dict[Path, int] = {}
        """Every folder that this process has made, before the training too."""
        self._received: set[Path] = set()
        """Folders that checkpoints went to."""
        self._removed: set[Path] = set()
        """Paths of the user's that the script has removed, as it sees it."""
        self._written: dict[Path, bool] = {}
        """Files opened for writing that are not the trial's; True if they existed before."""
        self._real: dict[str, str] = {}
        """Folders without links: data is read file by file."""
        self._since: set[Path] = set()
        """New ones among these, of the training."""

    def live(self) -> None:
        """Let others see that this process may write."""
        with suppress(OSError):
            self._notes.parent.mkdir(parents=True, exist_ok=True)
            self._notes.touch()

    def path(self, file: Any) -> Path | None:
        """The absolute path without links above the file; None for a descriptor, or no text."""
        name = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
        if not name:
            return None
        path = Path(name).absolute()
        folder = str(path.parent)
        if folder not in self._real:
            if len(self._real) >= _MOST_KNOWN:
                self._real.clear()
            self._real[folder] = os.path.realpath(folder)
        return Path(self._real[folder], path.name)

    def is_users(self, path: Path) -> bool:
        """True if a file exists that the trial did not make."""
        if self._is_own(path) or self._is_made(path):
            return False
        if path in self._written:
            return self._written[path]
        made = any(folder in self._folders for folder in (path, *path.parents))
        return not made and self._was_there(path)

    def keeps(self, path: Path) -> bool:
        """True if the user has a file or folder there that the trial must not change."""
        return self.is_users(path) and self._is_guarded(path)

    def target(self, path: Path, *, checkpoint: bool = False, copies: bool = False) -> Path:
        """File to write for ``path``: itself, but never over a file of the user's.

        Args:
            path: the path that the script writes.
            checkpoint: it is one, so that all of its folder is of the trial.
            copies: the file's content is kept.
        """
        if self._is_own(path):
            return path
        if checkpoint:
            self._receive(path.parent)
        if self.is_users(path):
            if not self._is_guarded(path):
                self.wrote(path)
                return path
            return self._instead_of(path, copies=copies)
        if checkpoint or self._is_covered(path):
            self._make(path)
        else:
            self.wrote(path)
        return path

    def folder(self, path: Path) -> Path:
        """Folder to write for ``path``: another one if the user has it."""
        if not self._is_own(path):
            self._receive(path)
        return self._instead_of(path, copies=False) if self.keeps(path) else path

    def edit_target(self, path: Path) -> Path:
        """File to change in place; data that is mapped into memory is not a checkpoint."""
        if is_checkpoint(path) or not self._received.isdisjoint(path.parents):
            return self.target(path, copies=True)
        self.wrote(path)
        return path

    def made_folder(self, path: Path) -> None:
        if not self._is_own(path):
            self._folders[path] = os.getpid()
            if self._is_covered(path):
                self._make(path) if self.trains else note(self._notes, path, if_empty=True)

    def wrote(self, path: Path) -> None:
        """The script writes there, and the file stays."""
        if path not in self._written and not self._is_own(path) and _is_regular(path):
            self._written[path] = self.is_users(path)
            if self.trains and not self._written[path]:
                self._since.add(path)

    def locate(self, path: Path) -> Path:
        """Actual place of the file that the script calls ``path``."""
        place = f"{self._saved}{path}"
        return Path(place) if self.has_others and os.path.lexists(place) else path

    def behind(self, path: Path) -> Path:
        """The file that the script writes under a name; a link leads to another file."""
        return Path(os.path.realpath(self.locate(path)))

    def read(self, path: Path) -> Path:
        """File to read for ``path``, behind links."""
        place = self.locate(path)
        return self.locate(self.behind(place)) if place.is_symlink() else place

    def on_move(self, path: Path) -> None:
        """Note that a file that the trial made was moved away."""
        self.on_link()
        self._made.pop(path, None)

    def on_link(self) -> None:
        """A link is made or removed, so that paths may lead elsewhere."""
        self._real.clear()

    def on_removal(self, path: Path) -> None:
        """The script has removed a file of the user's, and may make it anew."""
        self._removed.add(path)

    def made_anew(self, path: Path) -> bool:
        """True if the script makes a file that it had removed."""
        return any(place in self._removed for place in (path, *path.parents))

    def made_below(self, path: Path) -> list[Path]:
        """The trial's own files and folders below a folder of the user's."""
        return [made for made in [*self._made] if path in made.parents]

    @property
    def has_others(self) -> bool:
        """True if anything was written elsewhere than the script said."""
        return self.trains and os.path.exists(self._saved)  # noqa: PTH110 - asked at each read

    def put_away(self) -> None:
        """Move files that this process has made below the trial's folder."""
        trains, self.trains = self.trains, False  # what follows is not the script's
        for path in [*self._folders] if trains else ():
            if self._is_output(path):
                self._make(path)
        take_in(self._own, pid=os.getpid())
        self.trains = trains
        self._made = {path: pid for path, pid in [*self._made.items()] if pid != os.getpid()}

    def _is_output(self, path: Path) -> bool:
        """True if a folder that the script made before its training is for its output.

        Scripts that refuse an output folder that exists could not be started a second time. All
        in it was written by this process, is small, and was not read: data that was
        prepared for later stays.
        """
        if self._folders[path] != os.getpid() or self._is_made(path):
            return False
        if not self._is_covered(path) or not self._can_be_whole(path):
            return False
        total = 0
        for place in path.rglob("*"):
            about = place.lstat()
            total += about.st_size
            is_folder = stat.S_ISDIR(about.st_mode) and place in self._folders
            is_unread = (
                self._written.get(place) is False and about.st_atime_ns <= about.st_ctime_ns
            )
            if not (is_folder or is_unread) or total > _MOST_OUTPUT:
                return False
        return True

    def leftovers(self) -> list[Path]:
        """Written files that stay and that a look at the working directory does not show."""
        folders = [path for path, pid in [*self._folders.items()] if pid == os.getpid()]
        written = [*self._written, *folders]
        return [
            path
            for path in written
            if path.exists()
            and not self._is_made(path)
            and (self._written.get(path) or not path.is_relative_to(self._here))
            and not self._is_passing(path)
        ]

    def is_trials(self, path: Path) -> bool:
        """True if the launcher removes a file that this process does not."""
        return self._is_made(path)

    @property
    def _notes(self) -> Path:
        return notes_of(self._own, os.getpid())

    def _receive(self, folder: Path) -> None:
        """All that is written below the folder from here on is of the trial.

        The same holds below folders above it that the script has made, and, if it made the
        folder itself all that is in it.
        """
        made = [path for path in (folder, *folder.parents) if path in self._folders]
        top = made[-1] if made else folder
        if self._is_made(top) or not self._can_be_whole(top):
            return
        if folder in self._folders:
            self._make(folder)
        if top in self._received:
            return
        self._received.add(top)
        for path in (path for path in made if not self._is_made(path)):
            note(self._notes, path, if_empty=True)
        for path in [path for path in [*self._since] if top in path.parents]:
            self._since.discard(path)
            self._written.pop(path, None)
            self._make(path)

    def _can_be_whole(self, folder: Path) -> bool:
        """Not of the one for temporary files, nor of a home: others write there, too."""
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - that of Path may find none
        shared = (_temporary(), home, self._own)
        return not any(path.is_relative_to(folder) for path in shared)

    def _make(self, path: Path) -> None:
        if self._is_made(path) or self._is_own(path):
            return
        self._made[path] = os.getpid()
        self._since.discard(path)
        note(self._notes, path)

    def _instead_of(self, path: Path, *, copies: bool) -> Path:
        place = mirror(self._own, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        is_new = os.path.lexists(place) or self.made_anew(path) or not path.is_file()
        if copies and not is_new:
            shutil.copyfile(path, place)
        return place

    def _is_own(self, path: Path) -> bool:
        return path.is_relative_to(self._own)

    def _is_made(self, path: Path) -> bool:
        return path in self._made or any(parent in self._made for parent in path.parents)

    def _is_covered(self, path: Path) -> bool:
        """True if files that the script writes there are the trial's."""
        if self._is_made(path) or is_part(path) or not self._received.isdisjoint(path.parents):
            return True
        if not path.is_relative_to(self._here):
            return False
        return not _is_hidden(path.relative_to(self._here))

    def _is_guarded(self, path: Path) -> bool:
        """True if the user's file there stays as it is; caches and devices are none of ours."""
        if not _is_regular(path):
            return False
        return self._is_covered(path) or is_checkpoint(path) or not self._is_passing(path)

    def _is_passing(self, path: Path) -> bool:
        if path.is_relative_to(self._here):
            return _is_hidden(path.relative_to(self._here))
        hidden = path.is_relative_to(_temporary()) or _is_hidden(path)
        return hidden or path.parts[1:2] == () or path.parts[1] in _SYSTEMS


def _temporary() -> Path:
    """The temporary folder, without ``tempfile``, which would remember it for the script."""
    return Path(os.path.realpath(os.environ.get("TMPDIR") or "/tmp"))


def _is_hidden(path: Path) -> bool:
    return any(name.startswith(".") or name in PASSED_OVER for name in path.parent.parts)


def _is_regular(path: Path) -> bool:
    """True if it is a file or a folder, or not there: no device and no pipe."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
