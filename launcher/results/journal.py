"""The append-only file that is a study's state.

One JSON object per line, each written with one call and synced: a header with the fingerprint of
the inputs, a ``profiled`` line, a ``past`` line with measurements of earlier studies, a
``started`` line for each trial, a record for each outcome, ``again`` lines (records of repeats
during the search), and ``final`` and ``soak`` lines (records of repeats at the end). After a
``space`` line another space is searched; a ``restart`` line voids all before it. A line that a
crash tore is dropped on reading, and cut off before the next is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.measurement import FINAL_SUFFIX, measured_name
from autoconf_launch.autotuner.space import Record, Trial, decode_record, encode_record
from autoconf_launch.autotuner.strategies import PastTime
from autoconf_launch.core import DecodeError, ResultsFolderError, decode, encode

from .lease import Lease
from .own_files import is_named, open_file, read_file
from .paths import require_names

FORMAT = "autoconf-launch journal"
VERSION = 1
_WRAPPED = ("again", "final", "soak")
"""Kinds of lines that contain the record of a repeat."""
_LONGEST_S = 1e9
"""Longest time that is read as a step's."""


class CoveredTime:
    """Periods on one clock, merged if they overlap."""

    def __init__(self) -> None:
        self.total_s = 0.0
        """Total duration of the periods, in seconds."""
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []

    def add(self, start_s: float, end_s: float) -> None:
        first = bisect_left(self._ends_s, start_s)
        last = bisect_right(self._starts_s, end_s)
        starts_s, ends_s = self._starts_s[first:last], self._ends_s[first:last]
        known_s = sum(end - start for start, end in zip(starts_s, ends_s, strict=True))
        start_s, end_s = min([start_s, *starts_s]), max([end_s, *ends_s])
        self.total_s += end_s - start_s - known_s
        self._starts_s[first:last] = [start_s]
        self._ends_s[first:last] = [end_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The inputs that must be equal for two measurements to be comparable; digests are hex."""

    script: str
    arguments: tuple[str, ...]
    config: str
    hardware: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]

    def differences(self, new: Fingerprint) -> tuple[str, ...]:
        """Names of the parts that changed."""
        names = (field.name for field in fields(self))
        return tuple(name for name in names if getattr(self, name) != getattr(new, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launch that was started; without a record after it, it is an orphan.

    ``handle`` is the backend's name for it. ``before_s`` is the duration of the study before its
    part (search, rounds or verification), in seconds; None in old journals.
    """

    name: str
    number: int
    attempt: str
    host: str
    start_unix_s: float
    handle: str | None = None
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStart:
    """The start of the launch that a record belongs to."""

    name: str
    attempt: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """The searched space: a hex digest, the name of trial 0, and names of trials outside it."""

    digest: str
    baseline: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The records from which a controller continues, in the order of their arrival."""

    records: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    starts: tuple[LaunchStart, ...] = ()

    @property
    def spent_s(self) -> float:
        """Duration of all launches until the last record, in seconds."""
        return max(self.times_s, default=0.0)

    @property
    def times_s(self) -> tuple[float, ...]:
        """Duration of all launches until each record arrived, in seconds.

        Concurrent launches count once, if their starts are known.
        """
        unix_s = {(start.name, start.attempt): start.unix_s for start in self.starts}
        covered, others_s = CoveredTime(), 0.0
        times_s = []
        for record in self.records:
            start_s = unix_s.get(_key(record))
            if start_s is None:
                others_s += record.wall_s
            else:
                covered.add(start_s, start_s + record.wall_s)
            times_s.append(covered.total_s + others_s)
        return tuple(times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """The content of a journal.

    Attributes:
        told: records of the search in the order of their arrival, repeats included.
        others: records outside the ``space``.
        finals: playoff launches.
        soaks: verification runs of the winner.
        orphans: launches that were started and have no record.
        searched_s: duration of the search before the rounds began, in seconds.
        profile_s: wall time of the profile run; None in old journals.
        past: measurements of earlier studies when this one began.
    """

    fingerprint: Fingerprint | None = None
    space: SpaceLine | None = None
    told: tuple[Record, ...] = ()
    others: tuple[Record, ...] = ()
    finals: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    starts: tuple[LaunchStart, ...] = ()
    searched_s: float | None = None
    profiled: bool = False
    profile_s: float | None = None
    past: tuple[PastTime, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        """Trials of the search, in order."""
        return tuple(record for record in self.told if not record.trial.again)

    @property
    def repeats(self) -> tuple[Record, ...]:
        """Repeats that the search launched, in order."""
        return tuple(record for record in self.told if record.trial.again)

    @property
    def names(self) -> frozenset[str]:
        """Names of all launches except profile runs."""
        launched = (*self.told, *self.others, *self.finals, *self.soaks)
        return frozenset(
            (*(r.trial.name for r in launched), *(orphan.name for orphan in self.orphans))
        )

    @property
    def history(self) -> tuple[Record, ...]:
        """All trials, in any space."""
        return (*self.records, *self.others)

    @property
    def search(self) -> Earlier:
        return self._earlier(self.told)

    @property
    def rounds(self) -> Earlier:
        return self._earlier(self.finals)

    @property
    def soaking(self) -> Earlier:
        return self._earlier(self.soaks)

    def _earlier(self, records: tuple[Record, ...]) -> Earlier:
        return Earlier(records=records, orphans=self.orphans, starts=self.starts)

    def in_space(self, line: SpaceLine) -> JournalContents:
        """The contents if another space is searched from here on.

        Playoff launches were chosen from other candidates, so they are skipped. Trial 0 is the new
        baseline. If the earlier space is unknown, all records that fit count.
        """
        if self.space is None and not line.left_out:
            return replace(self, space=line)
        back = (record for record in self.others if record.trial.name not in line.left_out)
        return replace(
            self,
            space=line,
            told=_number_records((*_kept_records(self.told, line.left_out), *back), line.baseline),
            others=tuple(r for r in self.history if r.trial.name in line.left_out),
            finals=(),
            soaks=(),
            searched_s=None,
        )


def _key(record: Record) -> tuple[str, int]:
    return record.trial.name, record.trial.attempt


def _kept_records(told: Sequence[Record], left_out: Sequence[str]) -> Iterator[Record]:
    """Records that still count; repeats say how many such trials had come back before them."""
    trials = [record for record in told if not record.trial.again]
    counts = [0, *accumulate(record.trial.name not in left_out for record in trials)]
    for record in told:
        before = counts[min(record.trial.again, len(trials))]
        if measured_name(record.trial.name) in left_out:
            continue
        if not record.trial.again:
            yield record
        elif before:
            yield replace(record, trial=replace(record.trial, again=before))


def _number_records(told: Sequence[Record], baseline: str) -> tuple[Record, ...]:
    """Number 0 for the baseline only; the former baseline is numbered after all others."""
    last = max((record.trial.number for record in told), default=0)

    def renumber(record: Record) -> Record:
        is_baseline = measured_name(record.trial.name) == baseline
        if is_baseline == (record.trial.number == 0):
            return record
        number = 0 if is_baseline else last + 1
        return replace(record, trial=replace(record.trial, number=number))

    return tuple(map(renumber, told))


class JournalLineError(ResultsFolderError):
    """A line that cannot be valid."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(
            f"line {line} of {path} cannot be read ({reason}); start over with "
            "--fresh, which moves the old folder aside."
        )
        self.line = line
        self.reason = reason


