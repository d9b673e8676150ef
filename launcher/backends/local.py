"""Runs plans on this machine, each below an agent of its own. Not: who decides when to end one.

The agent (``launcher/agent.py``) starts, watches and ends the ranks; a socket leads to it. When
this process dies, even by SIGKILL, the socket closes and the agent ends everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.core.rank import result_file

from .. import agent
from ..log_tail import STDERR_LOG, STDOUT_LOG, LogStart
from ..outcome import Cancelled, RankExit, RanksEnd, read_outcome, signal_name
from ..plan import LaunchPlan
from .base import Job, JobEnd
from .strays import JOB_VARIABLE, kill_strays

LINGER_S = 1.5
"""How long the peers of a failed rank of a trial may take to write down what they saw."""

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""


class LocalJob:
    """The agent of one plan."""

    def __init__(self, plan: LaunchPlan, log_start: LogStart) -> None:
        self.plan = plan
        self.log_start = log_start
        self.token = uuid.uuid4().hex
        self.started_s = time.monotonic()
        self.cancelled: Cancelled | None = None
        self.end: JobEnd | None = None
        self.report = b""
        self.lost_s: float | None = None

    def attach(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        """Take over the agent and this side's end of the socket to it."""
        self.process, self.control = process, control

    @property
    def pid(self) -> int:
        """Process number of the agent, which is also the session of all processes."""
        return self.process.pid

    def send(self, line: dict[str, Any]) -> None:
        """Send a command; without effect where the agent has ended."""
        if self.end is None:
            with contextlib.suppress(OSError):
                self.control.sendall(json.dumps(line).encode() + b"\n", socket.MSG_NOSIGNAL)


class LocalBackend:
    """Ranks as processes of this machine, in the environment given (ours) and their own.

    ``linger_s`` and ``grace_s``: see ``LINGER_S`` and ``GRACE_S``; a plain training has no
    result to wait for, so its ranks are ended at once. Not for use from several threads.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        linger_s: float = LINGER_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._environment = environment
        self._linger_s = linger_s
        self._grace_s = grace_s
        _wake_on_signals()

    def submit(self, plan: LaunchPlan) -> LocalJob:
        """Start the agent and hand it the plan.

        Raises:
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        with contextlib.ExitStack() as stack:
            logs = _open_logs(plan.folder, stack)
            job = LocalJob(plan, _log_start(logs))
            environment = os.environ if self._environment is None else self._environment
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", agent.__file__, str(theirs.fileno())),
                stdin=subprocess.DEVNULL if logs else None,
                stdout=logs[0] if logs else None,
                stderr=logs[1] if logs else None,
                env={**environment, JOB_VARIABLE: job.token},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        job.attach(process, ours)
        job.send(self._document(plan))
        return job

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of each job that has ended; the same one whenever asked again."""
        return tuple(_look(_own(job)) for job in jobs)

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return when a job may have ended, a signal came, or the time is up."""
        poller = select.poll()
        for job in map(_own, jobs):
            if job.end is not None:
                return
            poller.register(job.control, select.POLLIN)
        wake = _wake_on_signals()
        poller.register(wake, select.POLLIN)
        ready = poller.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1e3)
        if any(descriptor == wake for descriptor, _ in ready):
            os.read(wake, 4096)

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have the agent end the ranks; a failure or a full report from before now stands."""
        own = _own(job)
        if own.cancelled is None:
            own.cancelled = Cancelled(reason=reason, unix_s=time.time())
        own.send({"end": True})

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the ranks, not to what they started."""
        _own(job).send({"signal": int(number)})

    def _document(self, plan: LaunchPlan) -> dict[str, Any]:
        task = plan.task
        return {
            "working_directory": plan.working_directory,
            "linger_s": self._linger_s if task else 0.0,
            "grace_s": self._grace_s,
            "attempt": task and task.attempt,
            "ranks": [
                {
                    "argv": rank.argv,
                    "environment": rank.environment,
                    "result": task and str(Path(task.folder, result_file(rank.rank))),
                }
                for rank in plan.ranks
            ],
        }


def _own(job: Job) -> LocalJob:
    if not isinstance(job, LocalJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


def _open_logs(
    folder: str | None, stack: contextlib.ExitStack
) -> tuple[IO[bytes], IO[bytes]] | None:
    if folder is None:
        return None
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    out = stack.enter_context((path / STDOUT_LOG).open("ab"))
    return out, stack.enter_context((path / STDERR_LOG).open("ab"))


def _log_start(logs: tuple[IO[bytes], IO[bytes]] | None) -> LogStart:
    if logs is None:
        return LogStart()
    return LogStart(stdout_bytes=logs[0].tell(), stderr_bytes=logs[1].tell())


def _look(job: LocalJob) -> JobEnd | None:
    if job.end is None and _is_over(job):
        job.end = _read_end(job)
        job.control.close()
    return job.end


def _is_over(job: LocalJob) -> bool:
    """Take in what the agent has sent; whether it, and all that it started, has ended."""
    while job.lost_s is None:
        try:
            data = job.control.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data and job.report.endswith(b"\n"):
            return True
        if not data:
            job.lost_s = time.monotonic()
        job.report += data
    alive = kill_strays(job.token, job.pid)
    return not alive or time.monotonic() > job.lost_s + agent.UNKILLABLE_S


def _read_end(job: LocalJob) -> JobEnd:
    status = job.process.wait()
    if job.lost_s is None:
        report = json.loads(job.report)
        ended_s, end = report["ended_s"], _ranks_end(report, job.cancelled)
    else:
        ended_s, end = time.monotonic(), _lost(job, status)
    plan = job.plan
    return JobEnd(
        exit_code=end.exit_code,
        outcome=None if plan.task is None else read_outcome(plan, end, job.log_start),
        wall_s=max(0.0, ended_s - job.started_s),
    )


def _ranks_end(report: dict[str, Any], cancelled: Cancelled | None) -> RanksEnd:
    exits = zip(report["codes"], report["exit_unix_s"], strict=True)
    return RanksEnd(
        exits=tuple(RankExit(code=code, unix_s=unix_s) for code, unix_s in exits),
        terminated_unix_s=report["terminated_unix_s"],
        cancelled=cancelled,
    )


def _lost(job: LocalJob, status: int) -> RanksEnd:
    """The end of a job whose agent died without a word, and with it the ranks."""
    how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with code {status}"
    failure = Failure(kind=FailureKind.CRASHED, detail=f"the process that watched the ranks {how}")
    now = time.time()
    killed = RankExit(code=-signal.SIGKILL, unix_s=now)
    return RanksEnd(
        exits=(killed,) * job.plan.world_size,
        terminated_unix_s=0.0,
        cancelled=job.cancelled or Cancelled(reason=failure, unix_s=now),
    )


@cache
def _wake_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def _wake_on_signals() -> int:
    """A descriptor to read when a signal came, where Python tells it to nobody else."""
    read, write = _wake_pipe()
    with contextlib.suppress(ValueError):  # not the main thread: signals go there anyway
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before not in (-1, write):
            signal.set_wakeup_fd(before)
    return read
