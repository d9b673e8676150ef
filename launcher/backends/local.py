"""Runs plans on this machine, each below an agent of its own. Not: who decides when to end one.

The agent (``launcher/launch``) starts, watches and ends the ranks; a socket leads to it. When
this process dies, even by SIGKILL, the socket closes and the agent ends everything.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from autoconf_launch.core import JOB_VARIABLE, Failure, result_file

from ..launch import STDERR_LOG, STDOUT_LOG, Cancelled, LogStart, agent
from ..plan import LaunchPlan, RankPlan
from .base import Job, JobEnd
from .local_job import AgentHandle, LocalJob, own_job, shared_memory

LINGER_S = 1.5
"""How long the peers of a failed rank of a trial may take to write down what they saw."""

GRACE_S = 3.0
"""From SIGTERM to SIGKILL."""

OBEYS_WITHIN_S = 3.0
"""Beyond the grace; then an agent that was told to end its ranks (stopped, say) is killed."""

Logs: TypeAlias = tuple[IO[bytes], IO[bytes]]
Begin: TypeAlias = Callable[[LocalJob, socket.socket, Logs | None], AgentHandle]
"""From a job, the agent's end of its socket and its open logs to the agent."""


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
        self.tell: Callable[[str], object] = lambda text: None
        """Hears what happened to launches from outside; see :func:`~.telling`."""
        _wake_on_signals()

    def submit(self, plan: LaunchPlan) -> LocalJob:
        """Start the agent and hand it the plan.

        Raises:
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        job = LocalJob(plan)
        self._start(job, self._spawn)
        return job

    def _start(self, job: LocalJob, begin: Begin) -> None:
        """Open the logs, start an agent with ``begin``, and give it the plan."""
        with contextlib.ExitStack() as stack:
            logs = _open_logs(job.plan.folder, stack)
            log_start = _log_start(logs)
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            handle = begin(job, theirs, logs)
        job.attach(handle, ours, log_start)
        job.send(self.document(job))

    def _spawn(self, job: LocalJob, control: socket.socket, logs: Logs | None) -> AgentHandle:
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

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of each job that has ended; the same one whenever asked again."""
        return tuple(map(self._look, map(own_job, jobs)))

    def _look(self, job: LocalJob) -> JobEnd | None:
        had_ended = job.end is not None
        end = job.look()
        for path in () if had_ended else job.removed_locks:
            self.tell(
                f"Removed {path}: the build of this torch extension was killed, and every later "
                "build would wait forever."
            )
        return end

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return when a job may have ended, a signal came, or the time is up."""
        poller = select.poll()
        for job in map(own_job, jobs):
            if job.end is not None:
                return
            poller.register(job.control, select.POLLIN)
            timeout_s = min(timeout_s, job.kill_s - time.monotonic())
        wake = _wake_on_signals()
        poller.register(wake, select.POLLIN)
        ready = poller.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1e3)
        if any(descriptor == wake for descriptor, _ in ready):
            os.read(wake, 4096)

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have the agent end the ranks; a failure or a full report from before now stands."""
        own = own_job(job)
        if own.cancelled is None:
            own.cancelled = Cancelled(reason=reason, unix_s=time.time())
            own.kill_s = time.monotonic() + self._grace_s + OBEYS_WITHIN_S
        own.send({"end": True})

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the ranks, not to what they started."""
        own_job(job).send({"signal": int(number)})

    def _whole(self, rank: RankPlan) -> dict[str, str]:
        return {**self._variables, **dict(rank.environment)}

    def document(self, job: LocalJob) -> dict[str, Any]:
        """What the agent is told of a job."""
        plan, task = job.plan, job.plan.task
        return {
            "working_directory": plan.working_directory,
            "linger_s": self._linger_s if task else 0.0,
            "grace_s": self._grace_s,
            "attempt": task and task.attempt,
            "extension_caches": _extension_caches(self._whole(plan.ranks[0])),
            "may_leave": plan.folder is None,  # a training may, as with python; no trial may
            "ranks": [
                {
                    "argv": rank.argv,
                    "environment": rank.environment,
                    "cores": rank.cores,
                    "log": rank.log,
                    "result": task and str(Path(task.folder, result_file(rank.rank))),
                    "shared_memory": shared_memory(rank),
                }
                for rank in plan.ranks
            ],
        }


def _extension_caches(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Where torch.utils.cpp_extension builds in a process with these variables."""
    if given := variables.get("TORCH_EXTENSIONS_DIR"):
        return (given,)
    cache = variables.get("XDG_CACHE_HOME") or Path(variables.get("HOME", "/"), ".cache")
    return (str(Path(cache, "torch_extensions")),)


def _open_logs(folder: str | None, stack: contextlib.ExitStack) -> Logs | None:
    if folder is None:
        return None
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    out = stack.enter_context((path / STDOUT_LOG).open("ab"))
    return out, stack.enter_context((path / STDERR_LOG).open("ab"))


def _log_start(logs: Logs | None) -> LogStart:
    if logs is None:
        return LogStart()
    return LogStart(stdout_bytes=logs[0].tell(), stderr_bytes=logs[1].tell())


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
