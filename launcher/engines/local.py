"""Engine of this machine: plans run below a separate agent each.

The agent (``launcher/launch``) starts, watches and ends the ranks; a socket leads to it. When
this process dies, even by SIGKILL, the socket closes and the agent ends everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from autoconf_launch.core import JOB_VARIABLE, Failure, FailureKind

from ..events import Listener
from ..launch import (
    Cancelled,
    LogStart,
    RankExit,
    RanksEnd,
    agent,
    signal_name,
)
from ..machine import available_memory_bytes, usable_cores, visible_gpus
from ..plan import LaunchPlan, RankPlan
from .agents import (
    GRACE_S,
    LINGER_S,
    LOG_LIMIT_BYTES,
    AgentEngine,
    AgentJob,
    log_start,
    open_logs,
    remove_shared_memory,
)
from .base import HostDescription, JobEnd

_AGENT_DIES_WITHIN_S = 5.0


def kill_strays(token: str, session: int | None) -> bool:
    """Send SIGKILL to each process with that token or session; true if any lived."""
    mark = f"{JOB_VARIABLE}={token}".encode()
    hit = False
    for pid, fields in agent.living_processes():
        if pid != os.getpid() and (int(fields[3]) == session or _is_marked(pid, mark)):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            hit = True
    return hit


def await_agent(pid: int, timeout_s: float) -> bool:
    """Wait until an agent whose controller died has ended everything; true if it has.

    ``pid`` is of its job (:class:`LocalJob`); a number that another process has taken
    since counts as ended.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        if not _is_agent(pid):
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a stopped one hears nothing
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1e3))
    finally:
        os.close(descriptor)


def _is_agent(pid: int) -> bool:
    try:
        return agent.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@dataclass(slots=True, kw_only=True)
class AgentHandle:
    """An agent that was started or requested.

    Attributes:
        pid: number of a process that lives as long as the agent does.
        session: session of all processes of the job; None until a fork server's agent begins.
        process: the agent, if it is our child.
    """

    pid: int
    session: int | None
    process: subprocess.Popen[bytes] | None = None

    def wait(self) -> int | None:
        """Exit code, negative for a signal; None for another process's child."""
        return None if self.process is None else self.process.wait()


class LocalJob(AgentJob):
    """A plan and the agent that runs it."""

    _removed_locks: tuple[str, ...] = ()

    def attach(self, started: AgentHandle, control: socket.socket, log_start: LogStart) -> None:
        """Take over an agent and this side's end of the socket to it."""
        self.agent, self.control, self._log_start = started, control, log_start
        self._received = b""
        self._closed = False
        self._lost_s: float | None = None

    @property
    def pid(self) -> int:
        return self.agent.pid

    @property
    def handle(self) -> str:
        return str(self.pid)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.control.fileno(),)

    @property
    def was_refused(self) -> bool:
        """True if a fork server closed the socket without having started anything."""
        self._listen()
        return self.end is None and self._closed and self.agent.session is None

    def send(self, line: dict[str, Any]) -> None:
        """Send a command and resume a stopped agent; no effect if it has ended."""
        if self.end is None:
            with contextlib.suppress(OSError):
                self.control.sendall(json.dumps(line).encode() + b"\n", socket.MSG_NOSIGNAL)
                if self.agent.session is not None:
                    os.kill(self.agent.session, signal.SIGCONT)

    def look(self) -> JobEnd | None:
        if self.end is None and self._is_over():
            self.end = self._read_end()
            self.control.close()
        return self.end

    def warnings(self) -> Iterator[str]:
        """Sentences on locks of torch extensions' builds whose processes were killed."""
        for path in self._removed_locks:
            yield (
                f"Removed {path}: the build of this torch extension was killed, and every later "
                "build would wait forever."
            )

    def _listen(self) -> None:
        while self.end is None and not self._closed:
            try:
                data = self.control.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self._received += data
            self._closed = not data
            if self.agent.session is None and b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                self.agent.session = json.loads(line)["started"]

    def _is_over(self) -> bool:
        if self.was_refused and self.cancelled is None:
            return False  # whoever asked the fork server has yet to spawn it
        has_reported = self._closed and self._received.endswith(b"\n")
        if has_reported or not (self._closed or time.monotonic() > self.due_s):
            return has_reported
        self._lost_s = self._lost_s or time.monotonic()
        alive = kill_strays(self.token, self.agent.session)
        return not alive or time.monotonic() > self._lost_s + agent.UNKILLABLE_S

    def _read_end(self) -> JobEnd:
        status = self.agent.wait()
        if self._lost_s is None:
            report = json.loads(self._received)
            self._removed_locks = tuple(report["removed_locks"])
            ranks, ended_s = _ranks_end(report, self.cancelled), report["ended_s"]
        else:
            ranks, ended_s = self._end_of_lost_ranks(status), time.monotonic()
        return self.end_as(ranks, self._log_start, ended_s=ended_s)

    def _end_of_lost_ranks(self, status: int | None) -> RanksEnd:
        remove_shared_memory(self.plan)
        detail = f"the process that watched the ranks {_how_it_ended(status)}"
        failure = Failure(kind=FailureKind.CRASHED, detail=detail)
        now = time.time()
        killed = RankExit(code=-signal.SIGKILL, unix_s=now)
        return RanksEnd(
            exits=(killed,) * self.plan.world_size,
            terminated_unix_s=0.0,
            cancelled=self.cancelled or Cancelled(reason=failure, unix_s=now),
        )


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "died without reporting"
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with code {status}"


