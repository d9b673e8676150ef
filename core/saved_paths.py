"""Notes of a trial's writes among the user's files, and the removal of these files.

A process notes each file and folder before it is there, so that what comes after it finds them:
the process itself at its end, or the launcher if that was ended from outside.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

NOTES = "saved_paths.*.jsonl"
"""Notes of one living process each; a line is an absolute path, or ``{"if_empty": path}``."""
_LEFT_NOTES = "left_paths.*.jsonl"
"""Notes of a process that has ended, on folders that others were still writing to."""
_IF_EMPTY = "if_empty"
SAVED = "saved"
"""Folder of a trial for files that are moved away from the script's output."""
OUTPUT = "output"
"""Folder of a trial into which the script saves."""
_MOST_CHARACTERS = 16 << 20
_DIES_WITHIN_S = 10.0
"""A rank whose controller died may write so long after its last sign."""


_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".distcp"})
_METADATA = (".metadata", ".metadata.tmp")
"""Endings of the metadata's names alongside ``.distcp`` files."""


def is_checkpoint(path: Path) -> bool:
    """True if a file's name says that the file holds tensors."""
    return path.suffix in _SUFFIXES or is_part(path)


def is_part(path: Path) -> bool:
    """True if a file is part of a checkpoint that torch writes in many files."""
    return path.suffix == ".distcp" or path.name.endswith(_METADATA)


def notes_of(folder: Path, pid: int) -> Path:
    """File in which a process of a trial notes its script's writes."""
    return folder / NOTES.replace("*", str(pid))


def mirror(folder: Path, path: Path) -> Path:
    """Place below a trial's folder for the file of an absolute path."""
    return folder / SAVED / path.relative_to(path.anchor)


def note(notes: Path, path: Path, *, if_empty: bool = False) -> None:
    """Note a file or folder to be taken in; ``if_empty``: only a folder that is empty by then."""
    line = {_IF_EMPTY: str(path)} if if_empty else str(path)
    with suppress(OSError), notes.open("a") as file:
        file.write(json.dumps(line) + "\n")


def take_in(
    folder: Path, *, is_ours: bool = True, pid: int | None = None, below: Path | None = None
) -> tuple[Path, ...]:
    """Move the noted files below the folder of its trial, and remove the folders made for it.

    Folders to which another process may still write stay until the last one is gone.

    Args:
        folder: of the trial.
        is_ours: True if it ended just now; else files newer than its last sign are the user's.
        pid: only the notes of this process; None: its processes have all ended.
        below: nothing is moved from elsewhere; None: from anywhere.

    Returns:
        The files that were moved.
    """
    notes = _all_notes(folder) if pid is None else [*folder.glob(notes_of(folder, pid).name)]
    everyone = {_real(path) for path in folder.parent.glob(f"*/{NOTES}")}
    others = everyone - {_real(path) for path in notes}
    noted = _paths_in(notes)
    found = {p: e for p, e in noted.items() if below is None or is_trials(p, folder, below)}
    moved: list[Path] = []
    if found:
        until_s = float("inf") if is_ours else _last_sign_s(folder) + _DIES_WITHIN_S
        moved = _move_all(found, folder, until_s, frozenset(_paths_in(others)))
    for path in notes:
        path.unlink(missing_ok=True)
    left = _folders(found)
    for path in sorted(left, reverse=True):
        if others:
            name = _LEFT_NOTES.replace("*", str(os.getpid()))
            note(folder / name, path, if_empty=found.get(path, True))
        else:
            with suppress(OSError):
                path.rmdir()
    return tuple(moved)


def _real(path: Path) -> Path:
    """The path of a file in its real folder; the file itself may be a link."""
    return path.parent.resolve() / path.name


def take_in_all(results: Path) -> None:
    """Take in the new files of each trial of a results folder; its processes have all ended."""
    for folder in noted_folders(results):
        take_in(folder)


