"""What the trials of a tune share: this machine, or the slots of all hosts that are given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace

from autoconf_launch.core import ClusterSpec, Device, Node, plural

from ..plan import LaunchPlan, StepSize
from ..request import BATCH, QUEUES, LaunchRequest
from .cores import usable_cores
from .discover import find_cluster, started_hosts
from .hosts import HostSlots, names_hosts
from .slots import Placement, Share, Size, SlotPool, find_shares, shares_text

_NO_STEP_OF_OURS = 0xFFFFFFF0
"""Numbers from here on are Slurm's own, for batch scripts and the shell of salloc."""


def find_pool(request: LaunchRequest, cluster: ClusterSpec) -> SlotPool:
    """A pool for trials of ``cluster``'s size: of hosts, if there are others than this one."""
    if request.remote.engine in QUEUES:
        return _queue_pool(request)
    return _host_pool(request, cluster) or SlotPool.of_shares(find_shares(request, cluster))


def pool_text(pool: SlotPool) -> str:
    """One sentence on what runs side by side."""
    if not pool.is_on_hosts:
        return shares_text(pool.shares)
    at_once = f"{pool.room(pool.usual)} trials run at a time, each {pool.each}"
    return (
        f"{at_once}; the best are re-measured one by one, as the last row of the table shows "
        "(--max-parallel-trials 1: one at a time)."
    )


def _queue_pool(request: LaunchRequest) -> SlotPool:
    """Jobs of a queue, which finds their hosts."""
    places = HostSlots(host="", slots=tuple(range(request.max_parallel_trials or 1)))
    engine = "Slurm" if request.remote.engine == BATCH else "Kubernetes"
    return SlotPool((places,), lambda place: Share(), each=f"as a job of {engine}")


def _host_pool(request: LaunchRequest, cluster: ClusterSpec) -> SlotPool | None:
    """The pool of all hosts given; None where there is none, or each launch needs the same."""
    if not names_hosts(request.hosts, request.remote):
        return None
    if request.hosts.node_rank is not None or request.hosts.by_hand:
        return None
    everything = replace(request, processes=None, hosts=replace(request.hosts, nodes=None))
    alone = request.max_parallel_trials == 1
    nodes = cluster.nodes if alone else find_cluster(everything).nodes
    if len(nodes) == 1 and not started_hosts(request, cluster):
        return None
    return (
        _fixed_pool(cluster) if _is_fixed(request, cluster) else _pool_of(request, cluster, nodes)
    )


def _is_fixed(request: LaunchRequest, cluster: ClusterSpec) -> bool:
    """Whether trials cannot be on other hosts than the cluster's."""
    kinds = {(len(node.devices), device.name) for node in cluster.nodes for device in node.devices}
    meets = request.rendezvous.address or request.rendezvous.port
    return len(kinds) > 1 or bool(meets) or (request.alone and len(cluster.devices) > 1)


def _fixed_pool(cluster: ClusterSpec) -> SlotPool:
    """One trial at a time, on exactly these hosts."""
    hosts = [HostSlots(host=node.host, slots=(0,)) for node in cluster.nodes]
    size = Size(nodes=len(hosts))
    return SlotPool(hosts, lambda place: Share(), size_of=lambda plan: size, usual=size, most=1)


def _pool_of(request: LaunchRequest, cluster: ClusterSpec, nodes: tuple[Node, ...]) -> SlotPool:
    """GPUs of all hosts like the trial's own; of hosts without, each whole one."""
    own = cluster.nodes[0].devices
    on_gpus = bool(own[0].visible_as)
    devices = {node.host: _alike(node, own[0]) if on_gpus else (own,) for node in nodes}
    slots = len(own) if on_gpus else 1
    size = Size(nodes=len(cluster.nodes), slots=slots)
    hosts = [
        HostSlots(host=host, slots=tuple(range(len(found))))
        for host, found in devices.items()
        if len(found) >= slots
    ]
    widest = max(len(host.slots) for host in hosts)
    step = _step_size(request, len(own) if on_gpus else 0, slots / widest)
    threads = max(1, usable_cores() * slots // widest // len(own)) if on_gpus else None

    def share_of(place: Placement) -> Share:
        chosen = [(part.host, [devices[part.host][slot] for slot in part.slots]) for part in place]
        own_nodes = (Node(host=host, devices=sum(parts, ())) for host, parts in chosen)
        return Share(nodes=tuple(own_nodes), threads=threads, step=step)

    return SlotPool(
        hosts,
        share_of,
        size_of=lambda plan: _size_of(plan, slots),
        usual=size,
        most=1 if request.binding else request.max_parallel_trials,
        each=f"on {'GPUs' if on_gpus else 'hosts'} of its own ({plural(size.nodes, 'host')})",
    )


def _alike(node: Node, device: Device) -> tuple[tuple[Device, ...], ...]:
    """Each of its GPUs that is like the trial's, as a slot."""
    return tuple((own,) for own in node.devices if own.is_like(device))


def _size_of(plan: LaunchPlan, slots: int) -> Size:
    return Size(nodes=max((rank.node for rank in plan.ranks), default=0) + 1, slots=slots)


def _step_size(request: LaunchRequest, gpus: int, part: float) -> StepSize | None:
    """What ``srun`` gives a launch of each host; None where Slurm cannot share it out.

    That is so inside a step, which has all that it could give.
    """
    if request.remote.engine != "slurm":
        return None
    if int(os.environ.get("SLURM_STEP_ID", _NO_STEP_OF_OURS)) < _NO_STEP_OF_OURS:
        return None
    told = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")  # as in 8(x2),4
    counts = re.findall(r"(?:^|,)(\d+)", told)
    cores = int(min(map(int, counts), default=0) * part)
    return StepSize(cores=cores, gpus=gpus if _gives_gpus() else 0) if cores else None


def _gives_gpus() -> bool:
    """Whether GPUs are a resource of our allocation."""
    job = os.environ.get("SLURM_JOB_ID", "")
    program = shutil.which("scontrol")
    if program is None or not job.isdecimal():
        return False
    answer = subprocess.run(
        (program, "show", "job", job), capture_output=True, text=True, timeout=60, check=False
    )
    return re.search("gres[:/]gpu", answer.stdout) is not None
