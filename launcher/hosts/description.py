"""What each host of a launch is, asked of all at once before anything is started there."""

from __future__ import annotations

import platform
import select
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autoconf_launch.core import DecodeError, FailureKind, HardwareError, decode, visible

from ..request import RemoteAccess
from .line import SAME_ON_ALL
from .lines import AgentLine, open_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What the agent of a host says first; see :class:`HostDescription`.

    Attributes:
        port: free there when it began.
        unix_s: what its clock showed.
        gpus: as ``nvidia-smi`` prints them.
        versions: of Python and packages, by their names.
    """

    address: str
    launcher_address: str | None
    port: int
    unix_s: float
    cores: int
    memory_bytes: int
    gpus: str
    versions: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDescription:
    """What the agent of a host says of it.

    Attributes:
        host: as the launch names it.
        address: by which it was reached.
        launcher_address: ours, as it sees us; None where it cannot tell.
        cores: that processes may use there.
        memory_bytes: that new processes can have.
        gpus: rows of ``nvidia-smi``: index, UUID, name, MiB.
    """

    host: str
    address: str
    launcher_address: str | None
    cores: int
    memory_bytes: int
    gpus: tuple[tuple[str, ...], ...]


@cache
def describe_hosts(hosts: tuple[str, ...], access: RemoteAccess) -> tuple[HostDescription, ...]:
    """Ask every host; one that does not answer, or has other versions, ends the launch.

    Raises:
        ConfigError: the engine is not installed, or a name cannot be a host's.
        HardwareError: a host cannot be reached, or has another Python, torch or version of ours.
    """
    lines = open_lines(hosts, access)
    try:
        said = [_first_line(line) for line in lines]
    finally:
        for line in lines:
            line.close()
    return tuple(_description(host, here) for host, here in zip(hosts, said, strict=True))


def _first_line(line: AgentLine) -> Introduction:
    started_s = time.monotonic()
    while True:
        for found in line.read():
            if "here" in found:
                return _introduction(line.host, found["here"])
        if (loss := line.loss) and loss.kind is not FailureKind.NODE_LOST:
            raise HardwareError(f"{loss.detail[0].upper()}{loss.detail[1:]}.")
        if loss:
            after_s = time.monotonic() - started_s
            raise HardwareError(
                f"Host {line.host} {loss.detail}, {after_s:.0f} s after the first try; see that a "
                f"command runs there without a password, or remove the host."
            )
        patience_s = min(0.5, line.look_every_s, line.due_s - time.monotonic())
        select.select([line] if line.fileno() >= 0 else [], [], [], max(0.0, patience_s))


def _introduction(host: str, said: object) -> Introduction:
    try:
        return decode(Introduction, said)
    except DecodeError as error:
        raise HardwareError(
            f"Host {host} does not describe itself as an agent does ({visible(str(error)[:200])});"
            " see what its login shell prints."
        ) from error


def _description(host: str, here: Introduction) -> HostDescription:
    _check_versions(host, here)
    rows = (tuple(cell.strip() for cell in row.split(",")) for row in here.gpus.splitlines())
    return HostDescription(
        host=host,
        address=here.address,
        launcher_address=here.launcher_address,
        cores=here.cores,
        memory_bytes=here.memory_bytes,
        gpus=tuple(row for row in rows if len(row) == 4 and row[0].isdecimal()),
    )


def _check_versions(host: str, here: Introduction) -> None:
    ours: dict[str, str | None] = {"Python": platform.python_version()}
    ours |= {name: _version(name) for name in SAME_ON_ALL}
    versions = here.versions if isinstance(here.versions, dict) else {}
    for name, own in ours.items():
        there = versions.get(name)
        if there != own:
            has = f"has {name} {there}" if there else f"lacks {name}"
            raise HardwareError(
                f"Host {host} {has}, but this one has {own or 'none'}; install the same on all "
                "hosts."
            )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
