"""The launcher's end of one tracker's process: tells it of runs and never waits for it.

Nothing here raises because of it, and only ``finish_all`` takes time, at most what it is given.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from autoconf_launch.core import DecodeError

from ..events import Event, Listener, Note
from ..request import TrackingChoice
from ..results import open_private
from . import find_tracker
from .base import CLOSING_GRACE_S, DONE, Entry, News, Setup, entry_line, message_line, read_message
from .feed import Feed

_MODULE = "autoconf_launch.launcher.trackers.worker"
_LEAST_PATIENCE_S = 2.0
_MOST_WAITING_BYTES = 16 * 2**20
_CHUNK_BYTES = 65536


class Outlet:
    """A running tracker. It warns the user once, and is left alone when it ends early."""

    def __init__(self, name: str, setup: Setup, log: Path) -> None:
        """Start the tracker.

        Raises:
            OSError: the process cannot be started, or its log not be written.
        """
        self._name = name
        self._log = log
        self._waiting = bytearray(message_line(setup))
        self._heard = bytearray()
        self._warned = False
        self._ended = False
        self._owed = 1  # answers to the setup and to each entry
        self._owed_since_s = time.monotonic()
        with open(log, "ab", opener=open_private) as errors:
            self._process = subprocess.Popen(
                (sys.executable, "-m", _MODULE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # Ctrl-C is for us alone
                bufsize=0,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        for stream in (self._input, self._output):
            os.set_blocking(stream.fileno(), False)

    def send(self, entry: Entry) -> tuple[Note, ...]:
        """Hand an entry over, now or later; what there is to say of the tracker."""
        if self._ended:
            return ()
        line = entry_line(entry)
        if len(self._waiting) + len(line) > _MOST_WAITING_BYTES:
            return self._warn("it is too slow, so some runs are not sent")
        self._waiting += line
        self._owed_since_s = self._owed_since_s if self._owed else time.monotonic()
        self._owed += 1
        return self.attend()

    def attend(self) -> tuple[Note, ...]:
        """Write what the pipe takes and read what there is, without waiting."""
        if self._ended:
            return ()
        self._write()
        return self._read()

    def end(self) -> None:
        """End it now, with all that it started; nothing where it has ended."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped, so the number is its own
        self._process.wait()
        self._input.close()
        self._output.close()

    def ask_to_finish(self) -> bool:
        """Say that nothing follows, once all is written; whether it still has to end."""
        if not self._ended and not self._waiting:
            self._input.close()
        return not self._ended

    def patience_s(self, grace_s: float) -> float:
        """How long to wait for its end: the less, the longer it has owed an answer."""
        if not self._owed:
            return grace_s
        owed_s = time.monotonic() - self._owed_since_s
        return max(min(_LEAST_PATIENCE_S, grace_s), grace_s - owed_s)

    def wants(self) -> tuple[list[int], list[int]]:
        """Descriptors to wait for: to read, and to write."""
        return [self._output.fileno()], [self._input.fileno()] if self._waiting else []

    def overdue(self) -> tuple[Note, ...]:
        """End it because the time is up."""
        self.end()
        return self._warn("it was too slow to accept every run, and was ended")

    def _write(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._input.fileno(), self._waiting[:_CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:  # it has ended; what it said is still to be read
            self._waiting.clear()

    def _read(self) -> tuple[Note, ...]:
        notes: list[Note] = []
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._output.fileno(), _CHUNK_BYTES):
                self._heard += piece
            notes += self._news()
            return (*notes, *self._leave())
        return tuple(self._news())

    def _news(self) -> Sequence[Note]:
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard[:] = rest
        notes: list[Note] = []
        done = lines.count(DONE.strip())
        if done:
            self._owed, self._owed_since_s = self._owed - done, time.monotonic()
        for line in lines:
            with contextlib.suppress(DecodeError):
                news = read_message(News, line)
                told = Note(text=f"{self._name}: {news.text}.")
                notes += self._warn(news.text) if news.warning else (told,)
        return notes

    def _leave(self) -> Sequence[Note]:
        """Close a tracker that has ended: as it should, or long before."""
        early = not self._input.closed
        self.end()
        failed = early or self._process.returncode != 0
        return self._warn("it has ended, so no more runs are kept") if failed else ()

    def _warn(self, text: str) -> tuple[Note, ...]:
        if self._warned:
            return ()
        self._warned = True
        return (Note(text=f"{self._name}: {text}; see {self._log}.", warning=True),)


def finish_all(outlets: Sequence[Outlet], grace_s: float) -> Iterator[Note]:
    """Let all finish side by side; those that have not when their time is up are ended.

    Args:
        outlets: each gets ``grace_s`` seconds, or less where it has hung before.
        grace_s: at least 0.
    """
    for one in outlets:
        yield from one.attend()  # answers since the last event
    start_s = time.monotonic()
    left = [(start_s + one.patience_s(grace_s), one) for one in outlets]
    while left := [(until_s, one) for until_s, one in left if one.ask_to_finish()]:
        now_s = time.monotonic()
        for _, one in [each for each in left if each[0] <= now_s]:
            yield from one.overdue()
        left = [each for each in left if each[0] > now_s]
        if left:
            _wait([one for _, one in left], min(until_s for until_s, _ in left) - now_s)
        for _, one in left:
            yield from one.attend()


def _wait(outlets: Sequence[Outlet], longest_s: float) -> None:
    wants = [one.wants() for one in outlets]
    readable, writable = ([*chain(*which)] for which in zip(*wants, strict=True))
    select.select(readable, writable, [], longest_s)


_GRACE_IF_INTERRUPTED_S = 2.0


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
    setup = Setup(
        tracker=find_tracker(name),
        study=study,
        project=choice.project,
        folder=str(folder),
        api_key_file=str(Path(key).expanduser().absolute()) if key else None,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [Outlet(name, setup, folder / "tracker.log")]
    except OSError as error:
        listener(Note(text=f"{name}: it cannot be started ({error}).", warning=True))
        return []
