"""The agent of one host of a job, and the two logs that the launcher writes for it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from autoconf_launch.core import DecodeError, decode

from ..hosts import AgentLine, Introduction
from ..launch import STDERR_LOG, STDOUT_LOG, LogStart, RankExit, trial_logs
from ..plan import RankPlan
from ..results import open_private
from .local import LOG_LIMIT_BYTES

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """How each rank of a host ended, in the plan's order, by that host's clock."""

    codes: tuple[int, ...]
    exit_unix_s: tuple[float, ...]
    terminated_unix_s: float | None


class JobAgent:
    """One host of a job: its line, and what its agent said."""

    def __init__(self, node: int, line: AgentLine, ranks: tuple[RankPlan, ...]) -> None:
        self.node, self.line, self.ranks = node, line, ranks
        self.here: Introduction | None = None
        self.report: _Report | None = None
        self.lost: str | None = None
        self.losses = 0
        """How often it was lost, not told to end before it had any ranks."""
        self.lost_unix_s = 0.0
        self.lost_code = -int(signal.SIGKILL)
        self.clock_s = 0.0
        """What its clock shows more than ours."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is expected of it."""
        return self.report is not None or self.lost is not None

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """Its host for each time that it was lost."""
        return (self.line.host,) * self.losses

    def exits(self) -> Iterator[RankExit]:
        """How each of its ranks ended, by our clock; those of a lost host were killed."""
        if self.report is None:
            yield from (RankExit(code=self.lost_code, unix_s=self.lost_unix_s) for _ in self.ranks)
            return
        for code, unix_s in zip(self.report.codes, self.report.exit_unix_s, strict=True):
            yield RankExit(code=code, unix_s=unix_s - self.clock_s)

    def take_report(self, said: object) -> None:
        """How its ranks ended.

        Raises:
            DecodeError: that is said of other ranks, or not as an agent says it.
        """
        report = decode(_Report, said)
        if {len(report.codes), len(report.exit_unix_s)} != {len(self.ranks)}:
            raise DecodeError(f"a report of {len(report.codes)} ranks, not {len(self.ranks)}")
        self.report = report


class HostLogs:
    """What ranks of all hosts print, in the trial's folder or, without one, on our own streams.

    A launch keeps as much of each log as one on this machine does.
    """

    def __init__(self, folder: str | None) -> None:
        self._files: tuple[IO[bytes], ...] = ()
        if folder is not None:
            paths = (Path(folder, name) for name in (STDOUT_LOG, STDERR_LOG))
            self._files = tuple(os.fdopen(open_private(p, _APPEND), "ab") for p in paths)
        half = LOG_LIMIT_BYTES // 2
        self._limited = [trial_logs.LimitedLog(file.fileno(), half) for file in self._files]
        sizes = (os.fstat(file.fileno()).st_size for file in self._files)
        self.start = LogStart(**dict(zip(("stdout_bytes", "stderr_bytes"), sizes, strict=False)))
        """Where this launch's part of the logs begins."""

    def write(self, number: int, data: bytes) -> None:
        """Add what came from standard output (1) or error (2)."""
        index = 1 if number == 2 else 0
        if self._files:
            self._files[index].write(data)
            self._files[index].flush()
            self._limited[index].free_middle()
            return
        stream = (sys.stdout, sys.stderr)[index]
        stream.buffer.write(data)
        stream.buffer.flush()

    def close(self) -> None:
        """Say what is omitted, where the logs are longer than that."""
        for log, file in zip(self._limited, self._files, strict=True):
            log.cut_middle()
            with contextlib.suppress(OSError):
                file.close()
        self._files, self._limited = (), []
