"""This process's place among the ranks, and its device."""

from __future__ import annotations

import atexit
import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.constants import default_pg_timeout

from autoconf_launch.core import ConfigError, HardwareError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Number of this rank, of all ranks, and the device that this one computes on."""

    rank: int
    world_size: int
    device: torch.device


def world_size(environment: Mapping[str, str] = os.environ) -> int:
    """Ranks of this launch: of the process group if there is one, else ``WORLD_SIZE`` or 1."""
    if dist.is_initialized():
        return dist.get_world_size()
    return _number(environment, "WORLD_SIZE", 1)


def rank_number(environment: Mapping[str, str] = os.environ) -> int:
    """Number of this rank, from 0: in the process group if there is one, else ``RANK`` or 0."""
    if dist.is_initialized():
        return dist.get_rank()
    return _number(environment, "RANK", 0)


def join(environment: Mapping[str, str] = os.environ, store: Store | None = None) -> Ranks:
    """Meet the other ranks, unless the script has done so; NCCL on GPUs, gloo without.

    ``store``: by which they have met already (:func:`open_store`).

    Raises:
        ConfigError: a launcher's variable is missing or no number.
        HardwareError: there are fewer GPUs than local ranks.
    """
    device = _device(_number(environment, "LOCAL_RANK", 0))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        _initialize_process_group(environment, device, store)
        atexit.register(_leave, os.getpid())
    return Ranks(rank=dist.get_rank(), world_size=dist.get_world_size(), device=device)


def open_store(environment: Mapping[str, str] = os.environ) -> Store:
    """The store of a launch of several ranks, which rank 0 makes and the others reach.

    Raises:
        OSError: the port is in use.
    """
    is_first = environment["RANK"] == "0"
    if is_first and (store := _own_store(environment)):
        return store
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    ranks = world_size(environment)
    made = TCPStore(
        host, port, ranks, is_first, timeout=default_pg_timeout, wait_for_workers=False
    )
    return PrefixStore(_GROUP, made)


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    visible = torch.cuda.device_count()
    if visible == 1:
        return torch.device("cuda", 0)
    if local_rank >= visible:
        raise HardwareError(
            f"LOCAL_RANK is {local_rank}, but this process sees {visible} GPUs; start at most "
            f"{visible} ranks on this host."
        )
    return torch.device("cuda", local_rank)


def _initialize_process_group(
    environment: Mapping[str, str], device: torch.device, store: Store | None
) -> None:
    size, rank = world_size(environment), 0
    if size == 1:
        store = dist.HashStore()  # type: ignore[attr-defined]
    elif missing := {"RANK", "MASTER_ADDR", "MASTER_PORT"} - environment.keys():
        raise ConfigError(
            f"WORLD_SIZE is {size}, but {', '.join(sorted(missing))} is not in the environment; "
            "start the script with autoconf-launch or torchrun."
        )
    else:
        rank = int(environment["RANK"])
        store = store or (_own_store(environment) if rank == 0 else None)
    place: dict[str, Any] = {"store": store, "rank": rank, "world_size": size} if store else {}
    is_gpu = device.type == "cuda"
    dist.init_process_group(
        "nccl" if is_gpu else "gloo", device_id=device if is_gpu else None, **place
    )


def _own_store(environment: Mapping[str, str]) -> Store | None:
    """The store of rank 0 only at ``MASTER_ADDR``; torch's own store listens on every interface.

    None if that is not an address of this machine, or a launcher's own store is used; the other
    ranks find it as they find torch's.

    Raises:
        OSError: the port is in use.
    """
    host, port = environment["MASTER_ADDR"], _number(environment, "MASTER_PORT", 0)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
        return None
    spans_hosts = environment.get("LOCAL_WORLD_SIZE") != environment.get("WORLD_SIZE")
    if spans_hosts and str(address[0]).startswith(("127.", "::1")):
        listener.close()  # a name of this machine that others know by another address
        return None
    store = TCPStore(
        host,
        port,
        world_size(environment),
        is_master=True,
        timeout=default_pg_timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return PrefixStore(_GROUP, store)


_BACKLOG = 4096
_GROUP = "default_pg"
"""Prefix that ``init_process_group`` puts before the keys of a store that it makes."""


def _leave(joined: int) -> None:
    """Not of a helper that was forked: it has not the group's threads, and would wait for them."""
    if os.getpid() == joined and dist.is_initialized():
        dist.destroy_process_group()


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, str(default))
    if not value.isdecimal():
        raise ConfigError(f"the environment variable {name} is {value!r}, but must be a number.")
    return int(value)