def _ranks_end(report: dict[str, Any], cancelled: Cancelled | None) -> RanksEnd:
    exits = zip(report["codes"], report["exit_unix_s"], strict=True)
    return RanksEnd(
        exits=tuple(RankExit(code=code, unix_s=unix_s) for code, unix_s in exits),
        terminated_unix_s=report["terminated_unix_s"],
        cancelled=cancelled,
    )


Logs: TypeAlias = tuple[IO[bytes], ...]
Begin: TypeAlias = Callable[[LocalJob, socket.socket, Logs], AgentHandle]
"""From a job, the agent's end of its socket and its open logs to the agent."""


class LocalEngine(AgentEngine[LocalJob]):
    """Ranks as processes of this machine.

    ``environment``: of every rank, besides its own variables; None: ours.
    """

    job_type = LocalJob

    def __init__(
        self,
        *,
        listener: Listener | None = None,
        environment: Mapping[str, str] | None = None,
        linger_s: float = LINGER_S,
        grace_s: float = GRACE_S,
    ) -> None:
        super().__init__(listener=listener, linger_s=linger_s, grace_s=grace_s)
        self._environment = environment

    def describe_hosts(self, hosts: tuple[str, ...]) -> tuple[HostDescription, ...]:
        """This machine, by each of its names."""
        return tuple(
            HostDescription(
                host=host,
                address="127.0.0.1",
                launcher_address=None,
                cores=usable_cores(),
                memory_bytes=available_memory_bytes(),
                gpus=visible_gpus(),
            )
            for host in hosts
        )

    def submit(self, plan: LaunchPlan) -> LocalJob:
        """Start the agent and pass it the plan.

        Raises:
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        job = LocalJob(plan, **self._times_s)
        self._start(job, self._spawn)
        return job

    def _start(self, job: LocalJob, begin: Begin) -> None:
        with contextlib.ExitStack() as stack:
            logs = tuple(map(stack.enter_context, open_logs(job.plan.folder)))
            start = log_start(logs)
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            handle = begin(job, theirs, logs)
        job.attach(handle, ours, start)
        job.send(self.document(job))

    def _spawn(self, job: LocalJob, control: socket.socket, logs: Logs) -> AgentHandle:
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", agent.__file__, str(control.fileno())),
            stdin=subprocess.DEVNULL if logs else None,
            stdout=logs[0] if logs else None,
            stderr=logs[1] if logs else None,
            env={**self._variables, JOB_VARIABLE: job.token},
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )
        return AgentHandle(pid=process.pid, session=process.pid, process=process)

    @property
    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environment is None else self._environment

    def end_orphan(self, handle: str, host: str) -> None:
        """Wait for the agent of a dead controller, which ends everything."""
        if host == socket.gethostname() and re.fullmatch("[1-9][0-9]{0,8}", handle):
            await_agent(int(handle), _AGENT_DIES_WITHIN_S)

    def _whole(self, rank: RankPlan) -> dict[str, str]:
        return {**self._variables, **dict(rank.environment)}

    def document(self, job: LocalJob) -> dict[str, Any]:
        """The order for the agent."""
        plan = job.plan
        return {
            **job.order(plan.ranks, self._whole(plan.ranks[0])),
            "log_limit_bytes": None if plan.folder is None else LOG_LIMIT_BYTES,
            "private_files": plan.private_files,
        }
