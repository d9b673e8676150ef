"""Jobs whose ranks run below agents, on this machine or on others, and the engines that have them.

An agent (``launcher/launch``) gets its order as JSON, starts the ranks, watches and ends them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, ClassVar, Generic, TypeVar, cast

from autoconf_launch.core import Failure, result_file

from ..events import Listener, Note
from ..launch import STDERR_LOG, STDOUT_LOG, Cancelled, LogStart, RanksEnd, read_outcome
from ..plan import LaunchPlan, RankPlan
from ..results import open_private
from .base import Job, JobEnd, LaunchEngine

LINGER_S = 1.5
"""Time for the peers of a failed rank of a trial to write their reports."""
GRACE_S = 3.0
"""Time from SIGTERM to SIGKILL."""
OBEYS_WITHIN_S = 3.0
"""Time after the grace at which an agent is killed that did not end its ranks."""
LOG_LIMIT_BYTES = 64 << 20
"""Size limit of each of the two logs of a launch; half is kept from its beginning."""
_NAME = "deepspeed_allreduce_buffer"
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "RANK")
_FOLDER = Path("/dev/shm")
_OF_A_RANK = ("rank", "argv", "environment", "cores", "log")
"""Fields of a rank that its agent gets as they are."""


class AgentJob(ABC):
    """A plan whose ranks run below one agent or several; see ``LINGER_S`` and ``GRACE_S``."""

    def __init__(
        self, plan: LaunchPlan, *, linger_s: float = LINGER_S, grace_s: float = GRACE_S
    ) -> None:
        self.plan, self.linger_s, self.grace_s = plan, linger_s, grace_s
        self.token = uuid.uuid4().hex
        """Value of a variable of all its processes."""
        self.cancelled: Cancelled | None = None
        self.end: JobEnd | None = None
        self.due_s = float("inf")
        """Time at which agents that did not end their ranks on request count as lost."""
        self._started_s = time.monotonic()

    @property
    def is_queued(self) -> bool:
        return False

    @property
    def wake_s(self) -> float:
        """Time at which to look again even if nothing can be read."""
        return self.due_s

    @property
    @abstractmethod
    def descriptors(self) -> Iterable[int]:
        """Descriptors that become readable when an agent has news."""

    @abstractmethod
    def send(self, line: dict[str, Any]) -> None:
        """Send a command to all agents that have not ended."""

    @abstractmethod
    def look(self) -> JobEnd | None:
        """Read the news; returns the end once the agents and all ranks have ended."""

    def warnings(self) -> Iterable[str]:
        """Sentences about its end."""
        return ()

    def cancel(self, reason: Failure) -> None:
        """Have the agents end the ranks; a failure or a full report from before now stays."""
        if self.cancelled is None:
            self.cancelled = Cancelled(reason=reason, unix_s=time.time())
            self.due_s = time.monotonic() + self.grace_s + OBEYS_WITHIN_S
        self.send({"end": True})

    def order(self, ranks: Iterable[RankPlan], variables: Mapping[str, str]) -> dict[str, Any]:
        """The order for an agent that starts some ranks; ``variables``: of a rank."""
        plan, task = self.plan, self.plan.task
        return {
            "working_directory": plan.working_directory,
            "linger_s": self.linger_s if task else 0.0,
            "grace_s": self.grace_s,
            "attempt": task and task.attempt,
            "extension_caches": extension_caches(variables),
            "may_leave": plan.folder is None,  # a training may, as with python; no trial may
            "ranks": [
                {
                    **{name: getattr(rank, name) for name in _OF_A_RANK},
                    "result": task and str(Path(task.folder, result_file(rank.rank))),
                    "shared_memory": shared_memory(rank),
                }
                for rank in ranks
            ],
        }

    def end_as(
        self, ranks: RanksEnd, logs: LogStart, *, ended_s: float, lost_hosts: tuple[str, ...] = ()
    ) -> JobEnd:
        """The end of the job, as its ranks have ended and reported."""
        plan = self.plan
        return JobEnd(
            exit_code=ranks.exit_code,
            outcome=None if plan.task is None else read_outcome(plan, ranks, logs),
            wall_s=max(0.0, ended_s - self._started_s),
            lost_hosts=lost_hosts,
        )


_OwnJob = TypeVar("_OwnJob", bound=AgentJob)


class AgentEngine(LaunchEngine, Generic[_OwnJob]):
    """Has agents start the ranks; not for use from several threads.

    Args:
        listener: receiver of notes about launches.
        linger_s: see ``LINGER_S``; the ranks of a plain training are ended at once.
        grace_s: see ``GRACE_S``.
    """

    job_type: ClassVar[type[AgentJob]]

    def __init__(
        self,
        *,
        listener: Listener | None = None,
        linger_s: float = LINGER_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._notify: Listener = listener or (lambda event: None)
        self._times_s = {"linger_s": linger_s, "grace_s": grace_s}
        wake_on_signals()

    def _own(self, job: Job) -> _OwnJob:
        """The job as this kind of engine made it.

        Raises:
            TypeError: it was submitted to another one.
        """
        if not isinstance(job, self.job_type):
            raise TypeError(f"job {job!r} was submitted to another backend.")
        return cast("_OwnJob", job)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        return tuple(map(self._look, map(self._own, jobs)))

    def _look(self, job: _OwnJob) -> JobEnd | None:
        had_ended = job.end is not None
        end = job.look()
        for text in job.warnings() if end is not None and not had_ended else ():
            self._notify(Note(text=text, warning=True))
        return end

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        poller = select.poll()
        for job in map(self._own, jobs):
            if job.end is not None:
                return
            timeout_s = min(timeout_s, job.wake_s - time.monotonic())
            for descriptor in job.descriptors:
                poller.register(descriptor, select.POLLIN)
        wait_until_readable(poller, timeout_s)

    def cancel(self, job: Job, reason: Failure) -> None:
        self._own(job).cancel(reason)

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the ranks, but not to their children."""
        self._own(job).send({"signal": int(number)})