class Journal:
    """An open journal, kept under a lease if there is one; use as a context manager."""

    def __init__(self, path: Path, lease: Lease | None = None) -> None:
        self._path = path
        self._lease = lease
        self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def heartbeat(self) -> None:
        if self._lease is not None:
            self._lease.heartbeat()

    def write_header(self, fingerprint: Fingerprint) -> None:
        self._append({"format": FORMAT, "version": VERSION, "fingerprint": encode(fingerprint)})

    def write_profiled(self, wall_s: float) -> None:
        """Record the end of the profile run; its result is in its folder."""
        self._append({"profiled": True, "wall_s": wall_s})

    def write_past(self, past: tuple[PastTime, ...]) -> None:
        """Record the starting measurements, so that the study follows from its journal only."""
        self._append({"past": encode(past)})

    def write_space(self, line: SpaceLine) -> None:
        self._append({"space": encode(line)})

    def write_restart(self) -> None:
        """Void everything before: the script is started in another way from here on."""
        self._append({"restart": True})

    def write_started(
        self,
        *,
        name: str,
        number: int,
        attempt: str,
        handle: str | None,
        before_s: float | None = None,
    ) -> None:
        """Record that a trial's processes will report; ``before_s`` as in :class:`Started`."""
        started = Started(
            name=name,
            number=number,
            attempt=attempt,
            host=socket.gethostname(),
            handle=handle,
            start_unix_s=time.time(),
            before_s=before_s,
        )
        self._append({"started": encode(started)})

    def write_record(self, record: Record) -> None:
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
        if not is_named(self._path, self._descriptor):
            raise ResultsFolderError(
                f"{self._path} was moved or removed while it was in use. Find out what did it, "
                "then run again."
            )

    def read(self) -> JournalContents:
        """All whole lines; a torn last one is cut off the file.

        Raises:
            ResultsFolderError: a line other than the last cannot be read.
        """
        data = read_file(self._path)
        whole, newline, torn = data.rpartition(b"\n")
        if torn:
            os.ftruncate(self._descriptor, len(whole) + len(newline))
        contents = _Reader(self._path)
        for number, line in enumerate(whole.splitlines(), 1):
            contents.take(number, line)
        return contents.result()


