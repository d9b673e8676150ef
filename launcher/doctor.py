"""Measurements of ``doctor`` on the hosts of a launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

from autoconf_launch.autotuner.space import GpuState
from autoconf_launch.core import DOCTOR_MARK, ClusterSpec, decode
from autoconf_launch.tuning_spaces import known_accelerator, machine

SLOW = 0.8
"""Share of the others' pace below which a host counts as slow."""
SLOW_LINK = 0.5
CLOCK_S = 1.0
"""Clocks further apart make logs and deadlines of hosts hard to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """A GPU; missing readings of the driver count as in order.

    Attributes:
        name: torch's name, with the profile of a slice.
        state: clocks and throttling while it multiplied.
        driver: version.
        compute_mode: who may use it.
        has_slices: MIG is enabled.
        uncorrected_errors: of its memory, since its last reset.
        repair_pending: its memory is repaired by its next reset.
        users: other processes on it, in words.
        unusable: reason for which torch cannot use it, and the remedy; empty if it can.
    """

    name: str
    state: GpuState
    driver: str = ""
    compute_mode: str = "Default"
    has_slices: bool = False
    uncorrected_errors: int = 0
    repair_pending: bool = False
    users: tuple[str, ...] = ()
    unusable: str = ""

    @property
    def peak_flops_per_s(self) -> float | None:
        """The datasheet's 16-bit rate; None if our tables lack the GPU."""
        known = known_accelerator(self.name)
        if known is None or self.unusable:
            return None
        return machine(known).accelerator.half_flops_per_s

    @property
    def usual_flops_per_s(self) -> float | None:
        """The fastest 16-bit product of such GPUs, by our tables; None if they lack it."""
        peak, known = self.peak_flops_per_s, known_accelerator(self.name)
        return None if peak is None or known is None else peak * machine(known).accelerator.reached


def read_gpu(found: Mapping[str, Any] | None) -> GpuCheck | None:
    """A GPU as its rank printed it."""
    if found is None:
        return None
    return GpuCheck(
        name=found["name"] or "GPU",
        driver=str(found.get("driver") or ""),
        compute_mode=found.get("compute_mode") or "Default",
        has_slices=found.get("mig_mode") == "Enabled",
        state=GpuState(
            slot=found.get("slot") or 0,
            sm_clock_mhz=found.get("sm_clock_mhz"),
            temperature_c=found.get("temperature_c"),
            throttle_reasons=found.get("throttle_reasons"),
        ),
        uncorrected_errors=found.get("uncorrected_errors") or 0,
        repair_pending=found["repair_pending"],
        users=tuple(found["users"]),
        unusable="" if found["is_usable"] else _why_unusable(found),
    )


