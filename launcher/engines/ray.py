"""Engine ``ray``: agents on the nodes of a running Ray cluster, inside a placement group.

A separate process, ``ray_driver.py``, speaks to Ray; the lines are files of a folder.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError, visible

from ..asked import HostSource
from ..machine import HIP_VISIBLE, VISIBLE
from ..plan import LaunchPlan, RankPlan
from ..request import LaunchRequest
from .base import HostSlots
from .folder_line import AGENT_COMPLAINT, FolderLine, StartingProcess, last_line, make_line_folder
from .hosts_job import HostsJob
from .line import agent_command
from .over_hosts import PLAIN, HostsEngine, LinesOrder, prepare_start, without_shell

_ANY_NODE = ""
"""A host that Ray chooses."""
_DRIVER = Path(__file__).with_name("ray_driver.py")
_NODE_VARIABLE = "AUTOCONF_LAUNCH_NODE"
_PATIENCE_S = 60.0
"""Longest time for Ray to list its nodes, and for a placed agent to send its first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A node of the cluster, with the CPUs and GPUs that Ray counts there."""

    name: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySize:
    """Reservation of a launch on a host; none for an agent that only describes its host."""

    ranks: int = 0
    gpus: int = 0


@cache
def find_ray_nodes() -> tuple[RayNode, ...]:
    """The nodes that run tasks, by name: of the cluster at ``RAY_ADDRESS``, else of this host's.

    Raises:
        ConfigError: ray is not installed.
        HardwareError: no cluster answers, or it has no such node.
    """
    _require_ray()
    try:
        answer = subprocess.run(
            _command({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HardwareError(
            f"The Ray cluster does not answer within {_PATIENCE_S:.0f} s; see `ray status`."
        ) from None
    if answer.returncode:
        why = last_line(answer.stderr).removeprefix(AGENT_COMPLAINT)
        raise HardwareError(f"{why[:1].upper()}{why[1:]}.")
    found = tuple(
        RayNode(name=node["name"], cpus=node["cpus"], gpus=node["gpus"])
        for node in json.loads(answer.stdout)
    )
    if not found:
        raise HardwareError("No node of the Ray cluster has CPUs or GPUs; see `ray status`.")
    return found


class RayEngine(HostsEngine):
    """Ranks on nodes of the cluster that ``RAY_ADDRESS`` names, else of this host's.

    Ray gives a launch as many GPUs as its plan names, and chooses them; a launch waits while
    others have them.
    """

    host_source = HostSource.ENGINE
    takes_this_machine = True

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...] | None:
        """The cluster's nodes, each with the GPUs that Ray counts, else with processes."""
        if request.hosts.standalone:
            return None
        nodes, asked = find_ray_nodes(), request.processes
        processes = asked if isinstance(asked, int) else 1
        counts = (0 if asked == "cpu" else node.gpus for node in nodes)
        slots = (tuple(range(count or processes)) for count in counts)
        return tuple(
            HostSlots(host=n.name, slots=own) for n, own in zip(nodes, slots, strict=True)
        )

    def open_lines(
        self, hosts: Sequence[str], order: LinesOrder = PLAIN
    ) -> tuple[FolderLine, ...]:
        return self._open(hosts, order, [RaySize() for _ in hosts])

    def _open(
        self, hosts: Sequence[str], order: LinesOrder, sizes: Sequence[RaySize]
    ) -> tuple[FolderLine, ...]:
        _require_ray()
        access = self._access
        if access.arguments:
            raise ConfigError(
                f"--launcher ray has no program that --launcher_args {access.arguments[0]} could "
                "go to; omit them (RAY_ADDRESS says which cluster)."
            )
        own = make_line_folder(order.folder)
        document = {
            "folder": str(own),
            "hosts": list(hosts),
            "sizes": [asdict(size) for size in sizes],
            "command": without_shell(access, (*agent_command(), str(own), _NODE_VARIABLE)),
            "node_variable": _NODE_VARIABLE,
            "secrets": list(order.secrets),
        }
        try:
            starter = RayStarter(_command(document), own, order.secrets)
        except OSError:
            shutil.rmtree(own, ignore_errors=True)
            raise
        return starter.lines([host or "chosen by Ray" for host in hosts])

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Write the orders, then have Ray start an agent on each host.

        Raises:
            ConfigError: ray is not installed.
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (_ANY_NODE,)
        sizes = [_size(plan, node) for node in range(len(hosts))]
        lines = self._open(hosts, LinesOrder(folder=plan.folder or ".", secrets=secrets), sizes)
        job = self.make_job(plan, lines, variables, secrets)
        for agent in job.agents:
            agent.ranks = tuple(map(_with_gpus_of_ray, agent.ranks))
        job.look()
        return job


def _size(plan: LaunchPlan, node: int) -> RaySize:
    ranks = [rank for rank in plan.ranks if rank.node == node]
    named = dict(ranks[0].environment).get(VISIBLE) if ranks else None
    return RaySize(ranks=len(ranks), gpus=len(named.split(",")) if named else 0)


def _with_gpus_of_ray(rank: RankPlan) -> RankPlan:
    ours = (VISIBLE, HIP_VISIBLE)
    kept = (pair for pair in rank.environment if pair[0] not in ours or not pair[1])
    return replace(rank, environment=tuple(kept))


def _command(order: Mapping[str, object]) -> tuple[str, ...]:
    return (sys.executable, "-I", str(_DRIVER), json.dumps(order))


def _require_ray() -> None:
    try:
        metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "--launcher ray needs the package ray, which is not installed; install it "
            "(pip install 'autoconf-launch[ray]') in the version of the cluster."
        ) from None


class RayStarter(StartingProcess):
    """A driver of Ray, which reports on the fate of each host."""

    def __init__(self, words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(words, folder, variables)
        self._created_s = time.monotonic()
        self._placed_s: float | None = None

    def is_queued(self, node: int) -> bool:
        if self._placed_s is None and (self._folder / "placed").exists():
            self._placed_s = time.monotonic()
        return self._placed_s is None and self._process.poll() is None

    def why_queued(self, node: int) -> str:
        return "Ray has no room for the launch yet, see `ray status`"

    def why_over(self, node: int) -> Failure | None:
        try:
            said = json.loads((self._folder / f"{node}.lost").read_text())
        except (OSError, ValueError):
            return super().why_over(node)
        return Failure(kind=FailureKind(said["kind"]), detail=visible(said["detail"]))

    def patience_s(self, node: int) -> float:
        if self.is_queued(node) or self._placed_s is None:
            return math.inf
        return self._placed_s - self._created_s + _PATIENCE_S
