"""What backends have in common whose launches are jobs of a queue, which outlive a controller."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from autoconf_launch.core import Failure

from ..hosts import LOCAL, FolderLine, make_line_folder
from ..plan import LaunchPlan
from ..request import RemoteAccess
from .base import Job
from .hosts import HostsBackend, HostsJob, hosts_job, make_job, prepare_start

_LOOK_S = 0.5


class _JobStarter(Protocol):
    def lines(self, hosts: Sequence[str]) -> tuple[FolderLine, ...]: ...


_Starter = TypeVar("_Starter", bound=_JobStarter)


class QueuedBackend(HostsBackend, ABC):
    """``access.arguments`` are for the queue, ``deadline_s`` is what a trial may take."""

    handles: ClassVar[re.Pattern[str]]
    """What names a job of this queue."""
    ends_within_s: ClassVar[float]
    """How long the processes of a job may live once it is deleted."""

    def __init__(
        self, access: RemoteAccess | None = None, *, deadline_s: float = math.inf
    ) -> None:
        super().__init__(access)
        self._deadline_s = deadline_s

    def _make_job(
        self, plan: LaunchPlan, make_starter: Callable[[Path, int], _Starter]
    ) -> tuple[HostsJob, _Starter, Path, dict[str, str]]:
        """A job that is not queued yet, what will start its agents, their folder, and secrets."""
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (LOCAL,)
        folder = make_line_folder(plan.folder or str(Path.cwd()))
        starter = make_starter(folder, len(hosts))
        job = make_job(plan, starter.lines(hosts), variables, secrets)
        job.deadline_s = self._deadline_s if plan.task else math.inf
        return job, starter, folder, secrets

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have agents end their ranks; a job that still waits has none."""
        super().cancel(job, reason)
        own = hosts_job(job)
        if self.handles.fullmatch(own.handle) and not any(agent.here for agent in own.agents):
            self._cancel_waiting(own.handle)

    def end_orphan(self, handle: str, host: str) -> None:
        """Delete the job of a dead controller, and wait until its processes have ended."""
        if not self.handles.fullmatch(handle):
            return
        self._delete(handle)
        until_s = time.monotonic() + self.ends_within_s
        while time.monotonic() < until_s and self._is_alive(handle):
            time.sleep(_LOOK_S)

    def _cancel_waiting(self, handle: str) -> None:
        self._delete(handle)

    @abstractmethod
    def _delete(self, handle: str) -> None:
        """Take a job out of the queue, or end it."""

    @abstractmethod
    def _is_alive(self, handle: str) -> bool:
        """Whether processes of a job that was deleted may still run."""