def _why_unusable(found: Mapping[str, Any]) -> str:
    if not found["cuda"]:
        return f"torch {found['torch']} is built without CUDA; install one with CUDA"
    return (
        f"its driver {found.get('driver') or ''} does not support torch {found['torch']}, which "
        f"is built for CUDA {found['cuda']}; update the driver, or install a torch for an older "
        "CUDA"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRates:
    """Rates of a slot's kernels, in operations or bytes a second; None for what it lacks.

    Attributes:
        products: rows, columns, depth and rate of each 16-bit product; in fp32 on a CPU.
        attention_flops_per_s, attention_backward_flops_per_s: of causal attention, of the
            operations that the mask leaves.
        memory_bytes_per_s: bytes that a copy in its own memory reads and writes.
        all_reduce_bytes_per_s: bus bandwidth of a long one among the slots of its host.
        all_reduce_s: time of an empty one.
    """

    products: tuple[tuple[int, int, int, float], ...]
    attention_flops_per_s: float
    attention_backward_flops_per_s: float
    fp32_flops_per_s: float
    memory_bytes_per_s: float
    tf32_flops_per_s: float | None = None
    host_link_bytes_per_s: float | None = None
    all_reduce_bytes_per_s: float | None = None
    all_reduce_s: float | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None

    @property
    def reached_flops_per_s(self) -> float:
        """The fastest product."""
        return max(rate for *_, rate in self.products)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCheck:
    """A slot: the pace of a matrix product, and its host's clock minus ours.

    ``gpu`` is None for a process of a CPU, ``kernels`` if they were not measured.
    """

    host: str
    flops_per_s: float
    clock_s: float
    sees_folder: bool
    gpu: GpuCheck | None = None
    kernels: KernelRates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCheck:
    """An all-reduce between one slot each of two hosts."""

    hosts: tuple[str, str]
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPort:
    """A port of a host that another one, ``seen_from``, does not reach."""

    host: str
    port: int
    seen_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChecks:
    """All that ``doctor`` measured."""

    slots: tuple[SlotCheck, ...]
    links: tuple[LinkCheck, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """In the order of the ranks."""
        return tuple(dict.fromkeys(slot.host for slot in self.slots))

    def flops_per_s(self, host: str) -> float:
        """Pace of the slowest slot of a host: a step waits for it."""
        return min(slot.flops_per_s for slot in self.slots if slot.host == host)

    def bytes_per_s(self, host: str) -> float:
        """The fastest link of a host: a slow end slows down all of its links."""
        return max(link.bytes_per_s for link in self.links if host in link.hosts)


def read_checks(printed: str, cluster: ClusterSpec) -> HostChecks:
    """Checks as the ranks printed them.

    Raises:
        ValueError: a line is malformed.
    """
    slots, links = list[SlotCheck](), list[LinkCheck]()
    names = [node.host for node in cluster.nodes]
    for found in _documents(printed):
        host = names[found["node"]]
        slots.append(
            SlotCheck(
                host=host,
                flops_per_s=found["flops_per_s"],
                clock_s=found["clock_s"],
                sees_folder=found["sees_folder"],
                gpu=read_gpu(found.get("gpu")),
                kernels=decode(KernelRates, found["kernels"]) if "kernels" in found else None,
            )
        )
        for pair in found["pairs"]:
            first, second = pair["nodes"]
            links.append(
                LinkCheck(
                    hosts=(names[first], names[second]),
                    latency_s=pair["latency_s"],
                    bytes_per_s=pair["bytes_per_s"],
                )
            )
    order = {name: number for number, name in enumerate(names)}
    return HostChecks(
        slots=tuple(sorted(slots, key=lambda slot: order[slot.host])),
        links=tuple(sorted(links, key=lambda link: (order[link.hosts[0]], order[link.hosts[1]]))),
    )


def _documents(printed: str) -> Iterator[dict[str, Any]]:
    lines = printed.splitlines()
    marked = (line.removeprefix(DOCTOR_MARK) for line in lines if line.startswith(DOCTOR_MARK))
    return map(json.loads, marked)


def read_blocked(printed: str, cluster: ClusterSpec) -> tuple[BlockedPort, ...]:
    """Ports that a host did not reach, as the ranks printed them; then nothing was measured."""
    names = [node.host for node in cluster.nodes]
    return tuple(
        BlockedPort(host=names[other], port=port, seen_from=names[found["node"]])
        for found in _documents(printed)
        for other, port in found.get("blocked", ())
    )


def slowest_kernels(checks: HostChecks, host: str) -> KernelRates | None:
    """The lowest rates of a host's slots, for which a step waits; None if not measured."""
    found = [one.kernels for one in checks.slots if one.host == host and one.kernels]
    if not found:
        return None

    def least(name: str) -> Any:
        values = [getattr(one, name) for one in found]
        return None if None in values else min(values)

    rates = {one.name: least(one.name) for one in fields(KernelRates)}
    shapes = zip(*(one.products for one in found), strict=True)
    rates["products"] = tuple(min(same, key=lambda one: one[3]) for same in shapes)
    if rates["all_reduce_s"] is not None:
        rates["all_reduce_s"] = max(one.all_reduce_s or 0.0 for one in found)
    return KernelRates(**rates)


def find_slow_hosts(checks: HostChecks) -> Iterator[tuple[str, float]]:
    """Hosts that compute slower than the others, with their share of the median pace."""
    paces = {host: checks.flops_per_s(host) for host in checks.hosts}
    usual = median(paces.values())
    return ((host, pace / usual) for host, pace in paces.items() if pace < SLOW * usual)


def find_slow_links(checks: HostChecks) -> Iterator[tuple[str, float]]:
    """Hosts whose best link is slow, with its share of the median of all hosts' best.

    Two hosts share their only link, so neither is named.
    """
    if len(checks.hosts) < 3:
        return iter(())
    rates = {host: checks.bytes_per_s(host) for host in checks.hosts}
    usual = median(rates.values())
    return ((host, rate / usual) for host, rate in rates.items() if rate < SLOW_LINK * usual)


def find_wrong_clocks(checks: HostChecks) -> Iterator[tuple[str, float]]:
    """Hosts whose clock differs from the first host's, with the difference in seconds."""
    seen = {slot.host: slot.clock_s for slot in reversed(checks.slots)}
    return ((host, off_s) for host, off_s in seen.items() if abs(off_s) > CLOCK_S)


def hosts_without_folder(checks: HostChecks) -> Sequence[str]:
    """Hosts that do not see the working directory of the launcher."""
    return list(dict.fromkeys(slot.host for slot in checks.slots if not slot.sees_folder))
