"""The process of one tracker, seen from both ends.

The launcher passes entries and never waits: only ``finish_all`` takes time, at most its grace.
The process gives way to everything else on the machine, and ends on its own a while after the
launcher has sent everything or died, whatever the library does. It is not a process of
multiprocessing, which would run the user's main module again: only the pipe is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from ..events import Event, Listener, Note
from ..extension_points import load_reference
from ..request import TrackingChoice
from ..results import open_private, read_file
from .base import (
    CLOSING_GRACE_S,
    Entry,
    Feed,
    TrackedBest,
    TrackedChoice,
    TrackedStudy,
    TrackedTrial,
    Tracker,
    find_tracker,
)

_MODULE = "autoconf_launch.launcher.trackers.outlet"
_GRACE_IF_INTERRUPTED_S = 2.0
LOGGED_FILE = "logged.jsonl"
_LEAST_IMPORTANT = 19
_LONGEST_TEXT = 300
_LONGER_S = 5.0
"""After the closing grace the launcher ends the process; if the launcher is dead, the process
ends itself."""


class Outlet:
    """A running tracker. It warns the user once, and is not restarted if it ends early."""

    def __init__(self, name: str, reference: str, study: TrackedStudy, log: Path) -> None:
        """Start the tracker.

        Raises:
            OSError: the process cannot be started, or its log cannot be written.
        """
        self._name = name
        self._log = log
        self._entries: SimpleQueue[Entry | tuple[str, TrackedStudy] | None] = SimpleQueue()
        self._warned = self._finishes = self._ended = False
        self._pipe, theirs = Pipe()
        with theirs, open(log, "ab", opener=open_private) as output:
            self._process = subprocess.Popen(
                (sys.executable, "-m", _MODULE, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C is for us alone
            )
        self._entries.put((reference, study))
        Thread(target=self._send_all, daemon=True).start()

    def send(self, entry: Entry) -> tuple[Note, ...]:
        """Pass an entry on; returns notes on the tracker."""
        self._entries.put(entry)
        return self.attend()

    def attend(self, within_s: float = 0.0) -> tuple[Note, ...]:
        """Collect the tracker's messages of this time, or until it ends."""
        until_s = time.monotonic() + within_s
        notes: list[Note] = []
        while not self._ended and self._pipe.poll(max(0.0, until_s - time.monotonic())):
            notes += self._next()
        return tuple(notes)

    def finish(self) -> None:
        self._finishes = True
        self._entries.put(None)

    def close(self, timeout_s: float) -> tuple[Note, ...]:
        """Wait for its end, and end it when the time is up."""
        notes = self.attend(timeout_s)
        if self._ended:
            return notes
        self.end()
        return (*notes, *self._warn("it was too slow to accept every run, and was ended"))

    def end(self) -> None:
        """End it now, with all that it started; nothing if it has ended."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped, so the number is its own
        self._process.wait()
        self._entries.put(None)

    def _send_all(self) -> None:
        """Send entries as the tracker takes them; the last one is None."""
        with contextlib.suppress(OSError):  # it has ended
            while (entry := self._entries.get()) is not None:
                self._pipe.send(entry)
            self._pipe.send(None)

    def _next(self) -> tuple[Note, ...]:
        try:
            text, is_warning = self._pipe.recv()
        except (EOFError, OSError):  # it has ended: as it should, or long before
            self.end()
            failed = not self._finishes or self._process.returncode != 0
            return self._warn("it has ended, so no more runs are kept") if failed else ()
        return self._warn(text) if is_warning else (Note(text=f"{self._name}: {text}."),)

    def _warn(self, text: str) -> tuple[Note, ...]:
        if self._warned:
            return ()
        self._warned = True
        return (Note(text=f"{self._name}: {text}; see {self._log}.", warning=True),)


def finish_all(outlets: Sequence[Outlet], grace_s: float) -> Iterator[Note]:
    """Let all finish concurrently; outlets that have not when their time is up are ended."""
    until_s = time.monotonic() + grace_s
    for outlet in outlets:
        outlet.finish()
    for outlet in outlets:
        yield from outlet.close(until_s - time.monotonic())


@contextmanager
def track_events(
    choice: TrackingChoice, feed: Feed, folder: Path, listener: Listener
) -> Iterator[Listener]:
    """A listener that passes each event on and sends its entries to the chosen trackers.

    They have a while to finish at the end, a short one if the study is interrupted.

    Args:
        choice: which trackers; checked before by ``check_tracking``.
        feed: of a study that begins now.
        folder: for their files; made if there is any tracker.
        listener: takes the events, and notes on the trackers.
    """
    outlets: list[Outlet] = []
    grace_s = CLOSING_GRACE_S
    try:
        for name in choice.trackers:
            outlets += _start(name, choice, feed.study, folder / name, listener)
        yield _Listening(outlets, feed, listener) if outlets else listener
    except Exception:
        raise
    except BaseException:  # a signal
        grace_s = _GRACE_IF_INTERRUPTED_S
        raise
    finally:
        try:
            for note in finish_all(outlets, grace_s):
                listener(note)
        finally:
            for outlet in outlets:
                outlet.end()


class _Listening:
    """Passes events on first: a view does not wait for trackers."""

    def __init__(self, outlets: list[Outlet], feed: Feed, listener: Listener) -> None:
        self._outlets = outlets
        self._feed = feed
        self._listener = listener

    def __call__(self, event: Event) -> None:
        self._listener(event)
        entries = self._feed.take(event)
        for outlet in self._outlets:
            for entry in entries:
                self._pass_on(outlet.send(entry))
            if not entries:
                self._pass_on(outlet.attend())

    def _pass_on(self, notes: tuple[Note, ...]) -> None:
        for note in notes:
            self._listener(note)


def _start(
    name: str, choice: TrackingChoice, study: str, folder: Path, listener: Listener
) -> list[Outlet]:
    key = choice.wandb_key_file if name == "wandb" else None
    tracked = TrackedStudy(
        name=study,
        project=choice.project,
        folder=str(folder),
        api_key_file=str(Path(key).expanduser().absolute()) if key else None,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [Outlet(name, find_tracker(name), tracked, folder / "tracker.log")]
    except OSError as error:
        listener(Note(text=f"{name}: it cannot be started ({error}).", warning=True))
        return []


class Logged:
    """Keys of a tracker's entries, in a file, so that a resumed study repeats none."""

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
        self._keys.add(key)
        self._append({"logged": key})

    def _append(self, document: dict[str, str]) -> None:
        with open(self._path, "a", opener=open_private) as file:
            file.write(json.dumps(document) + "\n")


def main() -> int:
    """Log entries until the launcher has no more; 0 unless the tracker cannot be used."""
    os.nice(_LEAST_IMPORTANT)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    pipe = Connection(descriptor)

    def tell(text: str, *, warning: bool = False) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone
            pipe.send((" ".join(text.split()), warning))

    reference, study = pipe.recv()
    entries: SimpleQueue[Entry | None] = SimpleQueue()
    Thread(target=_take_entries, args=(pipe, entries), daemon=True).start()
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


def _take_entries(pipe: Connection, entries: SimpleQueue[Entry | None]) -> None:
    """Pass entries on; after the last one, or the launcher's death, end when the time is up."""
    left_s = _LONGER_S
    with contextlib.suppress(EOFError, OSError):
        while (entry := pipe.recv()) is not None:
            entries.put(entry)
        left_s += CLOSING_GRACE_S
    entries.put(None)
    time.sleep(left_s)
    os.killpg(0, signal.SIGKILL)


def _reason(error: BaseException) -> str:
    """A short line for the user; the whole goes to the tracker's log."""
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