def open_logs(folder: str | None) -> tuple[IO[bytes], ...]:
    """The two logs of a launch at their ends; none without a folder, which is made."""
    if folder is None:
        return ()
    Path(folder).mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    paths = (Path(folder, name) for name in (STDOUT_LOG, STDERR_LOG))
    return tuple(os.fdopen(open_private(path, flags), "ab") for path in paths)


def log_start(logs: Sequence[IO[bytes]]) -> LogStart:
    """The start of a launch's part of its logs."""
    sizes = (os.fstat(log.fileno()).st_size for log in logs)
    return LogStart(**dict(zip(("stdout_bytes", "stderr_bytes"), sizes, strict=False)))


def shared_memory(rank: RankPlan) -> str | None:
    """Path of shared memory that this rank may leave; None if its launch has no rendezvous."""
    variables: Mapping[str, str] = dict(rank.environment)
    if any(name not in variables for name in _NEEDED):
        return None
    words = (variables[name] for name in _NEEDED)
    return str(_FOLDER / "_".join((_NAME, str(os.getuid()), *words)))


def remove_shared_memory(plan: LaunchPlan) -> None:
    """Remove shared memory of ranks that have ended."""
    for path in filter(None, map(shared_memory, plan.ranks)):
        with contextlib.suppress(OSError):
            Path(path).unlink()


def extension_caches(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Folders in which torch.utils.cpp_extension builds, with these variables."""
    if given := variables.get("TORCH_EXTENSIONS_DIR"):
        return (given,)
    cache = variables.get("XDG_CACHE_HOME") or Path(variables.get("HOME", "/"), ".cache")
    return (str(Path(cache, "torch_extensions")),)


@cache
def _wake_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def wake_on_signals() -> int:
    """A descriptor that becomes readable when a signal arrives."""
    read, write = _wake_pipe()
    with contextlib.suppress(ValueError):  # not the main thread: signals go there anyway
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before not in (-1, write):
            signal.set_wakeup_fd(before)
    return read


def wait_until_readable(poller: select.poll, timeout_s: float) -> None:
    """Return when something that is polled can be read, a signal came, or time is up."""
    wake = wake_on_signals()
    poller.register(wake, select.POLLIN)
    ready = poller.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1e3)
    if any(descriptor == wake for descriptor, _ in ready):
        os.read(wake, 4096)
