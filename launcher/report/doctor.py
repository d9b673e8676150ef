"""The findings of ``doctor`` as lines, as a document, and as a cluster file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS
from autoconf_launch.autotuner.space import GpuState
from autoconf_launch.core import GIB, ClusterSpec, ConfigError, Node, encode
from autoconf_launch.tuning_spaces import FP32_REACHED, REACHED, known_accelerator

from ..doctor import (
    BlockedPort,
    GpuCheck,
    HostChecks,
    KernelRates,
    find_slow_hosts,
    find_slow_links,
    find_wrong_clocks,
    hosts_without_folder,
    slowest_kernels,
)
from .cells import duration_text, memory_size, percent
from .tables import each, rows_documents, rows_text

_GIGA, _TERA = 1e9, 1e12
DOCTOR_SCHEMA_VERSION = 1
LINK_COLUMNS = (
    each("hosts", lambda a, link: [*link.hosts], "link", " - ".join, is_left=True),
    each(
        *("all_reduce_bytes_per_s", "bytes_per_s", "all-reduce"),
        shown=lambda rate: _rate_text(rate),
    ),
    each("latency_s", "", "of one number", duration_text),
)
_COPIED = DEFAULT_PHYSICS.memory_efficiency
"""Part of a memory's datasheet rate that a copy reaches."""
_MEASURED_HERE = (
    "# Measured by autoconf-launch doctor --measure-gpu. For a GPU that our tables lack, "
    "peak_tflops, fp32_tflops,\n# tf32_tflops and bandwidth_gb_per_s are estimated from the "
    "measured rates: put the datasheet's numbers here.\n"
)
SLOW_GPU = 0.8
"""Share of the pace in our tables below which a GPU counts as slow."""


def doctor_lines(cluster: ClusterSpec, checks: HostChecks) -> Iterator[str]:
    """Tables of hosts and links, then the problems."""
    nodes = {node.host: node for node in cluster.nodes}
    yield rows_text(HOST_COLUMNS, [nodes[host] for host in checks.hosts], checks)
    if checks.links:
        yield f"\n{rows_text(LINK_COLUMNS, checks.links)}"
    for host in checks.hosts:
        if (kernels := slowest_kernels(checks, host)) is not None:
            yield f"\n{rows_text(KERNEL_COLUMNS, [*_kernel_rows(kernels)], host)}"
    notes = [note for slot in checks.slots if slot.gpu for note in gpu_notes(slot.host, slot.gpu)]
    if notes:
        yield "\n" + "\n".join(notes)
    found = list(problems(checks))
    yield "\n" + "\n".join(found or ["Nothing is wrong."])


def _kernel_rows(kernels: KernelRates) -> Iterator[tuple[str, str]]:
    for m, n, k, rate in kernels.products:
        yield f"product {m} x {k} by {k} x {n}", _pace_text(rate)
    yield "causal attention, forward", _pace_text(kernels.attention_flops_per_s)
    yield "causal attention, backward", _pace_text(kernels.attention_backward_flops_per_s)
    yield "product in fp32", _pace_text(kernels.fp32_flops_per_s)
    if kernels.tf32_flops_per_s is not None:
        yield "product in TF32", _pace_text(kernels.tf32_flops_per_s)
    yield "copy in its memory", _rate_text(kernels.memory_bytes_per_s)
    if kernels.host_link_bytes_per_s is not None:
        yield "copy to and from the host", _rate_text(kernels.host_link_bytes_per_s)
    if kernels.all_reduce_bytes_per_s is not None and kernels.all_reduce_s is not None:
        yield "all-reduce, bus bandwidth", _rate_text(kernels.all_reduce_bytes_per_s)
        yield "all-reduce of one number", duration_text(kernels.all_reduce_s)


KERNEL_COLUMNS = (
    each("", lambda host, row: row[0], "kernel on the slowest slot", is_left=True),
    each("", lambda host, row: row[1], "rate"),
)


