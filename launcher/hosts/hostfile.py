"""Hostfiles, and the filters that choose among their slots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError, nearest_known

from ..engines import HostSlots
from ..input_file import input_text

_LINE = re.compile(r"(\S+)\s+slots=([0-9]+)(?=\s|#|$)")
_MOST_SLOTS = 4096
_MOST_HOSTS, _MOST_RANKS = 2**16, 2**20
"""Limits of a launch, above all known ones, so that a damaged file costs no minutes."""
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]{0,254}")
"""Names that are safe for ssh, whose settings may put them into a shell's words."""


def read_hostfile(path: str) -> tuple[HostSlots, ...]:
    """The hosts of a file, in its order.

    Raises:
        ConfigError: it cannot be read, or is not a hostfile.
    """
    try:
        text = input_text(Path(path))
    except FileNotFoundError:
        raise ConfigError(
            f"Hostfile {path} does not exist; fix --hostfile, or omit it to use this "
            "machine alone."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(f"Hostfile {path} cannot be read: {reason}.") from error
    return parse_hostfile(text, path)


def parse_hostfile(text: str, name: str) -> tuple[HostSlots, ...]:
    """The hosts of a hostfile's text; ``name`` is for messages.

    Blank lines and text after ``#`` are skipped, as are more words on a line.

    Raises:
        ConfigError: a line of another form, a host on two lines, no host at all, or too many.
    """
    found: dict[str, int] = {}
    hosts: list[HostSlots] = []
    ranks = 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        host = _parse_line(words, f"Line {number} of hostfile {name}")
        if host.host in found:
            raise ConfigError(
                f"Line {number} of hostfile {name} names host {host.host} again, after line "
                f"{found[host.host]}; give each host one line."
            )
        found[host.host] = number
        hosts.append(host)
        ranks += len(host.slots)
        if len(hosts) > _MOST_HOSTS or ranks > _MOST_RANKS:
            raise ConfigError(
                f"Line {number} of hostfile {name} makes it {len(hosts)} hosts with {ranks} "
                f"slots, but it must have at most {_MOST_HOSTS} hosts with {_MOST_RANKS} slots."
            )
    if not hosts:
        raise ConfigError(f"Hostfile {name} names no host; write lines such as: worker-0 slots=4")
    return tuple(hosts)


def _parse_line(words: str, where: str) -> HostSlots:
    match = _LINE.match(words)
    if not match:
        raise ConfigError(f"{where} is {words!r}, but must be: HOST slots=N")
    user, at, host = match[1].rpartition("@")
    if at and _HOST.fullmatch(host):
        raise ConfigError(
            f"{where} names {match[1]}, but a line has only the host; write {host}, and give the "
            f"user {user} to ssh in ~/.ssh/config."
        )
    if not _HOST.fullmatch(match[1]):
        raise ConfigError(
            f"{where} names host {match[1]!r}, but a host's name has letters, digits, dots, "
            "colons, hyphens and underscores, and does not begin with a hyphen."
        )
    digits = match[2].lstrip("0")
    if not digits or len(digits) > 4 or int(digits) > _MOST_SLOTS:
        raise ConfigError(
            f"{where} has slots={match[2]}, but must have 1 to {_MOST_SLOTS}; "
            "put # before it to skip the host."
        )
    return HostSlots(host=match[1], slots=tuple(range(int(digits))))


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
    """The used part of the pool, in its order; hosts without a slot are skipped.

    Raises:
        ConfigError: both are given, one is malformed, or names a slot that the pool lacks.
    """
    if include and exclude:
        raise ConfigError("--include and --exclude cannot be given together; give one of them.")
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
