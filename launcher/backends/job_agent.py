"""The agent of one host of a job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from autoconf_launch.core import DecodeError, decode

from ..hosts import AgentLine, Introduction
from ..launch import RankExit
from ..plan import RankPlan


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
