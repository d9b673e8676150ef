"""Runs each plan as a Job of Kubernetes, one pod for each of its hosts.

The agents' files in the trial's folder, a volume that all pods mount, say how it went; the cluster
is asked what became of pods that say nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import yaml

from ..hosts import (
    JOB_HANDLE,
    KubernetesApi,
    PodsOrder,
    PodsSize,
    PodsStarter,
    host_name_of_first,
    make_manifests,
    pod_command,
    read_pod_template,
    without_values,
)
from ..machine import MOST_HOST_LOSSES
from ..plan import LaunchPlan, RankPlan
from ..request import LaunchRequest, RemoteAccess
from ..results import is_secret_variable
from .base import JobEnd
from .hosts import HostsJob, passed_variables
from .queued import QueuedBackend

_SPARE_S = 600.0
"""What the cluster's limit allows beyond our own deadline, to pull images, to start and to end."""
_ADDRESS = "MASTER_ADDR"


class KubernetesBackend(QueuedBackend):
    """``access.arguments`` name the Pod's manifest, ``deadline_s`` is what a trial may take."""

    handles = JOB_HANDLE
    ends_within_s = 60.0

    def __init__(
        self, access: RemoteAccess | None = None, *, deadline_s: float = math.inf
    ) -> None:
        super().__init__(access, deadline_s=deadline_s)
        self._template = read_pod_template(self._access.arguments)
        self._api = KubernetesApi()
        self._starters: dict[str, PodsStarter] = {}
        self._losses: Counter[str] = Counter()

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Make a Job that starts an agent in each of its pods; they get orders once all are there.

        Raises:
            ConfigError: the cluster refuses it.
            HardwareError: the cluster does not answer.
            OSError: the plan's folder cannot be written.
        """
        job, starter, folder, secrets = self._make_job(
            plan, lambda folder, pods: PodsStarter(self._api, folder, pods)
        )
        pods = len(job.agents)
        order = PodsOrder(
            title=plan.name,
            command=pod_command(self._access, folder),
            secrets=secrets,
            deadline_s=job.deadline_s + _SPARE_S,
            avoided_nodes=tuple(
                n for n, count in self._losses.items() if count >= MOST_HOST_LOSSES
            ),
        )
        manifests = make_manifests(self._template, _size(plan, pods), order)
        if pods > 1:
            namespace = self._template.namespace or self._api.namespace
            first = host_name_of_first(manifests[0]["metadata"]["name"], namespace)
            for agent in job.agents:
                agent.ranks = tuple(_meeting_at(first, rank) for rank in agent.ranks)
        starter.submit(manifests)
        job.queued_as = starter.handle
        self._starters[job.queued_as] = starter
        return job

    def _look(self, job: HostsJob) -> JobEnd | None:
        had_ended = job.end is not None
        end = super()._look(job)
        if end is not None and not had_ended:
            self._losses.update(end.lost_hosts)
            self._starters.pop(job.handle, None)
        return end

    def _cancel_waiting(self, handle: str) -> None:
        if handle in self._starters:
            self._starters[handle].cancel()

    def _delete(self, handle: str) -> None:
        namespace, _, name = handle.partition("/")
        self._api.delete_job(namespace, name)

    def _is_alive(self, handle: str) -> bool:
        namespace, _, name = handle.partition("/")
        return bool(self._api.pods(namespace, name))


def manifests_text(request: LaunchRequest) -> str:
    """What a launch would make in the cluster, as YAML; the folder of its agents is not there.

    Raises:
        ConfigError: the Pod's manifest cannot be used.
    """
    processes = request.processes
    size = PodsSize(
        pods=request.hosts.nodes or 1, gpus=processes if isinstance(processes, int) else None
    )
    secrets = {
        name: text for name, text in passed_variables().items() if is_secret_variable(name, text)
    }
    order = PodsOrder(
        title=Path(request.script).name,
        command=pod_command(request.remote, Path.cwd() / ".agents-dry-run"),
        secrets=secrets,
    )
    manifests = make_manifests(read_pod_template(request.remote.arguments), size, order)
    shown = [json.loads(json.dumps(without_values(own))) for own in manifests]  # no YAML anchors
    return yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True)


def _size(plan: LaunchPlan, pods: int) -> PodsSize:
    """A GPU for each rank; all of the Pod's where the script starts ranks itself."""
    ranks = sum(rank.node == 0 for rank in plan.ranks)
    return PodsSize(pods=pods, gpus=None if plan.alone else ranks)


def _meeting_at(first: str, rank: RankPlan) -> RankPlan:
    """Ranks meet at the first pod by its name, unless the user has said where."""
    variables = dict(rank.environment)
    if variables.get(_ADDRESS) == "":
        variables[_ADDRESS] = first
    return replace(rank, environment=tuple(variables.items()))
