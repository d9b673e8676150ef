"""A launch over hosts: an agent on each, its messages, and the ends of the ranks.

The ranks' files and output travel through the line of their host. Through a pipe that needs no
shared folder; with a shared results folder only results travel, as caches may hide them.
"""

from __future__ import annotations

import base64
import contextlib
import math
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.core import (
    END_FILE,
    JOB_VARIABLE,
    SIGNS_FOLDER,
    DecodeError,
    Failure,
    FailureKind,
    decode,
    visible,
)

from ..launch import (
    STDERR_LOG,
    STDOUT_LOG,
    Cancelled,
    RankExit,
    RanksEnd,
    trial_logs,
)
from ..plan import LaunchPlan, RankPlan
from ..results import open_private, write_private
from .agents import (
    LOG_LIMIT_BYTES,
    OBEYS_WITHIN_S,
    AgentJob,
    log_start,
    open_logs,
)
from .base import JobEnd
from .line import AgentLine, Introduction

_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_MOST_SENT_BYTES = 4 << 20  # of a file that a trial's ranks read
_LONGEST_QUOTE = 200
_NAME = re.compile(rf"(?:{SIGNS_FOLDER}/)?[A-Za-z0-9_][A-Za-z0-9_.\-]{{0,200}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """End of each rank of a host, in the plan's order, by that host's clock."""

    codes: tuple[int, ...]
    exit_unix_s: tuple[float, ...]
    terminated_unix_s: float | None


class JobAgent:
    """A host of a job: its line, and the messages of its agent."""

    def __init__(self, node: int, line: AgentLine, ranks: tuple[RankPlan, ...]) -> None:
        self.node, self.line, self.ranks = node, line, ranks
        self.here: Introduction | None = None
        self.report: _Report | None = None
        self.lost: str | None = None
        self.losses = 0
        """Number of losses; 0 for a host that was ended before it had ranks."""
        self.lost_unix_s = 0.0
        self.lost_code = -int(signal.SIGKILL)
        self.clock_s = 0.0
        """Lead of its clock over ours, in seconds."""

    @property
    def has_ended(self) -> bool:
        """True once its report has come or it is lost."""
        return self.report is not None or self.lost is not None

    @property
    def can_be_told(self) -> bool:
        return self.here is not None or (self.line.is_shared and not self.line.awaits_all)

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """Its host, once for each loss."""
        return (self.line.host,) * self.losses

    def exits(self) -> Iterator[RankExit]:
        """End of each of its ranks, by our clock; ranks of a lost host were killed."""
        if self.report is None:
            yield from (RankExit(code=self.lost_code, unix_s=self.lost_unix_s) for _ in self.ranks)
            return
        for code, unix_s in zip(self.report.codes, self.report.exit_unix_s, strict=True):
            yield RankExit(code=code, unix_s=unix_s - self.clock_s)

    def take_report(self, said: object) -> None:
        """Take the ends of its ranks.

        Raises:
            DecodeError: they are of other ranks, or malformed.
        """
        report = decode(_Report, said)
        if {len(report.codes), len(report.exit_unix_s)} != {len(self.ranks)}:
            raise DecodeError(f"a report of {len(report.codes)} ranks, not {len(self.ranks)}")
        self.report = report


class HostLogs:
    """Output of the ranks of all hosts, in the trial's folder or, without one, on our own streams.

    A launch keeps as much of each log as one on this machine does.
    """

    def __init__(self, folder: str | None) -> None:
        self._files = open_logs(folder)
        half = LOG_LIMIT_BYTES // 2
        self._limited = [trial_logs.LimitedLog(file.fileno(), half) for file in self._files]
        self.start = log_start(self._files)
        """Sizes of the logs at the start of this launch."""

    def write(self, number: int, data: bytes) -> None:
        """Add output of stream 1 (standard output) or 2 (error)."""
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
        """Note the omitted part of logs that exceed the limit."""
        for log, file in zip(self._limited, self._files, strict=True):
            log.cut_middle()
            with contextlib.suppress(OSError):
                file.close()
        self._files, self._limited = (), []


class HostsJob(AgentJob):
    """A plan and the agents that run it.

    Args:
        plan: the launch.
        agents: one for each host.
        variables: of all ranks, besides their own.
        secrets: names of variables that orders omit, as these are files.
        times_s: see :class:`AgentJob`.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        agents: tuple[JobAgent, ...],
        variables: Mapping[str, str],
        secrets: Collection[str] = (),
        **times_s: float,
    ) -> None:
        super().__init__(plan, **times_s)
        self.agents = agents
        self.queued_as = ""
        """Its name in a queue, if it has one."""
        self.deadline_s = float("inf")
        """Longest run of the ranks, which the agents enforce even without a controller."""
        self.orphans: tuple[str, ...] = ()
        """Handles of launches whose controller has died."""
        self._was_told_to_end = False
        self._passed_variables = {n: v for n, v in variables.items() if n not in secrets}
        self._secrets = secrets
        self._was_sent = False
        self._end_s = float("inf")
        self._told_end = ""
        self._terminated_unix_s: float | None = None
        self._marker = _make_marker(plan.folder, self.token)
        self._logs = HostLogs(plan.folder)

    @property
    def handle(self) -> str:
        """The mark of its ranks, or its job in a queue."""
        return self.queued_as or self.token

    @property
    def is_queued(self) -> bool:
        """True while it waits for hosts, which does not count as time of the trial."""
        lines = [agent.line for agent in self.agents if not agent.has_ended]
        gathers = not self._was_sent and any(line.awaits_all for line in lines)
        return gathers or any(line.is_queued for line in lines)

    @property
    def waited_s(self) -> float:
        """Seconds that it has waited for hosts; 0 if it does not wait now."""
        return time.monotonic() - self._started_s if self.is_queued else 0.0

    def send(self, line: dict[str, Any]) -> None:
        for agent in self.agents:
            if not agent.has_ended:
                agent.line.send(line)

    @property
    def wake_s(self) -> float:
        """See :class:`AgentJob`; files of a line must be looked at."""
        lines = [agent.line for agent in self.agents if not agent.has_ended]
        look_s = time.monotonic() + min((line.look_every_s for line in lines), default=math.inf)
        return min((*(line.due_s for line in lines), look_s, self._end_s, self.due_s))

    @property
    def descriptors(self) -> Iterator[int]:
        lines = (agent.line for agent in self.agents if not agent.has_ended)
        return (line.fileno() for line in lines if line.fileno() >= 0)

    def warnings(self) -> Iterator[str]:
        """Sentences on the hosts that ended a training."""
        if self.plan.task is None and not self._was_told_to_end:
            for why in dict.fromkeys(a.lost for a in self.agents if a.losses and a.lost):
                yield f"{why[0].upper()}{why[1:]}; the launch was ended."

    def cancel(self, reason: Failure) -> None:
        self._was_told_to_end = True
        super().cancel(reason)

    def look(self) -> JobEnd | None:
        if self.end is not None:
            return self.end
        for agent in self.agents:
            if not agent.has_ended:
                self._take(agent)
        if not self._was_sent and all(a.can_be_told for a in self.agents):
            self._send_documents()
        self._pass_end_on()
        if time.monotonic() > self._end_s:
            self._end_s = float("inf")
            self._terminated_unix_s = self._terminated_unix_s or time.time()
            self.send({"end": True})
            self.due_s = min(self.due_s, time.monotonic() + self.grace_s + OBEYS_WITHIN_S)
        if all(agent.has_ended for agent in self.agents):
            self._finish()
        return self.end

    def _take(self, agent: JobAgent) -> None:
        for line in agent.line.read():
            try:
                self._hear(agent, line)
            except (KeyError, TypeError, ValueError) as error:
                said = visible(str(error)[:_LONGEST_QUOTE])
                detail = f"host {agent.line.host} says what no agent says ({said})"
                self._lose(agent, Failure(kind=FailureKind.NODE_LOST, detail=detail))
                return
        if agent.has_ended:
            agent.line.close()
            return
        loss = agent.line.loss
        if loss is None and time.monotonic() > self.due_s:
            loss = Failure(kind=FailureKind.NODE_LOST, detail="does not end its ranks")
        if loss is not None:
            named = replace(loss, detail=f"host {agent.line.host} {loss.detail}")
            self._lose(agent, named if loss.kind is FailureKind.NODE_LOST else loss)

    def _hear(self, agent: JobAgent, line: dict[str, Any]) -> None:
        if "here" in line:
            agent.here = decode(Introduction, line["here"])
            agent.clock_s = agent.here.unix_s - time.time()
        elif "stream" in line:
            self._logs.write(int(line["stream"]), base64.b64decode(line["data"]))
        elif "file" in line:
            self._keep(agent, str(line["file"]), line["data"])
        elif "failed" in line:
            self._end_s = min(self._end_s, time.monotonic() + self.linger_s)
        elif "overdue" in line:
            detail = f"did not end within {self.deadline_s:g} s"
            failure = Failure(kind=FailureKind.TIMED_OUT, detail=detail)
            self._was_told_to_end = True
            self.cancelled = self.cancelled or Cancelled(reason=failure, unix_s=time.time())
        elif "report" in line:
            agent.take_report(line["report"])

    def _lose(self, agent: JobAgent, loss: Failure) -> None:
        agent.lost, agent.lost_unix_s = loss.detail, time.time() - agent.line.silent_s
        had_ranks = self._was_sent and agent.here is not None
        if had_ranks or self.cancelled is None:
            agent.losses = 2 if agent.line.is_unreachable else 1
        agent.line.close()
        if self.cancelled is None:  # as of when it was lost: its peers fail before that is seen
            self.cancelled = Cancelled(reason=loss, unix_s=agent.lost_unix_s)
        self._end_s = min(self._end_s, time.monotonic())

    def _send_documents(self) -> None:
        self._was_sent = True
        address, port = self._meeting_place()
        for agent in self.agents:
            own_address = agent.here.address if agent.here else ""
            is_ours = agent.here is not None and agent.here.launcher_address is None
            ranks = [self._place(rank, address, port) for rank in agent.ranks]
            agent.line.send(
                {
                    **self.order(ranks, self._passed_variables),
                    "deadline_s": None if self.deadline_s == float("inf") else self.deadline_s,
                    "environment": {**self._passed_variables, JOB_VARIABLE: self.token},
                    "address": address if is_ours and agent.node == 0 else own_address,
                    "orphans": [f"{JOB_VARIABLE}={token}" for token in self.orphans],
                    "folder": self.plan.folder,
                    "marker": "" if agent.line.is_shared else self._marker and self._marker.name,
                    "files": _files_to_send(self.plan.folder),
                }
            )

    def _meeting_place(self) -> tuple[str, str]:
        """Address and port at which the ranks meet, on the first host.

        Our own address is as another host sees it; empty if the agents agree on the place.
        """
        if not (first := self.agents[0].here):
            return "", ""
        seen = (agent.here.launcher_address for agent in self.agents[1:] if agent.here)
        ours = next(filter(None, seen), None) if first.launcher_address is None else None
        return ours or first.address, str(first.port)

    def _place(self, rank: RankPlan, address: str, port: str) -> RankPlan:
        variables = {n: v for n, v in rank.environment if n not in self._secrets}
        for name, value in ((_ADDRESS, address), (_PORT, port)):
            if variables.get(name) == "":
                variables[name] = value
        return replace(rank, environment=tuple(variables.items()))

    def _keep(self, sender: JobAgent, name: str, data: str) -> None:
        """Write a rank's file into the trial's folder; signs also go to the other hosts."""
        if self.plan.folder is None or not _NAME.fullmatch(name):
            return
        path = Path(self.plan.folder, name)
        new = path.with_name(f".{path.name}.new")
        with os.fdopen(open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(base64.b64decode(data))
        new.replace(path)
        if path.parent.name == SIGNS_FOLDER:
            for agent in self.agents:
                if agent is not sender and not agent.has_ended:
                    agent.line.send({"file": name, "data": data})

    def _pass_end_on(self) -> None:
        """Send the step at which running ranks end, from its file in the trial's folder."""
        if self.plan.task is None or self.plan.task.most_steps is None or not self._was_sent:
            return
        with contextlib.suppress(OSError):
            told = Path(self.plan.task.folder, END_FILE).read_text()
            if told != self._told_end:
                self._told_end = told
                self.send({"file": END_FILE, "data": _text(told.encode())})

    def _finish(self) -> None:
        self._logs.close()
        for path, text in self.plan.private_files:
            write_private(Path(path), text)
        if self._marker is not None:
            self._marker.unlink(missing_ok=True)
        end = RanksEnd(
            exits=tuple(each for agent in self.agents for each in agent.exits()),
            terminated_unix_s=self._terminated_at_s(),
            cancelled=self.cancelled,
        )
        self.end = self.end_as(
            end,
            self._logs.start,
            ended_s=time.monotonic(),
            lost_hosts=tuple(host for agent in self.agents for host in agent.lost_hosts),
        )

    def _terminated_at_s(self) -> float | None:
        """Time of the first request to end ranks, by us or by an agent, on our clock."""
        if any(agent.lost for agent in self.agents):
            return 0.0  # how the ranks of a lost host died is not known
        told = [self._terminated_unix_s] if self._terminated_unix_s else []
        for agent in self.agents:
            if agent.report and agent.report.terminated_unix_s:
                told.append(agent.report.terminated_unix_s - agent.clock_s)
        return min(told, default=None)


def _make_marker(folder: str | None, token: str) -> Path | None:
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    marker = Path(folder, f".shared-{token}")
    os.close(open_private(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return marker


def _files_to_send(folder: str | None) -> dict[str, str]:
    skipped = {STDOUT_LOG, STDERR_LOG}
    return {
        path.name: _text(path.read_bytes())
        for path in (sorted(Path(folder).iterdir()) if folder else ())
        if path.name not in skipped
        and _NAME.fullmatch(path.name)
        and not path.is_symlink()
        and path.is_file()
        and path.stat().st_size <= _MOST_SENT_BYTES
        and not path.name.startswith("result")
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
