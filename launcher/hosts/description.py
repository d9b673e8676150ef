"""What each host of a launch is, asked of all at once before anything is started there."""

from __future__ import annotations

import math
import platform
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autoconf_launch.core import DecodeError, FailureKind, HardwareError, decode, visible

from ..interrupts import stopping_on_signals
from ..request import RemoteAccess
from .gpus import Gpu, seen_at_once
from .line import SAME_ON_ALL
from .lines import UNSAID_WAIT_S, AgentLine, open_lines, wait_text

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What the agent of a host says first; see :class:`HostDescription`.

    Attributes:
        port: free there when it began.
        unix_s: what its clock showed.
        gpus: all that are there.
        versions: of Python and packages, by their names.
    """

    address: str
    launcher_address: str | None
    port: int
    unix_s: float
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
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
        gpus: all that CUDA would show there, in the order of ``nvidia-smi``.
    """

    host: str
    address: str
    launcher_address: str | None
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]


def describe_hosts(
    hosts: tuple[str, ...],
    access: RemoteAccess,
    tell: Callable[[str], object] = lambda text: None,
) -> tuple[HostDescription, ...]:
    """Ask every host; one that does not answer, or has other versions, ends the launch.

    What was answered once is kept. ``tell`` hears once that hosts are awaited in a queue.

    Raises:
        ConfigError: the engine is not installed, or a name cannot be a host's.
        HardwareError: a host cannot be reached, or has another Python, torch or version of ours.
        InterruptedBySignalError: a signal came; nothing is left in a queue.
    """
    if (hosts, access) not in _KNOWN:
        _KNOWN[hosts, access] = _ask(hosts, access, tell)
    return _KNOWN[hosts, access]


_KNOWN: dict[tuple[tuple[str, ...], RemoteAccess], tuple[HostDescription, ...]] = {}


def _ask(
    hosts: tuple[str, ...], access: RemoteAccess, tell: Callable[[str], object]
) -> tuple[HostDescription, ...]:
    with stopping_on_signals():
        lines = open_lines(hosts, access)
        try:
            _await_places(lines, tell)
            said = [_first_line(line) for line in lines]
        finally:
            for line in lines:
                line.close()
    return tuple(_description(host, here) for host, here in zip(hosts, said, strict=True))


def _await_places(lines: Sequence[AgentLine], tell: Callable[[str], object]) -> None:
    """Return once a queue, if there is one, has given all hosts a place."""
    said_s = time.monotonic() + UNSAID_WAIT_S
    while any(line.is_queued for line in lines) and not any(line.loss for line in lines):
        if time.monotonic() > said_s:
            said_s = math.inf
            tell(wait_text(lines))
        time.sleep(_LOOK_S)


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
    return HostDescription(
        host=host,
        address=here.address,
        launcher_address=here.launcher_address,
        cores=here.cores,
        memory_bytes=here.memory_bytes,
        gpus=seen_at_once(here.gpus),
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
