"""Which slots of which hosts are free, and what a trial takes of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..plan import LaunchPlan
from .hosts import HostSlots
from .slots import Share

Placement: TypeAlias = tuple[HostSlots, ...]
"""Slots of each host of a trial, in the order of its nodes."""

MOST_HOST_LOSSES = 2
"""Losses after which a host is set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a trial needs: so many hosts, so many slots on each of them."""

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
            share_of: what a trial has for itself in a place.
            size_of: what a plan needs; None: each what is usual.
            usual: what a trial needs of which nothing else is known.
            most: trials at a time; None: as many as fit.
            each: words on where each of them runs.
        """
        self.share_of, self.size_of = share_of, size_of
        self.usual, self.each = usual or Size(), each
        self._hosts, self._most = tuple(hosts), most
        self.shares: tuple[Share, ...] = ()
        """Those that were given, where they are of one machine."""
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
        """Whether each trial has only its part of a machine's memory."""
        return any(share.memory_bytes is not None for share in self.shares)

    @property
    def is_on_hosts(self) -> bool:
        """Whether agents on hosts start what it holds."""
        return not self.shares

    @property
    def first_share(self) -> Share:
        """What the first trial would get that runs alone."""
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
        """How many trials of this size could start now."""
        fitting = [len(self._free[host]) // size.slots for host in self._usable()]
        low, high = 0, sum(fitting) // size.nodes
        while low < high:  # each trial takes its hosts once
            count = (low + high + 1) // 2
            fits = sum(min(each, count) for each in fitting) >= count * size.nodes
            low, high = (count, high) if fits else (low, count - 1)
        return low if self._most is None else min(low, self._most - self._taken)

    def can_hold(self, size: Size) -> bool:
        """Whether a trial of this size fits once everything is free."""
        aside = self.set_aside
        if self.shares and aside:
            return False  # they are those of every plan
        large = (host for host in self._hosts if len(host.slots) >= size.slots)
        return sum(host.host not in aside for host in large) >= size.nodes

    def take(self, size: Size) -> Placement | None:
        """Free slots for a trial; None where there are too few.

        Hosts that failed least are preferred, then those that it fills best, so that large trials
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
        """Count the loss of hosts; those that are set aside for it."""
        before = self.set_aside
        self._losses.update(hosts)
        known = self._free.keys() if self.is_on_hosts else self._losses.keys()
        return tuple(host for host in self.set_aside if host not in before and host in known)

    def forgive(self, hosts: Iterable[str]) -> None:
        """Take losses of hosts back: a trial is to blame for them."""
        self._losses.subtract(hosts)

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Hosts that were lost too often, which get no trial."""
        return tuple(host for host, count in self._losses.items() if count >= MOST_HOST_LOSSES)

    def _usable(self) -> list[str]:
        aside = self.set_aside
        return [host for host, free in self._free.items() if free and host not in aside]
