"""The launcher's end of one tracker's process: passes it entries and never waits for it.

Nothing here raises because of it, and only ``finish_all`` takes time, at most what it is given.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from ..events import Event, Listener, Note
from ..request import TrackingChoice
from ..results import open_private
from .base import CLOSING_GRACE_S, WARNING, Entry, TrackedStudy, find_tracker
from .feed import Feed

_MODULE = "autoconf_launch.launcher.trackers.worker"
_GRACE_IF_INTERRUPTED_S = 2.0


class Outlet:
    """A running tracker. It warns the user once, and is left alone when it ends early."""

    def __init__(self, name: str, reference: str, study: TrackedStudy, log: Path) -> None:
        """Start the tracker.

        Raises:
            OSError: the process cannot be started, or its log not be written.
        """
        self._name = name
        self._log = log
        self._entries: SimpleQueue[Entry | None] = SimpleQueue()
        self._news: SimpleQueue[str | None] = SimpleQueue()
        self._warned = self._finishes = self._ended = False
        with open(log, "ab", opener=open_private) as errors:
            self._process = subprocess.Popen(
                (sys.executable, "-m", _MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C is for us alone
            )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        Thread(target=self._write, args=(reference, study), daemon=True).start()

    def send(self, entry: Entry) -> tuple[Note, ...]:
        """Pass an entry on; returns what there is to say of the tracker."""
        self._entries.put(entry)
        return self.attend()

    def attend(self) -> tuple[Note, ...]:
        """Take what the tracker said, without waiting."""
        notes: list[Note] = []
        with contextlib.suppress(Empty):
            while not self._ended:
                notes += self._note(self._news.get_nowait())
        return tuple(notes)

    def finish(self) -> None:
        """Say that nothing follows."""
        self._finishes = True
        self._entries.put(None)

    def close(self, timeout_s: float) -> tuple[Note, ...]:
        """Wait for its end, and end it when the time is up."""
        self._reader.join(max(0.0, timeout_s))
        notes = self.attend()
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

    def _write(self, reference: str, study: TrackedStudy) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:  # unless it has ended
            pickle.dump((reference, study), pipe)
            pipe.flush()
            while (entry := self._entries.get()) is not None:
                pickle.dump(entry, pipe)
                pipe.flush()
            pickle.dump(None, pipe)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._news.put(line.decode(errors="replace").rstrip("\n"))
        self._news.put(None)

    def _note(self, said: str | None) -> tuple[Note, ...]:
        if said is None:  # it has ended: as it should, or long before
            self.end()
            failed = not self._finishes or self._process.returncode != 0
            return self._warn("it has ended, so no more runs are kept") if failed else ()
        text = said.removeprefix(WARNING)
        return self._warn(text) if text != said else (Note(text=f"{self._name}: {text}."),)

    def _warn(self, text: str) -> tuple[Note, ...]:
        if self._warned:
            return ()
        self._warned = True
        return (Note(text=f"{self._name}: {text}; see {self._log}.", warning=True),)


def finish_all(outlets: Sequence[Outlet], grace_s: float) -> Iterator[Note]:
    """Let all finish side by side; those that have not when their time is up are ended."""
    until_s = time.monotonic() + grace_s
    for outlet in outlets:
        outlet.finish()
    for outlet in outlets:
        yield from outlet.close(until_s - time.monotonic())


@contextmanager
def track_events(
    choice: TrackingChoice, feed: Feed, folder: Path, listener: Listener
) -> Iterator[Listener]:
    """A listener that hands each event on and tells the chosen trackers of it.

    They have a while to finish at the end, a short one where the study is interrupted.

    Args:
        choice: which trackers; checked before by ``check_tracking``.
        feed: of a study that begins now.
        folder: theirs; made where there is any tracker.
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
    """Hands events on first: a view does not wait for trackers."""

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
