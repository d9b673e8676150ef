"""Slots of hosts: trials that fit side by side, the share of each, free slots.

On GPUs a share is as many of the visible GPUs as a launch has ranks. On a CPU, whose memory
bandwidth all ranks share, trials run side by side only on request: then a share is its own cores,
to which the ranks are bound, and its part of the memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from autoconf_launch.core import TASK_VARIABLE, ClusterSpec, Device, Node, RankTask

from ..asked import HostSource, engine_facts
from ..engines import MOST_HOST_LOSSES, HostSlots
from ..machine import HIP_VISIBLE, THREADS, VISIBLE, is_this_machine, split_cores, visibility
from ..plan import LaunchPlan, RankPlan, StepSize
from ..request import HostChoice, LaunchRequest
from ..results import read_result
from ..script import ScriptSource
from .cluster import find_cluster

Placement: TypeAlias = tuple[HostSlots, ...]
"""Slots of each host of a trial, in the order of its nodes."""
_TOPOLOGY = Path("/sys/devices/system/cpu")
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


def why_apart(request: LaunchRequest, cluster: ClusterSpec) -> str:
    """Why launches cannot share this machine at all; empty if they can."""
    if len(cluster.nodes) > 1:
        return "each of them takes several hosts"
    if engine_facts(request.remote.engine).host_source is HostSource.LAUNCH:
        return "each of them gets hosts of its own"
    if request.rendezvous.port:
        return f"all of them meet at port {request.rendezvous.port}"
    if request.alone and len(cluster.devices) > 1:
        return "the script starts its ranks itself, which meet where it says"
    return ""


def why_not_in_turn(
    request: LaunchRequest, cluster: ClusterSpec, source: ScriptSource, results: Path
) -> str:
    """Why launches cannot live together and compute in turn; empty if they can.

    Args:
        request: the launch.
        cluster: slots of each launch.
        source: source of the script.
        results: folder of the trials so far, whose ranks may have seen a reason.
    """
    if apart := why_apart(request, cluster):
        return apart
    if any(device.exclusive for device in cluster.devices):
        return "a GPU allows one process at a time (compute mode Exclusive_Process)"
    if any(facts.says_where_to_meet for facts in source.all_facts):
        return "the script says itself where its ranks meet"
    if any(_is_crowded(path) for path in results.glob("*/result*.json")):
        return "more processes than one train for the same rank"
    return ""


def _is_crowded(path: Path) -> bool:
    result = read_result(path)
    return result is not None and result.crowded


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Resources of a single trial.

    Attributes:
        devices: its GPUs; empty: the plan's.
        cores: of each rank, which is bound to them; empty: all.
        threads: of each rank if the user has set none; None: as planned.
        memory_bytes: limit of each rank if limits are emulated; None: as planned.
        nodes: its hosts with its devices there; empty: the plan's.
        step: its reservation on each host.
    """

    devices: tuple[Device, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()
    threads: int | None = None
    memory_bytes: int | None = None
    nodes: tuple[Node, ...] = ()
    step: StepSize | None = None

    def place(self, plan: LaunchPlan, *, alone: bool = False) -> LaunchPlan:
        """The plan inside this share; ``alone``: it may use all the memory."""
        task = plan.task
        if task is not None and task.memory_limit_bytes and self.memory_bytes and not alone:
            least = min(task.memory_limit_bytes, self.memory_bytes)
            task = replace(task, memory_limit_bytes=least)
        ranks = tuple(self._place_rank(rank, task) for rank in plan.ranks)
        if plan.alone and self.cores:
            ranks = (replace(ranks[0], cores=tuple(core for own in self.cores for core in own)),)
        plan = replace(plan, ranks=ranks, task=task)
        if not self.nodes:
            return plan
        return replace(plan, hosts=tuple(node.host for node in self.nodes), step=self.step)

    def _place_rank(self, rank: RankPlan, task: RankTask | None) -> RankPlan:
        variables = dict(rank.environment)
        if self.threads and THREADS in variables:
            variables[THREADS] = str(self.threads)
        if self.devices:
            variables |= visibility(self.devices)
        if self.nodes:
            self._meet_on_hosts(variables, self.nodes[rank.node])
        if task is not None:
            variables[TASK_VARIABLE] = task.to_variable()
        cores = self.cores[rank.local_rank] if self.cores else rank.cores
        return replace(rank, environment=tuple(variables.items()), cores=cores)

    def _meet_on_hosts(self, variables: dict[str, str], node: Node) -> None:
        """Show our GPUs there, or the step's; the agents choose the place at which ranks meet."""
        variables |= {name: "" for name in _MEETING if name in variables}
        is_step = self.step is not None and self.step.gpus and not is_this_machine(node.host)
        if is_step:
            variables.pop(VISIBLE, None)
            variables.pop(HIP_VISIBLE, None)
        else:
            variables |= visibility(node.devices)


WHOLE = (Share(),)
"""A single trial at a time, as planned."""


def find_shares(request: LaunchRequest, cluster: ClusterSpec) -> tuple[Share, ...]:
    """Shares for trials of ``cluster``'s size; a single share if they could not be independent.

    They are not with ranks bound by the user, and for the reasons of ``why_apart``.
    """
    if request.max_parallel_trials == 1 or request.binding or why_apart(request, cluster):
        return WHOLE
    if cluster.devices[0].visible_as:
        return _gpu_shares(request, cluster.devices)
    return _cpu_shares(request, cluster)


def shares_text(shares: tuple[Share, ...]) -> str:
    """A sentence on trials that run side by side."""
    cores = len(shares[0].cores[0]) if shares[0].cores else 0
    each = f", each rank on {cores} core{'s'[: cores - 1]} of its own" if cores else ""
    return (
        f"{len(shares)} trials run at a time{each}; the best are re-measured alone, as the "
        "last row of the table shows (--max-parallel-trials 1: one at a time)."
    )


def _gpu_shares(request: LaunchRequest, own: tuple[Device, ...]) -> tuple[Share, ...]:
    """Groups of GPUs like the launch's own; others would measure something else."""
    ranks = len(own)
    devices = find_cluster(replace(request, processes=None)).devices
    groups = [devices[first : first + ranks] for first in range(0, len(devices), ranks)]
    alike = [g for g in groups if len(g) == ranks and all(map(Device.is_like, g, own))]
    alike = alike[: request.max_parallel_trials]
    if len(alike) < 2:
        return WHOLE
    threads = max(1, len(os.sched_getaffinity(0)) // (len(alike) * ranks))
    return tuple(Share(devices=group, threads=threads) for group in alike)


def _cpu_shares(request: LaunchRequest, cluster: ClusterSpec) -> tuple[Share, ...]:
    ranks = len(cluster.devices)
    cores = _neighbours_together(sorted(os.sched_getaffinity(0)))
    count = _trials_on_cpu(request, ranks, len(cores))
    if count < 2:
        return WHOLE
    of_ranks = split_cores(cores, count * ranks)
    roomy = find_cluster(replace(request, memory_limit_bytes=None)).least_memory_bytes // count
    return tuple(
        Share(
            cores=of_ranks[first * ranks : (first + 1) * ranks],
            threads=len(of_ranks[0]),
            memory_bytes=roomy if roomy < cluster.least_memory_bytes else None,
        )
        for first in range(count)
    )


def _trials_on_cpu(request: LaunchRequest, ranks: int, cores: int) -> int:
    """The requested number, with a core for each thread, and no more than there are slots."""
    most = request.max_parallel_trials or 1
    threads = os.environ.get(THREADS, "").partition(",")[0]
    each = int(threads) if threads.isdecimal() and int(threads) else 1
    count = min(cores // (ranks * each), most)
    if request.hosts != HostChoice():
        count = min(count, len(find_cluster(replace(request, processes=None)).devices) // ranks)
    return count


def _neighbours_together(cores: list[int]) -> tuple[int, ...]:
    """Threads of one physical core follow each other, so that it is in one share."""

    def siblings(core: int) -> str:
        try:
            return (_TOPOLOGY / f"cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            return str(core)

    groups: dict[str, list[int]] = {}
    for core in cores:
        groups.setdefault(siblings(core), []).append(core)
    return tuple(core for group in groups.values() for core in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The number of hosts of a trial, and of slots on each host."""

    nodes: int = 1
    slots: int = 1


class SlotPool:
    """The slots of some hosts; a trial takes some of them and gives them back."""

    def __init__(
        self,
        hosts: Sequence[HostSlots],
        share_of: Callable[[Placement], Share],
        *,
        size_of: Callable[[LaunchPlan], Size] | None = None,
        usual: Size | None = None,
        most: int | None = None,
        each: str = "",
    ) -> None:
        """All slots are free.

        Args:
            hosts: in the order in which they are preferred.
            share_of: share of a trial in a place.
            size_of: the size of a plan; None: ``usual``.
            usual: size of a trial with an unknown size.
            most: trials at a time; None: as many as fit.
            each: words on the place of each trial.
        """
        self.share_of, self.size_of = share_of, size_of
        self.usual, self.each = usual or Size(), each
        self._hosts, self._most = tuple(hosts), most
        self.shares: tuple[Share, ...] = ()
        """The shares of one machine, if the pool was made of shares."""
        self._free = {host.host: host.slots for host in hosts}
        self._taken = 0
        self._losses: Counter[str] = Counter()

    @staticmethod
    def of_shares(shares: Sequence[Share]) -> SlotPool:
        """Shares of one machine, each of them for one trial."""
        here = HostSlots(host="", slots=tuple(range(len(shares))))
        pool = SlotPool((here,), lambda place: shares[place[0].slots[0]])
        pool.shares = tuple(shares)
        return pool

    @property
    def divides_memory(self) -> bool:
        """True if each trial has only its part of a machine's memory."""
        return any(share.memory_bytes is not None for share in self.shares)

    @property
    def is_on_hosts(self) -> bool:
        """True if agents on hosts start the trials."""
        return not self.shares

    @property
    def first_share(self) -> Share:
        """The share of a trial while no other runs."""
        place = self.take(self.usual)
        assert place is not None, "nothing else runs"
        self.give_back(place)
        return self.share_of(place)

    def one_at_a_time(self) -> SlotPool:
        """The same hosts for one trial after the other, each on the first ones left."""
        pool = SlotPool(
            self._hosts,
            self.share_of,
            size_of=self.size_of,
            usual=self.usual,
            most=1,
        )
        pool._losses = self._losses
        return pool

    def room(self, size: Size) -> int:
        """Number of trials of this size that could start now."""
        fitting = [len(self._free[host]) // size.slots for host in self._usable()]
        low, high = 0, sum(fitting) // size.nodes
        while low < high:  # each trial takes its hosts once
            count = (low + high + 1) // 2
            fits = sum(min(each, count) for each in fitting) >= count * size.nodes
            low, high = (count, high) if fits else (low, count - 1)
        return low if self._most is None else min(low, self._most - self._taken)

    def can_hold(self, size: Size) -> bool:
        """True if a trial of this size fits once everything is free."""
        aside = self.set_aside
        if self.shares and aside:
            return False  # they are those of every plan
        large = (host for host in self._hosts if len(host.slots) >= size.slots)
        return sum(host.host not in aside for host in large) >= size.nodes

    def take(self, size: Size) -> Placement | None:
        """Free slots for a trial; None if there are too few.

        Hosts that failed least are preferred, then hosts that it fills best, so that large trials
        find whole hosts.
        """
        if self._most is not None and self._taken >= self._most:
            return None
        fitting = [host for host in self._usable() if len(self._free[host]) >= size.slots]
        if len(fitting) < size.nodes:
            return None
        fitting.sort(key=lambda host: (self._losses[host], len(self._free[host])))
        chosen = set(fitting[: size.nodes])
        place = tuple(
            HostSlots(host=host.host, slots=self._free[host.host][: size.slots])
            for host in self._hosts
            if host.host in chosen
        )
        for part in place:
            self._free[part.host] = self._free[part.host][size.slots :]
        self._taken += 1
        return place

    def give_back(self, place: Placement) -> None:
        """The slots of a trial that has ended are free again."""
        own = {host.host: host.slots for host in self._hosts}
        for part in place:
            free = {*self._free[part.host], *part.slots}
            self._free[part.host] = tuple(slot for slot in own[part.host] if slot in free)
        self._taken -= 1

    def blame(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Count the loss of hosts; returns the hosts that are newly set aside for it."""
        before = self.set_aside
        self._losses.update(hosts)
        known = self._free.keys() if self.is_on_hosts else self._losses.keys()
        return tuple(host for host in self.set_aside if host not in before and host in known)

    def forgive(self, hosts: Iterable[str]) -> None:
        """Subtract losses of hosts that a trial has caused."""
        self._losses.subtract(hosts)

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Hosts that were lost too often, which get no trial."""
        return tuple(host for host, count in self._losses.items() if count >= MOST_HOST_LOSSES)

    def _usable(self) -> list[str]:
        aside = self.set_aside
        return [host for host, free in self._free.items() if free and host not in aside]
