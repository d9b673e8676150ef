"""One launch on this machine as seen from here: its agent, the socket to it, its end.

Not: how the agent is started (local, fork_server).

DeepSpeed's CPU communication makes 69 MB for each rank and never removes it. Its name holds the
user, the rendezvous and the rank (``csrc/cpu/comm/shm.cpp`` of deepspeed 0.19.8), so that what a
launch with a port of its own made is known from its plan.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoconf_launch.core import JOB_VARIABLE, Failure, FailureKind

from ..launch import Cancelled, LogStart, RankExit, RanksEnd, agent, read_outcome, signal_name
from ..plan import LaunchPlan, RankPlan
from .base import Job, JobEnd

_NAME = "deepspeed_allreduce_buffer"
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "RANK")
_FOLDER = Path("/dev/shm")


def shared_memory(rank: RankPlan) -> str | None:
    """Path of what this rank may leave behind; None where its launch has no rendezvous."""
    variables: Mapping[str, str] = dict(rank.environment)
    if any(name not in variables for name in _NEEDED):
        return None
    words = (variables[name] for name in _NEEDED)
    return str(_FOLDER / "_".join((_NAME, str(os.getuid()), *words)))


def remove_shared_memory(plan: LaunchPlan) -> None:
    """Remove what the ranks of a launch left; they must have ended."""
    for path in filter(None, map(shared_memory, plan.ranks)):
        with suppress(OSError):
            Path(path).unlink()


def kill_strays(token: str, session: int | None) -> bool:
    """Send SIGKILL to each process with that token, or of that session; whether any lived."""
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
    """Wait until an agent whose controller died has ended everything; whether it has.

    ``pid`` is of its job (:class:`~.local_job.LocalJob`); a number that another process has taken
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
    """An agent that was started, or asked for.

    Attributes:
        pid: of a process that lives as long as the agent does.
        session: of all processes of the job; None until a fork server's agent says it began.
        process: the agent, where it is our child.
    """

    pid: int
    session: int | None
    process: subprocess.Popen[bytes] | None = None

    def wait(self) -> int | None:
        """Exit code, negative for a signal; None where it is another's child."""
        return None if self.process is None else self.process.wait()


class LocalJob:
    """A plan and the agent that runs it."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.token = uuid.uuid4().hex
        self.cancelled: Cancelled | None = None
        self.end: JobEnd | None = None
        self.removed_locks: tuple[str, ...] = ()
        """Locks of torch extensions' builds whose processes had been killed."""
        self.kill_s = float("inf")
        """When an agent that was told to end its ranks and did not is ended with them."""
        self._started_s = time.monotonic()

    def attach(self, handle: AgentHandle, control: socket.socket, log_start: LogStart) -> None:
        """Take over an agent and this side's end of the socket to it."""
        self.handle, self.control, self._log_start = handle, control, log_start
        self._received = b""
        self._closed = False
        self._lost_s: float | None = None

    @property
    def pid(self) -> int:
        """Process number that lives as long as the agent does, for who comes after us."""
        return self.handle.pid

    @property
    def was_refused(self) -> bool:
        """Whether a fork server closed the socket without having started anything."""
        self._listen()
        return self.end is None and self._closed and self.handle.session is None

    def send(self, line: dict[str, Any]) -> None:
        """Send a command; without effect where the agent has ended, and a stopped one goes on."""
        if self.end is None:
            with contextlib.suppress(OSError):
                self.control.sendall(json.dumps(line).encode() + b"\n", socket.MSG_NOSIGNAL)
                if self.handle.session is not None:
                    os.kill(self.handle.session, signal.SIGCONT)

    def look(self) -> JobEnd | None:
        """The end, once the agent and all that it started have ended."""
        if self.end is None and self._is_over():
            self.end = self._read_end()
            self.control.close()
        return self.end

    def _listen(self) -> None:
        """Take in what the agent has sent."""
        while self.end is None and not self._closed:
            try:
                data = self.control.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self._received += data
            self._closed = not data
            if self.handle.session is None and b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                self.handle.session = json.loads(line)["started"]

    def _is_over(self) -> bool:
        if self.was_refused and self.cancelled is None:
            return False  # whoever asked the fork server has yet to spawn it
        has_reported = self._closed and self._received.endswith(b"\n")
        if has_reported or not (self._closed or time.monotonic() > self.kill_s):
            return has_reported
        self._lost_s = self._lost_s or time.monotonic()
        alive = kill_strays(self.token, self.handle.session)
        return not alive or time.monotonic() > self._lost_s + agent.UNKILLABLE_S

    def _read_end(self) -> JobEnd:
        status = self.handle.wait()
        if self._lost_s is None:
            report = json.loads(self._received)
            ended_s, end = report["ended_s"], _ranks_end(report, self.cancelled)
            self.removed_locks = tuple(report["removed_locks"])
        else:
            ended_s, end = time.monotonic(), self._lost(status)
        plan = self.plan
        return JobEnd(
            exit_code=end.exit_code,
            outcome=None if plan.task is None else read_outcome(plan, end, self._log_start),
            wall_s=max(0.0, ended_s - self._started_s),
        )

    def _lost(self, status: int | None) -> RanksEnd:
        """The end of a job whose agent died without a word, and with it the ranks."""
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


def own_job(job: Job) -> LocalJob:
    """A job as one of these backends made it.

    Raises:
        TypeError: it was submitted to another one.
    """
    if not isinstance(job, LocalJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


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
