"""Engine ``kubernetes``: agents in the pods of a Job, by the official client.

The client is the extra ``kubernetes`` of this package.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import yaml

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError

from ..plan import LaunchPlan, RankPlan
from ..request import LaunchRequest, RemoteAccess
from ..results import is_secret_variable
from .base import MOST_HOST_LOSSES, JobEnd
from .folder_line import (
    FolderLine,
    Heartbeat,
    Starter,
    complaint_in,
    last_line,
    make_line_folder,
)
from .hosts_job import HostsJob
from .line import agent_command
from .over_hosts import PLAIN, LinesOrder, QueuedEngine, passed_variables, without_shell
from .pods import (
    Answer,
    KubernetesApi,
    Manifest,
    PodsOrder,
    PodTemplate,
    has_begun,
    has_job_failed,
    has_pod_failed,
    host_name_of_first,
    is_deleted,
    is_scaling_up,
    make_manifests,
    newest_pods,
    node_of,
    owned_by,
    read_pod_template,
    why_ended,
    why_stuck,
    why_unscheduled,
    why_without_pods,
    without_values,
)

JOB_HANDLE = re.compile(r"[a-z0-9][a-z0-9.\-]*/[a-z0-9][a-z0-9.\-]*")
"""Namespace and name of a Job."""
_FIRST_LOOK_S, _LAST_LOOK_S = 0.5, 10.0
_START_S = 60.0
"""Longest time from the start of a pod to its agent's first message."""
_FITS_WITHIN_S = 60.0
"""Longest wait of a pod that fits on no present node: another node may join meanwhile."""
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_SPARE_S = 600.0
"""Time to pull images, to start and to end that the cluster's limit allows beyond our deadline."""
_ADDRESS = "MASTER_ADDR"


def pod_command(access: RemoteAccess, folder: Path) -> tuple[str, ...]:
    """Argv of the agent in a pod, whose line is files of this folder."""
    return without_shell(access, (*agent_command(), str(folder), _INDEX_VARIABLE))


class PodsStarter(Starter):
    """The Job that starts the agents of all hosts of a launch."""

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        super().__init__(folder)
        self._api = api
        self._pods: dict[int, Answer] = {}
        self._namespace = self._name = ""
        self._job: Answer = {}
        self._over: dict[int, Failure] = {}
        self._created_s = time.monotonic()
        self._begun_s: dict[int, float] = {}
        self._stuck_s: dict[int, float] = {}
        self._look_s, self._pause_s = 0.0, _FIRST_LOOK_S
        self._heart = Heartbeat(folder)

    @property
    def handle(self) -> str:
        """Name by which a later controller finds the Job."""
        return f"{self._namespace}/{self._name}"

    def lines(self, hosts: Sequence[str]) -> tuple[FolderLine, ...]:
        """The lines to the agents, whose orders name the first pod; see ``FolderLine``."""
        for line in super().lines(hosts):
            line.awaits_all = True
        return self._lines

    def submit(self, manifests: Sequence[Manifest]) -> None:
        """Make the Job, then the objects that it owns.

        Raises:
            ConfigError: the cluster refuses an object; nothing is left.
            HardwareError: the cluster does not answer.
        """
        named = [
            {**m, "metadata": {"namespace": self._api.namespace, **m["metadata"]}}
            for m in manifests
        ]
        about = named[0]["metadata"]
        self._namespace, self._name = about["namespace"], about["name"]
        try:
            self._job = self._api.create(named[0])
            for manifest in named[1:]:
                self._api.create(owned_by(manifest, self._job))
        except (ConfigError, HardwareError):
            self.end()
            raise

    def why_over(self, node: int) -> Failure | None:
        self._look()
        return self._over.get(node)

    def is_queued(self, node: int) -> bool:
        return bool(self._name) and node not in self._begun_s and node not in self._over

    def why_queued(self, node: int) -> str:
        if (pod := self._pods.get(node)) is None:
            return f"Job {self._name} has no pods yet"
        why = why_unscheduled(pod)
        return f"pod {pod['metadata']['name']} is pending{f' ({why})' if why else ''}"

    def patience_s(self, node: int) -> float:
        begun_s = self._begun_s.get(node)
        return math.inf if begun_s is None else begun_s - self._created_s + _START_S

    def cancel(self) -> None:
        ended = Failure(kind=FailureKind.PREEMPTED, detail="was ended before its pods had begun")
        self._over = dict.fromkeys(range(len(self._lines)), ended) | self._over
        self._api.delete_job(self._namespace, self._name)

    def end(self) -> None:
        """Delete the Job with all that it owns, and remove its files."""
        self._heart.stop()
        if self._job:
            self._api.delete_job(self._namespace, self._name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self) -> None:
        if not self._job or time.monotonic() < self._look_s:
            return
        pods = self._api.pods(self._namespace, self._name)
        before = self._pods
        if pods is not None:
            self._pods = newest_pods(pods)
            self._note_pods()
        is_new = before != self._pods
        self._pause_s = _FIRST_LOOK_S if is_new else min(1.5 * self._pause_s, _LAST_LOOK_S)
        self._look_s = time.monotonic() + self._pause_s

    def _note_pods(self) -> None:
        """Note lost hosts; the cluster deletes the other pods of a Job once a pod fails."""
        has_failed = any(map(has_pod_failed, self._pods.values()))
        for number, line in enumerate(self._lines):
            pod = self._pods.get(number)
            if pod is not None:
                line.host = node_of(pod) or line.host
                if has_begun(pod):
                    self._begun_s.setdefault(number, time.monotonic())
            if number in self._over or (has_failed and is_deleted(pod)):
                continue
            why = self._why_lost(number, pod) if pod else self._why_missing(number)
            if why:
                self._over[number] = why

    def _why_lost(self, number: int, pod: Answer) -> Failure | None:
        if ended := why_ended(pod):
            return self._with_log(ended, pod)
        stuck = self._after_a_while(number, why_stuck(pod))
        if stuck and is_scaling_up(self._api.events(self._namespace, pod)):
            return None
        return stuck

    def _after_a_while(self, number: int, why: str | None) -> Failure | None:
        if why is None:
            self._stuck_s.pop(number, None)
            return None
        since_s = self._stuck_s.setdefault(number, time.monotonic())
        if time.monotonic() < since_s + _FITS_WITHIN_S:
            return None
        return Failure(kind=FailureKind.BAD_CONFIG, detail=why)

    def _why_missing(self, number: int) -> Failure | None:
        """Why a host has no pod: none was made so far, or it was deleted, maybe with its Job."""
        job = self._api.find_job(self._namespace, self._name)
        if job is None:
            detail = f"Job {self._name} in namespace {self._namespace} was deleted from outside"
            return Failure(kind=FailureKind.PREEMPTED, detail=detail)
        if number in self._begun_s or has_job_failed(job):
            detail = f"a pod of Job {self._name} was deleted from outside"
            return Failure(kind=FailureKind.PREEMPTED, detail=detail)
        events = self._api.events(self._namespace, self._job)
        return self._after_a_while(number, why_without_pods(events))

    def _with_log(self, ended: Failure, pod: Answer) -> Failure:
        if ended.kind is not FailureKind.CRASHED:
            return ended
        said = self._api.log(self._namespace, pod["metadata"]["name"])
        if complaint := complaint_in(said):
            return complaint
        words = last_line(said) or "it printed nothing; see that all pods mount this folder"
        return Failure(kind=ended.kind, detail=f"{ended.detail} ({words})")


