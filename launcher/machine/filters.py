"""``--include`` and ``--exclude``: which slots of which hosts. Not: which slots there are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autoconf_launch.core import ConfigError, nearest_known

from .hostfile import HostSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFilter:
    """A host that a filter names, and slots of it; None: all."""

    host: str
    slots: tuple[int, ...] | None


def parse_filter(text: str, flag: str) -> tuple[HostFilter, ...]:
    """Read ``HOST[:SLOT[,SLOT...]][@HOST...]``; "" names nothing.

    Raises:
        ConfigError: text of another form; ``flag`` is named.
    """
    return tuple(_parse_host(part, text, flag) for part in text.split("@")) if text else ()


def filter_slots(
    pool: tuple[HostSlots, ...], *, include: str = "", exclude: str = ""
) -> tuple[HostSlots, ...]:
    """What of the pool is used, in the pool's order; hosts without a slot are left out.

    Raises:
        ConfigError: both are given, one is malformed, or names what the pool lacks.
    """
    if include and exclude:
        raise ConfigError("--include and --exclude exclude each other; give one of them.")
    if include:
        return select(pool, parse_filter(include, "--include"), "--include")
    named = select(pool, parse_filter(exclude, "--exclude"), "--exclude")
    gone = {(host.host, slot) for host in named for slot in host.slots}
    left = (
        HostSlots(host=host.host, slots=tuple(s for s in host.slots if (host.host, s) not in gone))
        for host in pool
    )
    return tuple(host for host in left if host.slots)


def select(
    pool: tuple[HostSlots, ...], filters: tuple[HostFilter, ...], flag: str
) -> tuple[HostSlots, ...]:
    """The slots that the filters name, in the pool's order, each once.

    Raises:
        ConfigError: a host or a slot that the pool lacks; ``flag`` is named.
    """
    slots = {host.host: host.slots for host in pool}
    chosen: dict[str, set[int]] = {}
    for one in filters:
        if one.host not in slots:
            raise ConfigError(
                f"{flag} names host {one.host!r}, which is not among the hosts; "
                f"{nearest_known(one.host, slots)}"
            )
        wanted = slots[one.host] if one.slots is None else one.slots
        missing = [slot for slot in wanted if slot not in slots[one.host]]
        if missing:
            has = ", ".join(map(str, slots[one.host]))
            raise ConfigError(f"{flag} names slot {missing[0]} of {one.host}, which has: {has}.")
        chosen.setdefault(one.host, set()).update(wanted)
    return tuple(
        HostSlots(host=host.host, slots=tuple(s for s in host.slots if s in chosen[host.host]))
        for host in pool
        if host.host in chosen
    )


def _parse_host(part: str, text: str, flag: str) -> HostFilter:
    match = re.fullmatch(r"([^\s:,]+)(?::([0-9]{1,6}(?:,[0-9]{1,6})*))?", part)
    if not match:
        raise ConfigError(
            f"{flag} is {text!r}; {part!r} in it must be HOST or HOST:SLOT,SLOT "
            "(for example worker-0@worker-1:0,2)."
        )
    slots = tuple(map(int, match[2].split(","))) if match[2] else None
    return HostFilter(host=match[1], slots=slots)
