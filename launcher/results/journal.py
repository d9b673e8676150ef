"""The append-only file that is a study's state. Not: what is decided from it (Study).

One JSON object per line, each written with one call and synced: a header with the fingerprint
of what is measured, a ``profiled`` line, a ``past`` line with what earlier studies measured, a
``started`` line for each trial, a record for each outcome, ``again`` lines, records of what is
launched again meanwhile, and ``final`` and ``soak`` lines, records of what is launched again at
the end. A ``space`` line says that from here on another space is searched. A line that a crash
tore is dropped when the file is read, and cut off before the next one is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from autoconf_launch.autotuner.noise import FINAL_SUFFIX
from autoconf_launch.autotuner.past import PastTime
from autoconf_launch.autotuner.record_codec import decode_record, encode_record
from autoconf_launch.autotuner.trial import Record, Trial
from autoconf_launch.core import DecodeError, ResultsFolderError, decode, encode

from .journal_contents import Fingerprint, JournalContents, LaunchStart, SpaceLine, Started
from .lease import Lease

__all__ = [
    "Fingerprint",
    "Journal",
    "JournalContents",
    "JournalLineError",
    "SpaceLine",
    "Started",
    "read_journal",
]

FORMAT = "autoconf-launch journal"
VERSION = 1
_WRAPPED = ("again", "final", "soak")
"""Kinds of lines that have a record of what is launched again."""
_LONGEST_S = 1e9
"""Of a step; a longer one is none."""


class JournalLineError(ResultsFolderError):
    """A line that cannot be what it says."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(
            f"line {line} of {path} cannot be read ({reason}); start anew with "
            "--fresh, which moves the old folder aside."
        )
        self.line = line
        self.reason = reason


class Journal:
    """An open journal, kept under a lease where there is one; use as a context manager."""

    def __init__(self, path: Path, lease: Lease | None = None) -> None:
        self._path = path
        self._lease = lease
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def heartbeat(self) -> None:
        """Show that the writer lives."""
        if self._lease is not None:
            self._lease.heartbeat()

    def write_header(self, fingerprint: Fingerprint) -> None:
        """First line of a new journal."""
        self._append({"format": FORMAT, "version": VERSION, "fingerprint": encode(fingerprint)})

    def write_profiled(self) -> None:
        """The profile run is done; its result lies in its folder."""
        self._append({"profiled": True})

    def write_past(self, past: tuple[PastTime, ...]) -> None:
        """What the study begins with, so that it follows from its journal alone."""
        self._append({"past": encode(past)})

    def write_space(self, line: SpaceLine) -> None:
        """From here on this is searched."""
        self._append({"space": encode(line)})

    def write_started(
        self,
        *,
        name: str,
        number: int,
        attempt: str,
        pid: int | None,
        before_s: float | None = None,
    ) -> None:
        """A trial's processes are about to report; ``before_s`` as in :class:`Started`."""
        started = Started(
            name=name,
            number=number,
            attempt=attempt,
            host=socket.gethostname(),
            pid=pid,
            start_unix_s=time.time(),
            before_s=before_s,
        )
        self._append({"started": encode(started)})

    def write_record(self, record: Record) -> None:
        """A trial's outcome."""
        line = encode_record(record)
        kind = _kind(record.trial)
        self._append({kind: line} if kind else line)

    def _append(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            written = os.write(self._descriptor, data)
            if written < len(data):
                os.write(self._descriptor, data[written:])
            os.fdatasync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def read(self) -> JournalContents:
        """All whole lines; a torn last one is cut off the file.

        Raises:
            ResultsFolderError: a line other than the last cannot be read.
        """
        data = self._path.read_bytes()
        whole, newline, torn = data.rpartition(b"\n")
        if torn:
            os.ftruncate(self._descriptor, len(whole) + len(newline))
        contents = _Reader(self._path)
        for number, line in enumerate(whole.splitlines(), 1):
            contents.take(number, line)
        return contents.result()


def _kind(trial: Trial) -> str | None:
    """Of a record's line; None for a trial of the search."""
    if trial.soak_steps:
        return "soak"
    if trial.final:
        return "final"
    return "again" if trial.again else None


def read_journal(path: Path) -> JournalContents:
    """Read a journal without holding it; a torn last line is ignored.

    Raises:
        ResultsFolderError: a line other than the last cannot be read.
    """
    reader = _Reader(path)
    for number, line in enumerate(path.read_bytes().rpartition(b"\n")[0].splitlines(), 1):
        reader.take(number, line)
    return reader.result()


def _record(line: Any) -> Record:
    """A record whose times can be."""
    record = decode_record(line)
    times_s = record.measurement.step_s if record.measurement else (1.0,)
    if not times_s or not all(0.0 < time_s < _LONGEST_S for time_s in times_s):
        raise DecodeError(f"step_s is {list(times_s)}, but must be numbers above 0")
    return record


class _Reader:
    """Folds lines into contents."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start(JournalContents())
        self._open: dict[str, Started] = {}

    def _start(self, found: JournalContents) -> None:
        """Go on from these contents."""
        self._found = found
        self._told = list(found.told)
        self._finals, self._soaks = list(found.finals), list(found.soaks)
        self._starts = list(found.starts)
        self._searched_s = found.searched_s

    def take(self, number: int, line: bytes) -> None:
        try:
            self._fold(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalLineError(self._path, number, str(error)) from error

    def _fold(self, line: dict[str, Any]) -> None:
        if "fingerprint" in line:
            if line.get("version") != VERSION:
                raise DecodeError(f"version {line.get('version')!r} is not {VERSION}")
            read = decode(Fingerprint, line["fingerprint"])
            self._found = replace(self._found, fingerprint=read)
        elif "profiled" in line:
            self._found = replace(self._found, profiled=True)
        elif "past" in line:
            self._found = replace(self._found, past=decode(tuple[PastTime, ...], line["past"]))
        elif "space" in line and "name" not in line:
            self._start(self.result().in_space(decode(SpaceLine, line["space"])))
        elif "started" in line:
            self._take_start(decode(Started, line["started"]))
        else:
            kind = next((kind for kind in _WRAPPED if kind in line), None)
            self._take_record(_record(line if kind is None else line[kind]), kind)

    def _take_start(self, started: Started) -> None:
        self._open[started.name] = started
        if started.name.endswith(FINAL_SUFFIX):
            self._searched_s = started.before_s

    def _take_record(self, record: Record, kind: str | None) -> None:
        trial = record.trial
        started = self._open.pop(trial.name, None)
        if started is not None:
            self._starts.append(
                LaunchStart(name=trial.name, attempt=trial.attempt, unix_s=started.start_unix_s)
            )
        if kind == "final":
            self._finals.append(replace(record, trial=replace(trial, final=True)))
        elif kind == "soak":
            self._soaks.append(record)
        else:
            self._told.append(record)
            self._searched_s = None

    def result(self) -> JournalContents:
        return replace(
            self._found,
            told=tuple(self._told),
            finals=tuple(self._finals),
            soaks=tuple(self._soaks),
            orphans=tuple(self._open.values()),
            starts=tuple(self._starts),
            searched_s=self._searched_s,
        )