class KubernetesEngine(QueuedEngine):
    """Each plan is a Job with one pod for each host; ``access.arguments`` name the Pod's manifest.

    The agents' files in the trial's folder, a volume that all pods mount, decide how it went; the
    cluster is only asked about silent pods.
    """

    queue = "Kubernetes"
    prints_launches = True
    handles = JOB_HANDLE
    ends_within_s = 60.0

    @cached_property
    def _starters(self) -> dict[str, PodsStarter]:
        return {}

    @cached_property
    def _losses(self) -> Counter[str]:
        return Counter()

    @cached_property
    def _template(self) -> PodTemplate:
        return read_pod_template(self._access.arguments)

    @cached_property
    def _api(self) -> KubernetesApi:
        return KubernetesApi()

    def open_lines(
        self, hosts: Sequence[str], order: LinesOrder = PLAIN
    ) -> tuple[FolderLine, ...]:
        """Start an agent in as many pods as there are hosts, each as the user's manifest has it.

        Raises:
            ConfigError: the client or the manifest is missing, or the cluster refuses it.
            HardwareError: the cluster does not answer.
        """
        template, api = self._template, self._api
        own = make_line_folder(order.folder)
        command = pod_command(self._access, own)
        pods = PodsOrder(title="hosts", command=command, secrets=order.secrets, pods=len(hosts))
        starter = PodsStarter(api, own)
        lines = starter.lines(hosts)
        starter.submit(make_manifests(template, pods))
        return lines

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Make a Job that starts an agent in each of its pods; orders follow once all have begun.

        Raises:
            ConfigError: the cluster refuses it.
            HardwareError: the cluster does not answer.
            OSError: the plan's folder cannot be written.
        """
        job, starter, folder, secrets = self.make_queued_job(
            plan, lambda folder, pods: PodsStarter(self._api, folder)
        )
        pods = len(job.agents)
        ranks = sum(rank.node == 0 for rank in plan.ranks)
        order = PodsOrder(
            pods=pods,
            gpus=None if plan.alone else ranks,  # a script that starts its ranks has them all
            title=plan.name,
            command=pod_command(self._access, folder),
            secrets=secrets,
            deadline_s=job.deadline_s + _SPARE_S,
            avoided_nodes=tuple(
                n for n, count in self._losses.items() if count >= MOST_HOST_LOSSES
            ),
        )
        manifests = make_manifests(self._template, order)
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

    def cancel_waiting(self, handle: str) -> None:
        if handle in self._starters:
            self._starters[handle].cancel()

    def delete(self, handle: str) -> None:
        namespace, _, name = handle.partition("/")
        self._api.delete_job(namespace, name)

    def is_alive(self, handle: str) -> bool:
        namespace, _, name = handle.partition("/")
        return bool(self._api.pods(namespace, name))

    def launch_text(self, request: LaunchRequest) -> str:
        """Manifests of a launch as YAML; the folder of its agents is not there.

        Raises:
            ConfigError: the Pod's manifest cannot be used.
        """
        processes = request.processes
        secrets = {
            name: text
            for name, text in passed_variables().items()
            if is_secret_variable(name, text)
        }
        order = PodsOrder(
            pods=request.hosts.nodes or 1,
            gpus=processes if isinstance(processes, int) else None,
            title=Path(request.script).name,
            command=pod_command(self._access, Path.cwd() / ".agents-dry-run"),
            secrets=secrets,
        )
        manifests = make_manifests(self._template, order)
        shown = [
            json.loads(json.dumps(without_values(own))) for own in manifests
        ]  # no YAML anchors
        return yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True)


def _meeting_at(first: str, rank: RankPlan) -> RankPlan:
    """The rank, meeting the others at the first pod by its name unless the user chose a place."""
    variables = dict(rank.environment)
    if variables.get(_ADDRESS) == "":
        variables[_ADDRESS] = first
    return replace(rank, environment=tuple(variables.items()))
