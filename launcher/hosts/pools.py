"""Slots for the trials of a tune: of this machine, or of all hosts that are given."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import ClusterSpec, Node, plural

from ..asked import engine_facts
from ..engines import ForkServerEngine, HostSlots, LaunchEngine, LocalEngine, make_engine
from ..events import Listener
from ..machine import started_hosts, usable_cores
from ..plan import LaunchPlan
from ..request import LaunchRequest
from .choice import names_hosts
from .cluster import find_cluster
from .slots import Placement, Share, Size, SlotPool, find_shares, shares_text


def engine_for(
    request: LaunchRequest,
    cluster: ClusterSpec,
    listener: Listener | None = None,
    *,
    imports: tuple[str, ...] | None = None,
) -> LaunchEngine:
    """The engine of ``--launcher`` if it starts ranks of this launch, else this machine's.

    ``imports`` of ranks that this machine can fork, see :class:`ForkServerEngine`; None: it must
    spawn them.
    """
    if engine_facts(request.remote.engine).queue or started_hosts(request, cluster):
        return _named_engine(request, listener)
    if imports is None:
        return LocalEngine(listener=listener)
    return ForkServerEngine(imports=imports, listener=listener)


def trial_engine(
    request: LaunchRequest,
    cluster: ClusterSpec,
    listener: Listener | None,
    *,
    imports: tuple[str, ...] | None,
) -> LaunchEngine:
    """The engine of a tune's trials, whose pool may have other hosts than a single launch."""
    if names_hosts(request.hosts, request.remote) and find_pool(request, cluster).is_on_hosts:
        return _named_engine(request, listener)
    return engine_for(request, cluster, listener, imports=imports)


def _named_engine(request: LaunchRequest, listener: Listener | None) -> LaunchEngine:
    return make_engine(request.remote, listener, deadline_s=request.trial_timeout_s)


def find_pool(request: LaunchRequest, cluster: ClusterSpec) -> SlotPool:
    """A pool for trials of ``cluster``'s size: of hosts, if there are others than this one."""
    if queue := engine_facts(request.remote.engine).queue:
        places = HostSlots(host="", slots=tuple(range(request.max_parallel_trials or 1)))
        return SlotPool((places,), lambda place: Share(), each=f"as a job of {queue}")
    return _host_pool(request, cluster) or SlotPool.of_shares(find_shares(request, cluster))


def pool_text(pool: SlotPool) -> str:
    """A sentence on trials that run side by side."""
    if not pool.is_on_hosts:
        return shares_text(pool.shares)
    at_once = f"{pool.room(pool.usual)} trials run at a time, each {pool.each}"
    return (
        f"{at_once}; the best are re-measured one by one, as the last row of the table shows "
        "(--max-parallel-trials 1: one at a time)."
    )


def _host_pool(request: LaunchRequest, cluster: ClusterSpec) -> SlotPool | None:
    """The pool of all hosts; None if there are none, or each launch needs the same hosts."""
    if not names_hosts(request.hosts, request.remote):
        return None
    if request.hosts.node_rank is not None or request.hosts.by_hand:
        return None
    everything = replace(request, processes=None, hosts=replace(request.hosts, nodes=None))
    alone = request.max_parallel_trials == 1
    nodes = cluster.nodes if alone else find_cluster(everything).nodes
    if len(nodes) == 1 and not started_hosts(request, cluster):
        return None
    if not _is_fixed(request, cluster):
        return _pool_of(request, cluster, nodes)
    hosts = [HostSlots(host=node.host, slots=(0,)) for node in cluster.nodes]
    size = Size(nodes=len(hosts))
    return SlotPool(hosts, lambda place: Share(), size_of=lambda plan: size, usual=size, most=1)


def _is_fixed(request: LaunchRequest, cluster: ClusterSpec) -> bool:
    """Return whether trials cannot be on other hosts than the cluster's."""
    kinds = {(len(node.devices), device.name) for node in cluster.nodes for device in node.devices}
    meets = request.rendezvous.address or request.rendezvous.port
    return len(kinds) > 1 or bool(meets) or (request.alone and len(cluster.devices) > 1)


def _pool_of(request: LaunchRequest, cluster: ClusterSpec, nodes: tuple[Node, ...]) -> SlotPool:
    """GPUs of all hosts like the trial's own; of hosts without, each whole one."""
    own = cluster.nodes[0].devices
    on_gpus = bool(own[0].visible_as)
    alike = {n.host: tuple((gpu,) for gpu in n.devices if gpu.is_like(own[0])) for n in nodes}
    devices = alike if on_gpus else dict.fromkeys(alike, (own,))
    slots = len(own) if on_gpus else 1
    size = Size(nodes=len(cluster.nodes), slots=slots)
    hosts = [
        HostSlots(host=host, slots=tuple(range(len(found))))
        for host, found in devices.items()
        if len(found) >= slots
    ]
    widest = max(len(host.slots) for host in hosts)
    step = make_engine(request.remote).step_size(len(own) if on_gpus else 0, slots / widest)
    threads = max(1, usable_cores() * slots // widest // len(own)) if on_gpus else None

    def size_of(plan: LaunchPlan) -> Size:
        nodes = max((rank.node for rank in plan.ranks), default=0) + 1
        return Size(nodes=nodes, slots=slots)

    def share_of(place: Placement) -> Share:
        chosen = [(part.host, [devices[part.host][slot] for slot in part.slots]) for part in place]
        own_nodes = (Node(host=host, devices=sum(parts, ())) for host, parts in chosen)
        return Share(nodes=tuple(own_nodes), threads=threads, step=step)

    return SlotPool(
        hosts,
        share_of,
        size_of=size_of,
        usual=size,
        most=1 if request.binding else request.max_parallel_trials,
        each=f"on {'GPUs' if on_gpus else 'hosts'} of its own ({plural(size.nodes, 'host')})",
    )