def _rate_text(bytes_per_s: float) -> str:
    return f"{bytes_per_s / _GIGA:.3g} GB/s"


def _pace_text(flops_per_s: float) -> str:
    if flops_per_s < _TERA:
        return f"{flops_per_s / _GIGA:.0f} GFLOP/s"
    return f"{flops_per_s / _TERA:.0f} TFLOP/s"


def _share(checks: HostChecks, node: Node) -> float | None:
    """Pace of the slowest GPU over the pace that our tables have of such GPUs."""
    shares = (
        slot.flops_per_s / usual
        for slot in checks.slots
        if slot.host == node.host and slot.gpu and (usual := slot.gpu.usual_flops_per_s)
    )
    return min(shares, default=None)


HOST_COLUMNS = (
    each("host", header="host", is_left=True),
    each(
        *("", lambda a, node: f"{len(node.devices)} x {node.devices[0].name}", "slots"),
        is_left=True,
    ),
    each("", lambda a, node: node.devices[0].memory_bytes, "memory of each", memory_size),
    each("", lambda a, node: a.flops_per_s(node.host), "slowest slot's product", _pace_text),
    each("", _share, "of what it reaches", percent),
)


def problems(checks: HostChecks) -> Iterator[str]:
    """A sentence for each problem that a launch on these hosts would have."""
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
    """A sentence for each host whose port was not reached."""
    seen: dict[tuple[str, int], list[str]] = {}
    for port in dict.fromkeys(ports):
        seen.setdefault((port.host, port.port), []).append(port.seen_from)
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
                "kernels": None if slot.kernels is None else encode(slot.kernels),
            }
            for slot in checks.slots
        ],
        "links": rows_documents(LINK_COLUMNS, checks.links),
        "problems": list(problems(checks)),
    }


def cluster_document(cluster: ClusterSpec, checks: HostChecks) -> dict[str, Any]:
    """A file for ``plan --cluster FILE``, with the measured rates."""
    rate = min((link.bytes_per_s for link in checks.links), default=None)
    return {"nodes": [_node_document(node, checks, rate) for node in cluster.nodes]}


def cluster_file(cluster: ClusterSpec, checks: HostChecks) -> str:
    """The text of that file."""
    text: str = yaml.safe_dump(cluster_document(cluster, checks), sort_keys=False)
    return text if checks.slots[0].kernels is None else _MEASURED_HERE + text


def require_gpus(cluster: ClusterSpec) -> None:
    """Check that a cluster can be saved for ``plan``.

    Raises:
        ConfigError: a host has no GPU.
    """
    for node in cluster.nodes:
        if node.devices[0].emulated:
            raise ConfigError(
                f"--save writes GPUs for plan, but host {node.host} has {node.devices[0].name}; "
                "omit it."
            )


def _node_document(node: Node, checks: HostChecks, bytes_per_s: float | None) -> dict[str, Any]:
    network = {} if bytes_per_s is None else {"network_gb_per_s": round(bytes_per_s / _GIGA, 2)}
    gpu = node.devices[0]
    known = known_accelerator(gpu.name, gpu.memory_bytes)
    name = f"{gpu.name[3:].strip(' ()')} CPU" if gpu.is_cpu else known or gpu.name
    kernels = slowest_kernels(checks, node.host)
    rates = {} if kernels is None else _measured_rates(kernels)
    if kernels is not None and known is None:
        memory_bytes = kernels.memory_bytes or gpu.memory_bytes
        rates |= {"memory_gib": memory_bytes / GIB, **_datasheet_rates(kernels)}
    measured = {key: _round(value) for key, value in rates.items() if value is not None}
    return {"gpu": name, "gpus": len(node.devices), **network, **measured}


