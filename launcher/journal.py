"""The append-only file that is a study's state. Not: what is decided from it (Study).

One JSON object per line, each written with one call and synced: a header with the fingerprint
of what is measured, a ``profiled`` line, a ``started`` line for each trial, a record for each
outcome, and ``final`` and ``soak`` lines, records of what is launched again at the end. A line
that a crash tore is dropped when the file is read, and cut off before the next one is written.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from autoconf_launch.autotuner.record_codec import decode_record, encode_record
from autoconf_launch.autotuner.trial import Record
from autoconf_launch.core import DecodeError, ResultsFolderError, decode, encode

from .lease import Lease

FORMAT = "autoconf-launch journal"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must be equal for two measurements to count as of the same thing; digests are hex."""

    script: str
    arguments: tuple[str, ...]
    config: str
    hardware: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launch that was begun; without a record after it, it is an orphan."""

    name: str
    number: int
    attempt: str
    host: str
    pid: int | None
    start_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """What a journal says. ``finals`` measured again; ``orphans`` began and have no record.

    ``soaks`` are the winner's longer launches.
    """

    fingerprint: Fingerprint | None = None
    records: tuple[Record, ...] = ()
    finals: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    profiled: bool = False


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

    def write_started(self, *, name: str, number: int, attempt: str, pid: int | None) -> None:
        """A trial's processes are about to report."""
        started = Started(
            name=name,
            number=number,
            attempt=attempt,
            host=socket.gethostname(),
            pid=pid,
            start_unix_s=time.time(),
        )
        self._append({"started": encode(started)})

    def write_record(self, record: Record) -> None:
        """A trial's outcome."""
        line = encode_record(record)
        kind = "soak" if record.trial.soak_steps else "final" if record.trial.final else None
        self._append({kind: line} if kind else line)

    def _append(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            written = os.write(self._descriptor, data)
            if written < len(data):
                os.write(self._descriptor, data[written:])
            os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

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


def read_journal(path: Path) -> JournalContents:
    """Read a journal without holding it; a torn last line is ignored.

    Raises:
        ResultsFolderError: a line other than the last cannot be read.
    """
    reader = _Reader(path)
    for number, line in enumerate(path.read_bytes().rpartition(b"\n")[0].splitlines(), 1):
        reader.take(number, line)
    return reader.result()


class _Reader:
    """Folds lines into contents."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fingerprint: Fingerprint | None = None
        self._records: list[Record] = []
        self._finals: list[Record] = []
        self._soaks: list[Record] = []
        self._open: dict[str, Started] = {}
        self._profiled = False

    def take(self, number: int, line: bytes) -> None:
        try:
            self._fold(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsFolderError(
                f"line {number} of {self._path} cannot be read ({error}); start anew with "
                "--fresh, which moves the old folder aside."
            ) from error

    def _fold(self, line: dict[str, Any]) -> None:
        if "fingerprint" in line:
            if line.get("version") != VERSION:
                raise DecodeError(f"version {line.get('version')!r} is not {VERSION}")
            self._fingerprint = decode(Fingerprint, line["fingerprint"])
        elif "profiled" in line:
            self._profiled = True
        elif "started" in line:
            started = decode(Started, line["started"])
            self._open[started.name] = started
        elif "final" in line:
            final = decode_record(line["final"])
            self._finals.append(replace(final, trial=replace(final.trial, final=True)))
            self._open.pop(final.trial.name, None)
        elif "soak" in line:
            soak = decode_record(line["soak"])
            self._soaks.append(soak)
            self._open.pop(soak.trial.name, None)
        else:
            record = decode_record(line)
            self._records.append(record)
            self._open.pop(record.trial.name, None)

    def result(self) -> JournalContents:
        return JournalContents(
            fingerprint=self._fingerprint,
            records=tuple(self._records),
            finals=tuple(self._finals),
            soaks=tuple(self._soaks),
            orphans=tuple(self._open.values()),
            profiled=self._profiled,
        )
