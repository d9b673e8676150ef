"""Whether hosts reach each other's ports, before a process group waits for it in vain.

Rank 0 has the store; the first rank of each host opens a port and tries those of its pairs.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias

from torch.distributed import Store  # type: ignore[attr-defined]

MEET_S = 60.0
"""Longest time for ranks to reach rank 0, in seconds; a slow disk delays torch's import."""
_CONNECT_S = 5.0
"""Longest time for a host of the same network to accept a connection, in seconds."""
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_ANSWER_S = 5.0
_RETRY_S = 0.2

Port: TypeAlias = tuple[int, int]
"""Number of a node, and of a port there."""


def is_reached(place: tuple[str, int], patience_s: float) -> bool:
    """True if an address accepts a connection within so many seconds; it may refuse some first."""
    until_s = time.monotonic() + patience_s
    while (left_s := until_s - time.monotonic()) > 0:
        with suppress(OSError):
            socket.create_connection(place, min(left_s, _CONNECT_S)).close()
            return True
        time.sleep(min(left_s, _RETRY_S))
    return False


def find_blocked(
    store: Store, node: int, partners: Sequence[int], nodes: int
) -> list[Port] | None:
    """Ports of other nodes that this one does not reach; None where all reach all.

    Called by the first rank of each node; :func:`is_blocked` by all others.
    """
    address = _own_address()
    with socket.create_server((address, 0)) as listener:
        store.set(f"port/{node}", json.dumps([address, listener.getsockname()[1]]))
        if not _have_all(store, "port", node, nodes, MEET_S):
            return []
        blocked = [port for other in partners for port in _try(store, other)]
        store.set(f"reached/{node}", "no" if blocked else "yes")
        is_free = _have_all(store, "reached", node, nodes, _CONNECT_S * len(partners))
    return None if is_free else blocked


def is_blocked(store: Store) -> bool:
    """True if some host does not reach another; waits for those who try."""
    return not (_is_all(store, "port", MEET_S) and _is_all(store, "reached", MEET_S))


def _have_all(store: Store, name: str, node: int, nodes: int, patience_s: float) -> bool:
    """True if every node has set a key, to anything but "no"; node 0 decides it for all."""
    if node == 0:
        keys = [f"{name}/{number}" for number in range(nodes)]
        have_all = _wait(store, keys, patience_s) and b"no" not in map(store.get, keys)
        store.set(name, "yes" if have_all else "no")
    return _is_all(store, name, patience_s)


def _is_all(store: Store, name: str, patience_s: float) -> bool:
    with suppress(RuntimeError):  # as in _wait
        return _wait(store, [name], patience_s + _ANSWER_S) and store.get(name) == b"yes"
    return False


def _wait(store: Store, keys: list[str], patience_s: float) -> bool:
    with suppress(RuntimeError):  # time is up, or rank 0 has ended
        store.wait(keys, timedelta(seconds=patience_s))
        return True
    return False


def _try(store: Store, node: int) -> list[Port]:
    address, port = json.loads(store.get(f"port/{node}"))
    return [] if is_reached((address, port), _CONNECT_S) else [(node, port)]


def _own_address() -> str:
    """Address of the interface that gloo was told to use, else of the one towards rank 0."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    family, *_, towards = socket.getaddrinfo(*place, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
        with suppress(OSError):
            name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
            wanted = struct.pack("256s", name.encode()[:15])
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, wanted)
            return socket.inet_ntoa(answer[20:24])
        any_socket.connect(towards)
        return str(any_socket.getsockname()[0])
