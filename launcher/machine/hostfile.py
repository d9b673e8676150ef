"""A hostfile, as MPI and DeepSpeed have it: ``host slots=N`` per line. Not: which one we are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ConfigError

DEFAULT_HOSTFILE = "/job/hostfile"
"""DeepSpeed's; one that does not exist means this machine alone."""

_LINE = re.compile(r"(\S+)\s+slots=([0-9]+)(?=\s|#|$)")
_MOST_SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlots:
    """A host and the numbers of its slots, in the order of the ranks that they get."""

    host: str
    slots: tuple[int, ...]


def read_hostfile(path: str) -> tuple[HostSlots, ...]:
    """The hosts of a file, in its order.

    Raises:
        ConfigError: it cannot be read, or is no hostfile.
    """
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        raise ConfigError(
            f"Hostfile {path} does not exist; mend --hostfile, or leave it out to use this "
            "machine alone."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"Hostfile {path} cannot be read: {reason}.") from error
    return parse_hostfile(text, path)


def parse_hostfile(text: str, name: str) -> tuple[HostSlots, ...]:
    """The hosts of a hostfile's text; ``name`` is for messages.

    Blank lines, and what follows ``#``, are left out; further words on a line mean nothing.

    Raises:
        ConfigError: a line of another form, a host that stands twice, no host at all.
    """
    found: dict[str, int] = {}
    hosts: list[HostSlots] = []
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
    if not hosts:
        raise ConfigError(f"Hostfile {name} names no host; write lines such as: worker-0 slots=4")
    return tuple(hosts)


def _parse_line(words: str, where: str) -> HostSlots:
    match = _LINE.match(words)
    if not match:
        raise ConfigError(f"{where} is {words!r}, but must be: HOST slots=N")
    digits = match[2].lstrip("0")
    if not digits or len(digits) > 4 or int(digits) > _MOST_SLOTS:
        raise ConfigError(
            f"{where} has slots={match[2]}, but must have 1 to {_MOST_SLOTS}; "
            "put # before it to leave the host out."
        )
    return HostSlots(host=match[1], slots=tuple(range(int(digits))))
