"""The findings of ``doctor`` as lines, as a document, and as a cluster file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoconf_launch.core import ClusterSpec, ConfigError, Node, encode
from autoconf_launch.tuning_spaces import known_accelerator

from ..report import duration_text, memory_size, table_of
from .checks import (
    BlockedPort,
    HostChecks,
    find_slow_hosts,
    find_slow_links,
    find_wrong_clocks,
    hosts_without_folder,
)
from .gpus import gpu_notes, gpu_problems

_GIGA, _TERA = 1e9, 1e12
DOCTOR_SCHEMA_VERSION = 1


def doctor_lines(cluster: ClusterSpec, checks: HostChecks) -> Iterator[str]:
    """What each host and each pair of hosts can do, then what is wrong."""
    slots = {node.host: node.devices for node in cluster.nodes}
    yield table_of(
        [
            (
                host,
                f"{len(slots[host])} x {slots[host][0].name}",
                memory_size(slots[host][0].memory_bytes),
                _pace_text(checks.flops_per_s(host)),
                _share_text(checks, host),
            )
            for host in checks.hosts
        ],
        ("host", "slots", "memory of each", "slowest slot's product", "of what it reaches"),
        ("left", "left", "right", "right", "right"),
    )
    if checks.links:
        yield "\n" + table_of(
            [
                (
                    " - ".join(link.hosts),
                    f"{link.bytes_per_s / _GIGA:.3g} GB/s",
                    duration_text(link.latency_s),
                )
                for link in checks.links
            ],
            ("link", "all-reduce", "of one number"),
            ("left", "right", "right"),
        )
    notes = [note for slot in checks.slots if slot.gpu for note in gpu_notes(slot.host, slot.gpu)]
    if notes:
        yield "\n" + "\n".join(notes)
    found = list(problems(checks))
    yield "\n" + "\n".join(found or ["Nothing is wrong."])


def _pace_text(flops_per_s: float) -> str:
    if flops_per_s < _TERA:
        return f"{flops_per_s / _GIGA:.0f} GFLOP/s"
    return f"{flops_per_s / _TERA:.0f} TFLOP/s"


def _share_text(checks: HostChecks, host: str) -> str:
    """Pace of the slowest GPU over the pace that our tables have of such GPUs."""
    shares = [
        slot.flops_per_s / usual
        for slot in checks.slots
        if slot.host == host and slot.gpu and (usual := slot.gpu.usual_flops_per_s)
    ]
    return f"{100 * min(shares):.0f} %" if shares else "-"


def problems(checks: HostChecks) -> Iterator[str]:
    """One sentence for each thing that a launch on these hosts would suffer from."""
    for slot in checks.slots:
        if slot.gpu is not None:
            yield from gpu_problems(slot.host, slot.gpu, slot.flops_per_s)
    for host, share in find_slow_hosts(checks):
        yield (
            f"Host {host} computes at {100 * share:.0f} % of the others' pace; see what else runs "
            "there, or exclude it: every step waits for it."
        )
    for host, share in find_slow_links(checks):
        yield (
            f"Host {host} has a link of {100 * share:.0f} % of the others' rate; see its network "
            "card, or exclude it."
        )
    for host, off_s in find_wrong_clocks(checks):
        yield (
            f"The clock of host {host} is {duration_text(abs(off_s))} "
            f"{'ahead' if off_s > 0 else 'behind'}; let a time service set it."
        )
    if blind := hosts_without_folder(checks):
        yield (
            f"The working directory is not there on {', '.join(blind)}; mount it: the script is "
            "read from it, and pdsh, mpirun and sbatch bring results back through it."
        )


def blocked_text(ports: Sequence[BlockedPort]) -> str:
    """One sentence for each host whose port was not reached."""
    seen: dict[tuple[str, int], list[str]] = {}
    for each in dict.fromkeys(ports):
        seen.setdefault((each.host, each.port), []).append(each.seen_from)
    found = (
        f"Port {port} of host {host} is not reached from {', '.join(names)}."
        for (host, port), names in seen.items()
    )
    return (
        f"{' '.join(found)} Ranks use any port above 1023: let the hosts' firewall pass TCP "
        "between them, or name the interface of a network where it passes in GLOO_SOCKET_IFNAME "
        "(NCCL_SOCKET_IFNAME for GPUs)."
    )


def doctor_document(cluster: ClusterSpec, checks: HostChecks) -> dict[str, Any]:
    """The JSON document."""
    return {
        "schema_version": DOCTOR_SCHEMA_VERSION,
        "hosts": [
            {
                "host": slot.host,
                "flops_per_s": slot.flops_per_s,
                "clock_off_s": slot.clock_s,
                "sees_folder": slot.sees_folder,
                "gpu": None if slot.gpu is None else encode(slot.gpu),
            }
            for slot in checks.slots
        ],
        "links": [
            {
                "hosts": list(link.hosts),
                "all_reduce_bytes_per_s": link.bytes_per_s,
                "latency_s": link.latency_s,
            }
            for link in checks.links
        ],
        "problems": list(problems(checks)),
    }


def cluster_document(cluster: ClusterSpec, checks: HostChecks) -> dict[str, Any]:
    """What ``plan --cluster FILE`` reads, with the measured rate between hosts."""
    rate = min((link.bytes_per_s for link in checks.links), default=None)
    return {"nodes": [_node_document(node, rate) for node in cluster.nodes]}


def require_gpus(cluster: ClusterSpec) -> None:
    """Check that a cluster can be saved for ``plan``.

    Raises:
        ConfigError: a host has no GPUs, which alone are planned for.
    """
    for node in cluster.nodes:
        if node.devices[0].emulated:
            raise ConfigError(
                f"--save writes GPUs for plan, but host {node.host} has {node.devices[0].name}; "
                "omit it."
            )


def _node_document(node: Node, bytes_per_s: float | None) -> dict[str, Any]:
    measured = {} if bytes_per_s is None else {"network_gb_per_s": round(bytes_per_s / _GIGA, 2)}
    gpu = node.devices[0]
    name = known_accelerator(gpu.name, gpu.memory_bytes) or gpu.name
    return {"gpu": name, "gpus": len(node.devices), **measured}