def noted_folders(results: Path) -> Iterator[Path]:
    """Folders of a results folder in which a process has noted its script's files.

    These come twice, and last, if :func:`take_in` left folders that others wrote to.
    """
    for name in (NOTES, _LEFT_NOTES):
        yield from sorted({path.parent for path in results.glob(f"*/{name}")})


def noted_paths(folder: Path) -> tuple[Path, ...]:
    """Paths that a trial's notes name and that exist."""
    return tuple(path for path in _paths_in(_all_notes(folder)) if os.path.lexists(path))


def drop_notes(folder: Path) -> None:
    """Remove the notes of a trial; the named files stay."""
    for path in _all_notes(folder):
        path.unlink(missing_ok=True)


def _all_notes(folder: Path) -> list[Path]:
    return [path for name in (NOTES, _LEFT_NOTES) for path in folder.glob(name)]


def _entries(notes: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Absolute paths, and whether they only go if empty; a line that a crash tore is skipped."""
    for path in notes:
        with suppress(OSError):
            with open(path, errors="replace", opener=_open_plainly) as file:
                lines = file.read(_MOST_CHARACTERS).splitlines()
            for line in lines:
                with suppress(ValueError, RecursionError):
                    said = json.loads(line)
                    place = said.get(_IF_EMPTY) if isinstance(said, dict) else said
                    if isinstance(place, str) and Path(place).is_absolute():
                        yield Path(place), isinstance(said, dict)


def _open_plainly(path: str, flags: int) -> int:
    """Open without following a link or waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _paths_in(notes: Iterable[Path]) -> dict[Path, bool]:
    """Noted paths, each once, and whether they only go if empty."""
    found: dict[Path, bool] = {}
    for path, if_empty in _entries(notes):
        found[path] = if_empty and found.get(path, True)
    return found


def _move_all(
    found: dict[Path, bool], folder: Path, until_s: float, others: frozenset[Path]
) -> list[Path]:
    whole = (path for path, if_empty in found.items() if not if_empty)
    files = (file for path in whole for file in _files(path) if file not in others)
    return [file for file in files if _move(file, mirror(folder, file), until_s)]


def is_trials(path: Path, folder: Path, below: Path) -> bool:
    """True if notes of a trial's folder, which may have another author, can name this path.

    It is in ``below``, wherever links and ``..`` lead, and is none of the results.
    """
    real = Path(os.path.realpath(path.parent), path.name)
    results = Path(os.path.realpath(folder.parent))
    if path.name == ".." or results == real or real in results.parents or results in real.parents:
        return False
    return Path(os.path.realpath(below)) in real.parents


def _files(path: Path) -> list[Path]:
    """The file itself, or all below the folder; nothing if a link leads elsewhere."""
    if path.parent.resolve() != path.parent:
        return []
    if path.is_symlink() or not path.is_dir():
        return [path]
    walk = os.walk(path)
    inside = [Path(root, name) for root, *names in walk for name in (*names[0], *names[1])]
    return [path for path in inside if path.is_symlink() or not path.is_dir()]


def _move(file: Path, place: Path, until_s: float) -> bool:
    """Move a regular file or a link that is not newer than ``until_s``; True if moved."""
    with suppress(OSError):
        seen = file.lstat()
        if (stat.S_ISREG(seen.st_mode) or file.is_symlink()) and seen.st_mtime <= until_s:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, place)
            return True
    return False


def _folders(found: dict[Path, bool]) -> set[Path]:
    """Noted folders, and all folders below those which go as a whole."""
    own = {path for path in found if path.is_dir() and not path.is_symlink()}
    below = {
        Path(root, name)
        for path in own
        if not found[path]
        for root, names, _ in os.walk(path)
        for name in names
    }
    return {path for path in own | below if not path.is_symlink()}


def _last_sign_s(folder: Path) -> float:
    """When anything of the trial was last written."""
    files = [path for path in (*folder.glob("*"), *folder.glob("probe/*")) if path.is_file()]
    return max((path.stat().st_mtime for path in files), default=0.0)
