"""This machine: its names, its CPU for predictions, and launches that stay on it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from autoconf_launch.autotuner.cost import (
    CPU_PHYSICS,
    Accelerator,
    CollectiveRate,
    Link,
    Machine,
)
from autoconf_launch.core import ClusterSpec, Node
from autoconf_launch.tuning_spaces import with_links

from ..asked import engine_facts
from ..request import LaunchRequest
from .cores import physical_cores
from .devices import available_memory_bytes

LOCAL = "localhost"
_GLOO_LATENCY_S, _GLOO_BYTES_PER_S = 2.6e-4, 3.0e9
"""All-reduce of gloo between ranks that have a core each and compute nothing else.

Generation has them between products (``benchmarks/cpu_constants.py``); training's, by
``with_links``, waits for more.
"""
_SIDE, _PRODUCTS, _TRIES = 64, 16, 60
"""Products so small that BLAS computes each on one core, and tries so short that a machine with
other work leaves some of them undisturbed."""
_CHUNK_BYTES, _CHUNKS = 1 << 20, 128
_UNDISTURBED = 0.25
"""Share of the chunks, each of which is copied once, that count as undisturbed."""


@cache
def is_this_machine(host: str) -> bool:
    """True for this machine's own names and addresses."""
    own = socket.gethostname()
    if host in (LOCAL, own, own.partition(".")[0]):
        return True
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    import psutil  # the flags start without it

    interfaces = psutil.net_if_addrs().values()
    addresses = {a.address.partition("%")[0] for interface in interfaces for a in interface}
    return any(
        a.startswith("127.") or a == "::1" or a.partition("%")[0] in addresses for a in found
    )


def started_hosts(request: LaunchRequest, cluster: ClusterSpec) -> tuple[str, ...]:
    """The hosts on which the engine of ``--launcher`` starts ranks; empty: only this machine."""
    if request.hosts.node_rank is not None or request.hosts.by_hand:
        return ()
    is_here = len(cluster.nodes) == 1 and is_this_machine(cluster.nodes[0].host)
    if is_here and not engine_facts(request.remote.engine).takes_this_machine:
        return ()
    return tuple(node.host for node in cluster.nodes)


def is_cpu(cluster: ClusterSpec) -> bool:
    """True if its slots are processes on a CPU."""
    return cluster.devices[0].is_cpu


def cpu_machine(node: Node) -> Machine:
    """Rough speed of a node of CPU processes, each with its share of this machine."""
    ranks = len(node.devices)
    link = with_links(node)
    assert link.link_bytes_per_s is not None
    assert link.link_latency_s is not None
    rate = CollectiveRate(ranks=2, latency_s=link.link_latency_s, link_fraction=1.0)
    alone = CollectiveRate(
        ranks=2,
        latency_s=_GLOO_LATENCY_S,
        link_fraction=_GLOO_BYTES_PER_S / link.link_bytes_per_s,
    )
    flops_per_s, bytes_per_s = _core_rates()
    cores = len(physical_cores(sorted(os.sched_getaffinity(0)))) / ranks
    return Machine(
        accelerator=Accelerator(
            name=node.devices[0].name,
            half_flops_per_s=2 * flops_per_s * cores,
            fp32_flops_per_s=flops_per_s * cores,
            reached=1.0,
            multiprocessors=1,
            memory_bytes=float(available_memory_bytes()) / ranks,
            memory_bytes_per_s=bytes_per_s * cores,
            flash=0.0,
        ),
        gpus_per_node=ranks,
        link=Link(bytes_per_s=link.link_bytes_per_s, rates=((rate,),), short_rates=((alone,),)),
        node_network_bytes_per_s=link.link_bytes_per_s,
        host_memory_bytes=node.host_memory_bytes,
        physics=CPU_PHYSICS,
    )


@cache
def _core_rates() -> tuple[float, float]:
    """FLOP/s of matrix products in fp32 and bytes/s of a copy, on one core."""
    matrices = np.ones((_PRODUCTS, _SIDE, _SIDE), dtype=np.float32)
    results = np.empty_like(matrices)
    source = np.ones((_CHUNKS, _CHUNK_BYTES), dtype=np.uint8)
    target = np.ones_like(source)
    product_s = min(
        _seconds(lambda: np.matmul(matrices, matrices, out=results)) for _ in range(_TRIES)
    )
    copies_s = [_seconds(partial(np.copyto, *pair)) for pair in zip(target, source, strict=True)]
    copy_s = float(np.quantile(copies_s, _UNDISTURBED))
    return 2 * _PRODUCTS * _SIDE**3 / product_s, 2 * _CHUNK_BYTES / copy_s


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
