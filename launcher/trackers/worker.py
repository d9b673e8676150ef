"""The process of one tracker: takes lines from the launcher, and calls the tracker's library.

Not: part of the launcher's own process. It gives way to everything else on the machine, and ends
on its own a while after the launcher has closed the pipe or died, whatever the library does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from functools import singledispatch
from pathlib import Path
from typing import BinaryIO

from autoconf_launch.core import DecodeError

from ..extension_points import load_reference
from ..results import open_private, read_file
from .base import (
    DONE,
    Entry,
    News,
    Setup,
    TrackedBest,
    TrackedChoice,
    TrackedStudy,
    TrackedTrial,
    Tracker,
    message_line,
    read_entry,
    read_message,
)

LOGGED_FILE = "logged.jsonl"
_LEAST_IMPORTANT = 19
_LONGEST_TEXT = 300


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
    """Read the setup, then entries until the pipe closes; 0 unless the tracker cannot be used."""
    os.nice(_LEAST_IMPORTANT)
    lines, answer = _own_streams()
    setup = read_message(Setup, lines.readline())
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    reading = threading.Thread(target=_read, args=(lines, waiting, setup.grace_s), daemon=True)
    reading.start()

    def tell(text: str, *, warning: bool = False) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone
            os.write(answer, message_line(News(text=text, warning=warning)))

    try:
        logged = Logged(Path(setup.folder))
        tracker = _make(setup, logged.study)
    except BaseException as error:
        tell(f"it cannot be used, so no run is sent there ({_reason(error)})", warning=True)
        return 1
    tell(tracker.trouble or f"runs are sent to {tracker.where}", warning=bool(tracker.trouble))

    def next_line() -> bytes | None:
        with contextlib.suppress(OSError):
            os.write(answer, DONE)  # with the setup, or the entry before
        return waiting.get()

    _serve(tracker, logged, next_line, lambda text: tell(text, warning=True))
    return 0


def _serve(
    tracker: Tracker,
    logged: Logged,
    next_line: Callable[[], bytes | None],
    warn: Callable[[str], None],
) -> None:
    while (line := next_line()) is not None:
        try:
            entry = read_entry(line)
        except DecodeError:
            continue  # torn where the launcher was killed
        if entry.key in logged:
            continue
        try:
            _log(entry, tracker)
            logged.add(entry.key)
        except Exception as error:
            warn(f"it did not accept {entry.key!r} ({_reason(error)})")
    try:
        tracker.close()
    except Exception as error:
        warn(f"it did not close cleanly ({_reason(error)})")


@singledispatch
def _log(entry: Entry, tracker: Tracker) -> None:
    raise TypeError(f"not an entry: {entry}")


@_log.register
def _(entry: TrackedTrial, tracker: Tracker) -> None:
    tracker.log_trial(entry)


@_log.register
def _(entry: TrackedBest, tracker: Tracker) -> None:
    tracker.log_best(entry)


@_log.register
def _(entry: TrackedChoice, tracker: Tracker) -> None:
    tracker.log_choice(entry)


def _make(setup: Setup, study: str) -> Tracker:
    factory: Callable[[TrackedStudy], Tracker] = load_reference(setup.tracker)
    return factory(
        TrackedStudy(
            id=study,
            name=setup.study,
            project=setup.project,
            folder=setup.folder,
            api_key_file=setup.api_key_file,
        )
    )


def _own_streams() -> tuple[BinaryIO, int]:
    """Our ends of both pipes, which libraries then neither read nor write."""
    lines = os.fdopen(os.dup(0), "rb")
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return lines, answer


def _read(lines: BinaryIO, waiting: queue.SimpleQueue[bytes | None], grace_s: float) -> None:
    """Hand lines on; after the last one there is so much time to end, then we are killed."""
    for line in lines:
        waiting.put(line)
    waiting.put(None)
    time.sleep(grace_s)
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
