"""The process of one tracker: takes entries from the launcher, and calls the tracker's library.

It gives way to everything else on the machine, and ends on its own a while after the launcher has
sent everything or died, whatever the library does.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
import time
import traceback
import uuid
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from ..extension_points import load_reference
from ..results import open_private, read_file
from .base import (
    CLOSING_GRACE_S,
    WARNING,
    Entry,
    TrackedBest,
    TrackedChoice,
    TrackedTrial,
    Tracker,
)

LOGGED_FILE = "logged.jsonl"
_LEAST_IMPORTANT = 19
_LONGEST_TEXT = 300
_LONGER_S = 5.0
"""After the closing grace the launcher ends the process; if that is dead, this one ends itself."""


class Logged:
    """Keys of what a tracker already has, in a file, so that a resumed study repeats none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOGGED_FILE
        known = _documents(self._path)
        ids = [str(one["study"]) for one in known if "study" in one]
        self.study = ids[0] if ids else uuid.uuid4().hex
        self._keys = {str(one["logged"]) for one in known if "logged" in one}
        if not ids:
            self._append({"study": self.study})

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember that the tracker has it."""
        self._keys.add(key)
        self._append({"logged": key})

    def _append(self, document: dict[str, str]) -> None:
        with open(self._path, "a", opener=open_private) as file:
            file.write(json.dumps(document) + "\n")


def main() -> int:
    """Keep entries until the launcher has no more; 0 unless the tracker cannot be used."""
    os.nice(_LEAST_IMPORTANT)
    pipe, answer = _own_streams()

    def tell(text: str, *, warning: bool = False) -> None:
        line = f"{WARNING * warning}{' '.join(text.split())}\n"
        with contextlib.suppress(OSError):  # the launcher is gone
            os.write(answer, line.encode(errors="replace"))

    reference, study = pickle.load(pipe)
    entries: SimpleQueue[Entry | None] = SimpleQueue()
    Thread(target=_read, args=(pipe, entries), daemon=True).start()
    try:
        logged = Logged(Path(study.folder))
        tracker: Tracker = load_reference(reference)(replace(study, id=logged.study))
    except BaseException as error:
        tell(f"it cannot be used, so no run is sent there ({_reason(error)})", warning=True)
        return 1
    tell(tracker.trouble or f"runs are sent to {tracker.where}", warning=bool(tracker.trouble))
    while (entry := entries.get()) is not None:
        if entry.key in logged:
            continue
        try:
            _log(entry, tracker)
            logged.add(entry.key)
        except Exception as error:
            tell(f"it did not accept {entry.key!r} ({_reason(error)})", warning=True)
    try:
        tracker.close()
    except Exception as error:
        tell(f"it did not close cleanly ({_reason(error)})", warning=True)
    return 0


def _log(entry: Entry, tracker: Tracker) -> None:
    match entry:
        case TrackedTrial():
            tracker.log_trial(entry)
        case TrackedBest():
            tracker.log_best(entry)
        case TrackedChoice():
            tracker.log_choice(entry)


def _own_streams() -> tuple[BinaryIO, int]:
    """Our ends of both pipes, which libraries then neither read nor write."""
    lines = os.fdopen(os.dup(0), "rb")
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return lines, answer


def _read(pipe: BinaryIO, entries: SimpleQueue[Entry | None]) -> None:
    """Pass entries on; after the last one, or the launcher's death, end when the time is up."""
    left_s = _LONGER_S
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while (entry := pickle.load(pipe)) is not None:
            entries.put(entry)
        left_s += CLOSING_GRACE_S
    entries.put(None)
    time.sleep(left_s)
    os.killpg(0, signal.SIGKILL)


def _reason(error: BaseException) -> str:
    """One short line for the user; the whole goes to the tracker's log."""
    traceback.print_exception(error)
    text = " ".join(str(error).split())[:_LONGEST_TEXT]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _documents(path: Path) -> list[dict[str, object]]:
    found = []
    for line in read_file(path).decode(errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # torn by a crash
            document = json.loads(line)
            if isinstance(document, dict):
                found.append(document)
    return found


if __name__ == "__main__":
    sys.exit(main())
