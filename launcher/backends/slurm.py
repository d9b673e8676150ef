"""Runs each plan as a batch job of Slurm, which outlives its controller.

The agents' files in the trial's folder say how it went; Slurm is asked only whether there is
still something to wait for.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from autoconf_launch.core import Failure

from ..hosts import (
    JOB_ID,
    LOCAL,
    SlurmQueue,
    SlurmStarter,
    cancel_jobs,
    find_job_states,
    make_line_folder,
)
from ..plan import LaunchPlan
from ..request import RemoteAccess
from .base import Job
from .hosts import HostsBackend, HostsJob, hosts_job, make_job, passed_variables, secret_variables

_SPARE_S = 120.0
"""What Slurm's limit allows beyond our own deadline, to start and to end."""
_ENDS_WITHIN_S = 30.0


class SlurmBackend(HostsBackend):
    """``access.arguments`` are words for sbatch, ``deadline_s`` what a trial may take."""

    def __init__(
        self, access: RemoteAccess | None = None, *, deadline_s: float = math.inf
    ) -> None:
        super().__init__(access)
        self._deadline_s = deadline_s
        self._queue = SlurmQueue()

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Write the orders, then queue a job that starts an agent on each of its hosts.

        Raises:
            ConfigError: Slurm is not installed here, or refuses the job.
            OSError: the plan's folder cannot be written.
        """
        if plan.folder is not None:
            Path(plan.folder).mkdir(parents=True, exist_ok=True)
        variables = passed_variables()
        secrets = secret_variables(plan, variables)
        hosts = plan.hosts or (LOCAL,)
        starter = SlurmStarter(
            make_line_folder(plan.folder or str(Path.cwd())), len(hosts), self._queue
        )
        job = make_job(plan, starter.lines(hosts), variables, secrets)
        job.deadline_s = self._deadline_s if plan.task else math.inf
        job.look(self._linger_s, self._grace_s)
        limit = job.deadline_s + _SPARE_S
        time_limit = () if limit == math.inf else (f"--time={math.ceil(limit / 60)}",)
        starter.submit(self._access, f"--job-name={plan.name}", *time_limit, secrets=secrets)
        job.queued_as = str(starter.pid)
        return job

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have agents end their ranks; a job that still waits has none."""
        super().cancel(job, reason)
        own = hosts_job(job)
        if JOB_ID.fullmatch(own.handle) and not any(agent.here for agent in own.agents):
            cancel_jobs(int(own.handle))

    def end_orphan(self, handle: str, host: str) -> None:
        """Cancel the job of a dead controller, and wait until its processes have ended."""
        if not JOB_ID.fullmatch(handle):
            return
        cancel_jobs(int(handle))
        until_s = time.monotonic() + _ENDS_WITHIN_S
        while time.monotonic() < until_s and _is_alive(int(handle)):
            time.sleep(0.5)


def _is_alive(job: int) -> bool:
    return find_job_states([job]).get(job) in ("RUNNING", "COMPLETING", "SUSPENDED")
