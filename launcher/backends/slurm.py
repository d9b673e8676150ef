"""Runs each plan as a batch job of Slurm, which outlives its controller.

The agents' files in the trial's folder say how it went; Slurm is asked only whether there is
still something to wait for.
"""

from __future__ import annotations

import math

from ..hosts import JOB_ID, SlurmQueue, SlurmStarter, cancel_jobs, find_job_states
from ..plan import LaunchPlan
from ..request import RemoteAccess
from .hosts import HostsJob
from .queued import QueuedBackend

_SPARE_S = 120.0
"""What Slurm's limit allows beyond our own deadline, to start and to end."""


class SlurmBackend(QueuedBackend):
    """``access.arguments`` are words for sbatch, ``deadline_s`` what a trial may take."""

    handles = JOB_ID
    ends_within_s = 30.0

    def __init__(
        self, access: RemoteAccess | None = None, *, deadline_s: float = math.inf
    ) -> None:
        super().__init__(access, deadline_s=deadline_s)
        self._queue = SlurmQueue()

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Write the orders, then queue a job that starts an agent on each of its hosts.

        Raises:
            ConfigError: Slurm is not installed here, or refuses the job.
            OSError: the plan's folder cannot be written.
        """
        job, starter, _, secrets = self._make_job(
            plan, lambda folder, nodes: SlurmStarter(folder, nodes, self._queue)
        )
        job.look(self._linger_s, self._grace_s)
        limit = job.deadline_s + _SPARE_S
        time_limit = () if limit == math.inf else (f"--time={math.ceil(limit / 60)}",)
        starter.submit(self._access, f"--job-name={plan.name}", *time_limit, secrets=secrets)
        job.queued_as = str(starter.pid)
        return job

    def _delete(self, handle: str) -> None:
        cancel_jobs(int(handle))

    def _is_alive(self, handle: str) -> bool:
        state = find_job_states([int(handle)]).get(int(handle))
        return state in ("RUNNING", "COMPLETING", "SUSPENDED")
