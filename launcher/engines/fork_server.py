"""Runs plans on this machine by forking a process that has imported torch.

Short trials spend most of their time on importing torch. A fork server (``runtime/fork_server``)
imports it once, for an external script with what the script imports first, and forks for each
job an agent, which forks the ranks. A job's environment,
supervision and end are as with :class:`~.local.LocalEngine`, which also runs jobs that cannot be
forked, that a fork server refuses, or that it did not live to start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from autoconf_launch.core import (
    JOB_VARIABLE,
    PROBE_VARIABLE,
    SECRETS_VARIABLE,
    TASK_VARIABLE,
    Failure,
)

from ..dialects import DATALOADER_BATCH_VARIABLE
from ..events import Note
from ..launch import agent, how_it_died
from ..machine import HIP_VISIBLE, ORDER, VISIBLE
from ..plan import LaunchPlan
from ..spelling import TRACKER_FOLDERS
from .base import Job, JobEnd
from .local import AgentHandle, LocalEngine, LocalJob, Logs

MOST_FORK_SERVERS = 2
"""Each holds a few hundred megabytes; launches with yet other variables are spawned."""

MOST_REPLACED = 5
"""Limit of killed fork servers; a cause that kills more of them would kill the next, too."""

ANSWERS_WITHIN_S = 60.0
"""Seconds from a request to the agent's first word, with the start of the fork server."""

_BOOT = (
    "import gc, sys; gc.disable(); "  # enabled again after all imports
    "sys.path[:] = filter(None, sys.path); "  # no module from the current folder
    # the socket is not read while torch is imported
    "import ctypes, os; p = sys.platform == 'linux' and ctypes.CDLL(None).prctl; "
    f"p and p({agent.PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}, 0, 0, 0); "
    "os.getppid() == int(sys.argv[3]) or sys.exit(); "
    "from autoconf_launch.runtime.fork_server import main; main()()"
)
_OF_A_RANK = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "CROSS_RANK", "MASTER_ADDR", "MASTER_PORT"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "CROSS_SIZE"),
        *(VISIBLE, HIP_VISIBLE, ORDER, TASK_VARIABLE, JOB_VARIABLE, "TORCHINDUCTOR_CACHE_DIR"),
        *(PROBE_VARIABLE, DATALOADER_BATCH_VARIABLE, SECRETS_VARIABLE, *TRACKER_FOLDERS),
    }
)
"""Variables that nothing reads at its import. All others must be equal for a fork server to serve:
OMP_*, allocators, LD_* and PYTHON* act when a process starts."""

_ROOM_FOR_NAME = "0" * 32

_ServerKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Folder to start in, which matters to a relative PYTHONPATH, variables that act there, and
imports."""


class ForkServer:
    """A process to fork; requests are accepted while it still starts."""

    def __init__(self, key: _ServerKey) -> None:
        folder, variables, imports = self.key = key
        self.has_answered = False
        self._was_silent = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                (
                    *(sys.executable, "-u", "-c", _BOOT),
                    *(str(theirs.fileno()), agent.__file__, str(os.getpid())),
                    *imports,
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={**dict(variables), JOB_VARIABLE: _ROOM_FOR_NAME},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, name: str, control: socket.socket, logs: Logs) -> bool:
        """Ask for an agent; False if the server has ended."""
        descriptors = [control.fileno(), *(log.fileno() for log in logs)]
        try:
            socket.send_fds(self._socket, [name.encode()], descriptors, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    @property
    def death(self) -> str | None:
        """The way it was ended from outside; None: it lives, or has refused to fork and left."""
        status = self._process.poll() or 0
        if status >= 0:
            return None
        return "did not answer and was ended" if self._was_silent else how_it_died(status)

    def kill(self) -> None:
        """End a silent server; its agents live on."""
        self._was_silent = True
        self._process.kill()

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


_EARLY = list[ForkServer]()
"""The server that was started before there was a plan, until the first plan."""


@contextlib.contextmanager
def early_fork_server(
    variables: Mapping[str, str], folder: str, imports: tuple[str, ...]
) -> Iterator[None]:
    """Import torch while the command itself still imports and reads.

    The first plan of a :class:`ForkServerEngine` takes this server over if its ranks are started
    in the same folder with the same variables; otherwise the server ends.
    """
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            _EARLY.append(ForkServer(_server_key(variables, folder, imports)))
    try:
        yield
    finally:
        _take_early(None)


def _take_early(key: _ServerKey | None) -> ForkServer | None:
    """The early server if it is for this key; else it ends."""
    for early in (_EARLY.pop(),) if _EARLY else ():
        if early.key == key:
            return early
        early.close()
    return None


def _server_key(variables: Mapping[str, str], folder: str, imports: tuple[str, ...]) -> _ServerKey:
    acting = tuple(sorted(item for item in variables.items() if item[0] not in _OF_A_RANK))
    parts = variables.get("PYTHONPATH", "/").split(os.pathsep)
    return "/" if all(part.startswith("/") for part in parts) else folder, acting, imports


class ForkServerEngine(LocalEngine):
    """Forks the ranks of trials whose program is a Python script or module; ``close`` it.

    The first launch with new variables starts a fork server and waits for it inside ``wait``; that
    takes no longer than to spawn it would have.
    """

    def __init__(self, *, imports: tuple[str, ...] = (), **options: Any) -> None:
        """``imports`` of the script; none: its ranks use our runtime.

        See :func:`~autoconf_launch.launcher.script.leading_imports`.
        """
        super().__init__(**options)
        self._imports = imports
        self._fork_servers: dict[_ServerKey, ForkServer] = {}
        self._waiting: dict[str, tuple[ForkServer, float]] = {}
        self._replaced = 0

    def submit(self, plan: LaunchPlan) -> LocalJob:
        job = LocalJob(plan, **self._times_s)
        forks = _can_be_forked(plan) and not self._verifies_as_started(plan)
        self._start(job, self._fork if forks else self._spawn)
        return job

    def _verifies_as_started(self, plan: LaunchPlan) -> bool:
        """True for a verification run of an external script, which starts like its training."""
        return bool(self._imports) and plan.task is not None and plan.task.soak

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """See :meth:`LocalEngine.poll`; a job that a fork server did not start is spawned now."""
        for job in map(self._own, jobs):
            self._lose_patience(job)
            if job.was_refused and job.cancelled is None:
                job.control.close()
                self._start(job, self._spawn)
        return super().poll(jobs)

    def cancel(self, job: Job, reason: Failure) -> None:
        """See :meth:`LocalEngine.cancel`; a fork server that still starts is not awaited."""
        super().cancel(job, reason)
        own = self._own(job)
        fork_server, _ = self._waiting.get(own.token, (None, 0.0))
        is_new = fork_server is not None and not fork_server.has_answered
        if is_new and self.poll([job])[0] is None and own.agent.session is None:
            for key in [key for key, made in self._fork_servers.items() if made is fork_server]:
                self._fork_servers.pop(key).close()  # others that wait for it are spawned

    def close(self) -> None:
        """End the fork servers; a job that still runs goes on."""
        while self._fork_servers:
            self._fork_servers.popitem()[1].close()

    def _fork(self, job: LocalJob, control: socket.socket, logs: Logs) -> AgentHandle:
        fork_server = self._fork_server(self._key(job.plan))
        if fork_server is None or not logs or not fork_server.ask(job.token, control, logs):
            return self._spawn(job, control, logs)
        self._waiting[job.token] = (fork_server, time.monotonic() + ANSWERS_WITHIN_S)
        return AgentHandle(pid=fork_server.pid, session=None)

    def _fork_server(self, key: _ServerKey | None) -> ForkServer | None:
        if key is None:
            return None
        self._bury(key)
        if key not in self._fork_servers and len(self._fork_servers) < MOST_FORK_SERVERS:
            with contextlib.suppress(OSError):
                self._fork_servers[key] = _take_early(key) or ForkServer(key)
        return self._fork_servers.get(key)

    def _bury(self, key: _ServerKey) -> None:
        """Make room for another server if a signal has killed the server for these variables."""
        fork_server = self._fork_servers.get(key)
        if (
            fork_server is None
            or (death := fork_server.death) is None
            or self._replaced == MOST_REPLACED
        ):
            return
        self._fork_servers.pop(key).close()
        self._replaced += 1
        text = (
            f"The process that trials are forked from {death}; starting a new one takes a few "
            "seconds."
        )
        self._notify(Note(text=text, warning=True))

    def _key(self, plan: LaunchPlan) -> _ServerKey | None:
        folder = plan.working_directory
        keys = {_server_key(self._whole(rank), folder, self._imports) for rank in plan.ranks}
        return keys.pop() if len(keys) == 1 else None

    def document(self, job: LocalJob) -> dict[str, Any]:
        """State all variables of each rank: a fork starts with its fork server's variables."""
        document = super().document(job)
        for rank, description in zip(job.plan.ranks, document["ranks"], strict=True):
            description["environment"] = tuple(
                {**self._whole(rank), JOB_VARIABLE: job.token}.items()
            )
        return document

    def _lose_patience(self, job: LocalJob) -> None:
        fork_server, until_s = self._waiting.get(job.token, (None, 0.0))
        if fork_server is not None and job.agent.session is not None:
            del self._waiting[job.token]
            fork_server.has_answered = True
        elif fork_server is not None and time.monotonic() > min(until_s, job.due_s):
            fork_server.kill()


def _can_be_forked(plan: LaunchPlan) -> bool:
    return (
        sys.platform == "linux"
        and plan.task is not None
        and all(_is_python(rank.argv) and rank.log is None for rank in plan.ranks)
    )


def _is_python(argv: tuple[str, ...]) -> bool:
    return argv[:2] == (sys.executable, "-u") and (argv[2:3] == ("-m",) or argv[2].endswith(".py"))
