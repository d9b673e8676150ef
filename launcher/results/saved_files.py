"""Checkpoints that ranks could not put away, as they were ended from outside. Not: their removal.

Ranks note where they save. Only regular files are moved, and none that somebody has written
since: the user may have trained in the meantime.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autoconf_launch.core.rank import NOTES_OF_SAVED

SAVED = "saved"
"""Folder of a trial that checkpoints are put into."""
_DIES_WITHIN_S = 10.0
"""A rank whose controller died may write so long after its last sign."""


def take_in(folder: Path, *, is_ours: bool) -> None:
    """Move what ranks noted below the folder of their trial.

    Args:
        folder: of the trial; its ranks have ended.
        is_ours: whether that was just now; else what is newer than their last sign stays.
    """
    notes = [*folder.glob(NOTES_OF_SAVED)]
    until_s = float("inf") if is_ours or not notes else _last_sign_s(folder) + _DIES_WITHIN_S
    for number, path in enumerate(dict.fromkeys(_noted(notes))):
        with suppress(OSError):
            seen = path.lstat()
            is_followed = path.parent.resolve() != path.parent
            if not stat.S_ISREG(seen.st_mode) or is_followed or seen.st_mtime > until_s:
                continue
            (folder / SAVED).mkdir(exist_ok=True)
            shutil.move(path, folder / SAVED / f"left{number}_{path.name}")
    for note in notes:
        note.unlink(missing_ok=True)


def take_in_all(results: Path, *, is_ours: bool) -> None:
    """The same for each trial of a results folder."""
    for folder in {note.parent for note in results.glob(f"*/{NOTES_OF_SAVED}")}:
        take_in(folder, is_ours=is_ours)


def _noted(notes: list[Path]) -> Iterator[Path]:
    """Absolute paths; a line that a crash tore is passed over."""
    for note in notes:
        for line in note.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                path = json.loads(line)
                if isinstance(path, str) and Path(path).is_absolute():
                    yield Path(path)


def _last_sign_s(folder: Path) -> float:
    """When anything of the trial was last written."""
    files = [path for path in (*folder.glob("*"), *folder.glob("probe/*")) if path.is_file()]
    return max((path.stat().st_mtime for path in files), default=0.0)