def _round(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _measured_rates(kernels: KernelRates) -> dict[str, float | None]:
    """Rates that differ between machines with the same GPU, by its power limit and host."""
    link = kernels.host_link_bytes_per_s
    return {
        "reached_tflops": kernels.reached_flops_per_s / _TERA,
        "host_link_gb_per_s": link and link / _GIGA,
    }


def _datasheet_rates(kernels: KernelRates) -> dict[str, float | None]:
    """All else of a GPU that our tables lack; the datasheet's rates are estimated."""
    tf32, reduced, empty_s = (
        kernels.tf32_flops_per_s,
        kernels.all_reduce_bytes_per_s,
        kernels.all_reduce_s,
    )
    return {
        "peak_tflops": kernels.reached_flops_per_s / REACHED / _TERA,
        "bandwidth_gb_per_s": kernels.memory_bytes_per_s / _COPIED / _GIGA,
        "fp32_tflops": kernels.fp32_flops_per_s / FP32_REACHED / _TERA,
        "tf32_tflops": tf32 and tf32 / REACHED / _TERA,
        "multiprocessors": kernels.multiprocessors,
        "attention_tflops": kernels.attention_flops_per_s / _TERA,
        "attention_backward_tflops": kernels.attention_backward_flops_per_s / _TERA,
        "link_gb_per_s": reduced and reduced / _GIGA,
        "all_reduce_gb_per_s": reduced and reduced / _GIGA,
        "all_reduce_us": empty_s and empty_s * 1e6,
    }


def gpu_problems(host: str, gpu: GpuCheck, flops_per_s: float) -> Iterator[str]:
    """A sentence for each problem that a launch on this GPU would have."""
    where = f"GPU {gpu.state.slot} of host {host}"
    if gpu.unusable:
        yield f"{where} ({gpu.name}) cannot be used: {gpu.unusable}."
        return
    if gpu.state.is_throttled:
        yield f"{where} is throttled{_clock_text(gpu.state)}; check its cooling and power supply."
    elif (usual := gpu.usual_flops_per_s) and flops_per_s < SLOW_GPU * usual:
        yield (
            f"{where} multiplies at {flops_per_s / _TERA:.0f} TFLOP/s, "
            f"{100 * flops_per_s / usual:.0f} % of the {usual / _TERA:.0f} that {gpu.name} "
            f"reaches{_clock_text(gpu.state)}; check its clocks and its power limit."
        )
    if (peak := gpu.peak_flops_per_s) and flops_per_s > peak:
        yield (
            f"{where} multiplies at {flops_per_s / _TERA:.0f} TFLOP/s, above the peak of "
            f"{gpu.name} ({peak / _TERA:.0f}): the driver's name or the measured time is wrong."
        )
    if gpu.users:
        yield f"{where} is also used by {', '.join(gpu.users)}; end that, or use other GPUs."
    if gpu.uncorrected_errors:
        yield (
            f"{where} has had {gpu.uncorrected_errors} uncorrected memory errors since its last "
            "reset; reset it, and replace it if they come again."
        )
    if gpu.repair_pending:
        yield f"{where} has faulty memory that its next reset replaces; reset it."


def gpu_notes(host: str, gpu: GpuCheck) -> Iterator[str]:
    """Sentences that a user should know, though nothing is wrong."""
    where = f"GPU {gpu.state.slot} of host {host}"
    if gpu.usual_flops_per_s is None and not gpu.unusable:
        yield f"{where} ({gpu.name}) is not in our tables, so its pace cannot be compared."
    if gpu.has_slices:
        yield f"{where} is divided into slices (MIG); a process can use one slice only."
    if gpu.compute_mode != "Default":
        yield (
            f"{where} is in compute mode {gpu.compute_mode}: it refuses further processes while "
            "one uses it."
        )


def _clock_text(state: GpuState) -> str:
    words = (
        "" if state.sm_clock_mhz is None else f"{state.sm_clock_mhz} MHz",
        "" if state.temperature_c is None else f"{state.temperature_c} °C",
    )
    seen = ", ".join(filter(None, words))
    return f" (at {seen})" if seen else ""
