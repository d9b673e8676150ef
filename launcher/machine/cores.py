"""CPU cores of this machine, and a share of them for each rank."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from autoconf_launch.core import ConfigError

from ..request import CoreBinding

_TOPOLOGY = Path("/sys/devices/system/cpu")
THREADS = "OMP_NUM_THREADS"
"""Variable with the threads of each rank."""


def cores_of_ranks(binding: CoreBinding, ranks: int) -> tuple[tuple[int, ...], ...]:
    """Cores of each rank of this machine: equal shares in order; the remainder stays free.

    Raises:
        ConfigError: a core that this process may not use, or fewer cores than ranks.
    """
    usable = sorted(os.sched_getaffinity(0))
    cores = binding.cores or physical_cores(usable)
    unusable = [core for core in cores if core not in usable]
    if unusable:
        raise ConfigError(
            f"--bind_core_list names core {unusable[0]}, but this process may use only: "
            f"{', '.join(map(str, usable))}."
        )
    if len(cores) < ranks:
        raise ConfigError(
            f"--bind_cores_to_rank has {len(cores)} cores for {ranks} ranks, but each rank needs "
            "one; start fewer ranks, or omit --bind_cores_to_rank."
        )
    return split_cores(tuple(cores), ranks)


def split_cores(cores: tuple[int, ...], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Equal shares, each of neighbouring entries; needs at least as many cores as ranks."""
    share = len(cores) // ranks
    return tuple(cores[rank * share : (rank + 1) * share] for rank in range(ranks))


def physical_cores(usable: list[int], topology: Path = _TOPOLOGY) -> tuple[int, ...]:
    """The first usable thread of each physical core; all of ``usable`` if nothing is known."""
    first: dict[str, int] = {}
    for core in usable:
        try:
            siblings = (topology / f"cpu{core}/topology/thread_siblings_list").read_text()
        except OSError:
            siblings = str(core)
        first.setdefault(siblings.strip(), core)
    return tuple(first.values())


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of ``host`` (an address of this machine) without a listener.

    The port is free again when this returns, so another process can take it before rank 0
    listens there. The kernel assigns such ports in no order, which makes that rare; the
    launch then fails with "address already in use" and is worth one more try.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
    return port