def _kind(trial: Trial) -> str | None:
    if trial.is_soak:
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
    for number, line in enumerate(read_file(path).rpartition(b"\n")[0].splitlines(), 1):
        reader.take(number, line)
    return reader.result()


def _record(line: Any) -> Record:
    record = decode_record(line)
    trial = record.trial
    require_names(trial.name, *([trial.turn.next_name] if trial.turn else []))
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
        self._found = found
        self._told = list(found.told)
        self._finals, self._soaks = list(found.finals), list(found.soaks)
        self._starts = list(found.starts)
        self._searched_s = found.searched_s

    def take(self, number: int, line: bytes) -> None:
        try:
            document = json.loads(line)
            if number == 1 and "fingerprint" not in document:
                raise DecodeError("it is not a header")
            if number > 1 and "fingerprint" in document:
                raise DecodeError("it is a second header")
            self._fold(document)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise JournalLineError(self._path, number, str(error)) from error

    def _fold(self, line: dict[str, Any]) -> None:
        if "fingerprint" in line:
            if line.get("version") != VERSION:
                raise DecodeError(
                    f"another version wrote it, in format {line.get('version')!r}; this one reads "
                    f"format {VERSION}"
                )
            read = decode(Fingerprint, line["fingerprint"])
            self._found = replace(self._found, fingerprint=read)
        elif "profiled" in line:
            wall_s = line.get("wall_s")
            self._found = replace(
                self._found, profiled=True, profile_s=None if wall_s is None else float(wall_s)
            )
        elif "past" in line:
            self._found = replace(self._found, past=decode(tuple[PastTime, ...], line["past"]))
        elif "space" in line and "name" not in line:
            space = decode(SpaceLine, line["space"])
            require_names(space.baseline, *space.left_out)
            self._start(self.result().in_space(space))
        elif "restart" in line:
            self._start(JournalContents(fingerprint=self._found.fingerprint))
            self._open.clear()
        elif "started" in line:
            self._take_start(decode(Started, line["started"]))
        else:
            kind = next((kind for kind in _WRAPPED if kind in line), None)
            self._take_record(_record(line if kind is None else line[kind]), kind)

    def _take_start(self, started: Started) -> None:
        require_names(started.name)
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
