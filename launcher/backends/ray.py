"""Runs plans on the nodes of a Ray cluster, each launch inside a placement group.

Ray gives a launch as many GPUs as its plan names, and says which; it waits while others have them.
"""

from __future__ import annotations

from dataclasses import replace

from ..hosts import ANY_NODE, HIP_VISIBLE, VISIBLE, RaySize, open_ray
from ..plan import LaunchPlan, RankPlan
from .hosts import HostsBackend, HostsJob, make_job, prepare_start


class RayBackend(HostsBackend):
    """Ranks on nodes of the cluster that ``RAY_ADDRESS`` names, else of this host's."""

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Write the orders, then have Ray start an agent on each host.

        Raises:
            ConfigError: ray is not installed.
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (ANY_NODE,)
        sizes = [_size(plan, node) for node in range(len(hosts))]
        lines = open_ray(hosts, self._access, sizes=sizes, folder=plan.folder, secrets=secrets)
        job = make_job(plan, lines, variables, secrets)
        for agent in job.agents:
            agent.ranks = tuple(map(_with_gpus_of_ray, agent.ranks))
        job.orphans = self._orphans
        job.look(self._linger_s, self._grace_s)
        return job


def _size(plan: LaunchPlan, node: int) -> RaySize:
    ranks = [rank for rank in plan.ranks if rank.node == node]
    named = dict(ranks[0].environment).get(VISIBLE) if ranks else None
    return RaySize(ranks=len(ranks), gpus=len(named.split(",")) if named else 0)


def _with_gpus_of_ray(rank: RankPlan) -> RankPlan:
    ours = (VISIBLE, HIP_VISIBLE)
    kept = (pair for pair in rank.environment if pair[0] not in ours or not pair[1])
    return replace(rank, environment=tuple(kept))
