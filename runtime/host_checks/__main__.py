"""A rank of ``autoconf-launch doctor``: measures its slot, and with others the links.

It prints one line, ``DOCTOR_MARK`` and a JSON document. Arguments are a file of the launcher, the
number of hosts, and ``kernels`` if the rates of kernels are wanted, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from autoconf_launch.core import DOCTOR_MARK
from autoconf_launch.runtime.rank import Ranks, join, open_store

from .driver import DriverRow, has_pending_rows, read_gpus, users_of
from .kernels import measure_kernels

KERNELS = "kernels"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
MEET_S = 60.0
"""Longest time for ranks to reach rank 0, in seconds; a slow disk delays torch's import."""
_CONNECT_S = 5.0
"""Longest time for a host of the same network to accept a connection, in seconds."""
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_ANSWER_S = 5.0
_RETRY_S = 0.2
Port: TypeAlias = tuple[int, int]
"""Number of a node, and of a port there."""
_ROWS_CPU, _ROWS_GPU = 1024, 8192
_BYTES_CPU, _BYTES_GPU = 8 << 20, 64 << 20
_REPEATS = 5
_LOAD_S, _LONGEST_LOAD_S = 1.0, 10.0
"""A GPU's clocks need a moment to rise, and its driver one to answer."""
_MOST_PAIRED = 8
"""With more hosts than this each is paired only with the next one."""


def main() -> None:
    """Check, and print the results."""
    node, nodes = int(os.environ["GROUP_RANK"]), int(sys.argv[2])
    store, blocked = _open_ports(node, nodes) if nodes > 1 else (None, None)
    if blocked is not None:
        _print({"node": node, "blocked": blocked})
        return
    card = Card()
    ranks = join(store=store)
    dist.barrier()
    found: dict[str, Any] = {"node": node}
    found["flops_per_s"], found["gpu"] = _product(ranks.device, card)
    dist.barrier()
    found["clock_s"] = _clock_s(ranks)
    found["sees_folder"] = Path(sys.argv[1]).exists()
    hosts = _ranks_of_hosts(ranks, node)
    pairs = [_pair(ranks, hosts, pair) for pair in _pairs(nodes)]
    found["pairs"] = [pair for pair in pairs if pair is not None]
    if KERNELS in sys.argv[3:]:
        dist.barrier()
        found["kernels"] = measure_kernels(ranks, hosts, _format(ranks.device))
    _print(found)


def _print(found: dict[str, Any]) -> None:
    os.write(1, f"{DOCTOR_MARK}{json.dumps(found)}\n".encode())


def _open_ports(node: int, nodes: int) -> tuple[Store | None, list[Port] | None]:
    """The ranks' store, and the ports that this host cannot reach; None if all reach all."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] != "0" and not is_reached(place, MEET_S):
        return None, [(0, place[1])]
    store = open_store()
    if os.environ["LOCAL_RANK"] != "0":
        return store, [] if is_blocked(store) else None
    partners = {other for pair in _pairs(nodes) if node in pair for other in pair} - {node}
    return store, find_blocked(store, node, sorted(partners), nodes)


def _ranks_of_hosts(ranks: Ranks, node: int) -> list[list[int]]:
    """The ranks of each host; hosts may have different numbers of them."""
    own = torch.full((1,), node, device=ranks.device)
    all_nodes = [torch.zeros_like(own) for _ in range(ranks.world_size)]
    dist.all_gather(all_nodes, own)
    hosts: list[list[int]] = [[] for _ in range(1 + max(int(each) for each in all_nodes))]
    for rank, each in enumerate(all_nodes):
        hosts[int(each)].append(rank)
    return hosts


def _pairs(nodes: int) -> list[tuple[int, int]]:
    if nodes <= _MOST_PAIRED:
        return list(combinations(range(nodes), 2))
    return [(node, (node + 1) % nodes) for node in range(nodes)]


def _product(device: torch.device, card: Card) -> tuple[float, dict[str, Any] | None]:
    """FLOP/s of a square product in the precision that trainings use, and the GPU meanwhile.

    Of random numbers: a GPU multiplies ones up to 13 % faster, as they take less power.
    """
    is_gpu = device.type == "cuda"
    rows = _ROWS_GPU if is_gpu else _ROWS_CPU
    a = torch.randn(rows, rows, device=device).to(_format(device))
    looked, began_s = card.look(), time.perf_counter()
    best_s = _best_s(lambda: torch.mm(a, a), device)
    while is_gpu and (spent_s := time.perf_counter() - began_s) < _LONGEST_LOAD_S:
        if looked.done() and spent_s >= _LOAD_S:
            break
        best_s = min(best_s, _best_s(lambda: torch.mm(a, a), device))
    return 2.0 * rows**3 / best_s, card.document(device, looked.result())


def _format(device: torch.device) -> torch.dtype:
    """The 16-bit format that a GPU computes fast in, which is fp16 before Ampere."""
    if device.type != "cuda":
        return torch.float32
    is_old = torch.cuda.get_device_capability(device) < (8, 0)
    return torch.float16 if is_old else torch.bfloat16


def _best_s(
    run: Callable[[], object], device: torch.device, begin: Callable[[], object] = lambda: None
) -> float:
    times_s = []
    for _ in range(_REPEATS + 1):
        begin()
        started_s = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s[1:])


def _clock_s(ranks: Ranks) -> float:
    """Lead of this clock over rank 0's in seconds, by the shortest of a few round trips."""
    found = []
    for _ in range(_REPEATS):
        for other in range(1, ranks.world_size):
            found += _ask_clock(ranks, other)
    return min(found)[1] if found else 0.0


def _ask_clock(ranks: Ranks, other: int) -> list[tuple[float, float]]:
    """A rank asks rank 0 for its time: how long that took, and the difference."""
    cell = torch.zeros(1, dtype=torch.float64, device=ranks.device)
    if ranks.rank == other:
        asked_s = time.time()
        dist.send(cell, 0)
        dist.recv(cell, 0)
        answered_s = time.time()
        return [(answered_s - asked_s, (asked_s + answered_s) / 2 - float(cell))]
    if ranks.rank == 0:
        dist.recv(cell, other)
        cell.fill_(time.time())
        dist.send(cell, other)
    return []


def _pair(ranks: Ranks, hosts: list[list[int]], nodes: tuple[int, int]) -> dict[str, Any] | None:
    """All-reduces of two hosts, each slot with its like at the same time, as they share cards.

    None but in the first rank of the first of them.
    """
    pairs = list(zip(*(hosts[node] for node in nodes), strict=False))
    groups = [dist.new_group(sorted(pair)) for pair in pairs]  # made by all ranks
    mine = next((one for one, pair in zip(groups, pairs, strict=True) if ranks.rank in pair), None)

    def reduce(values: torch.Tensor) -> None:
        if mine is not None:
            dist.all_reduce(values, group=mine)

    size = (_BYTES_GPU if ranks.device.type == "cuda" else _BYTES_CPU) // 4
    large = torch.zeros(size, device=ranks.device)
    small = torch.zeros(1, device=ranks.device)
    large_s = _best_s(lambda: reduce(large), ranks.device, dist.barrier)
    small_s = median(_best_s(lambda: reduce(small), ranks.device) for _ in range(3))
    dist.barrier()
    if ranks.rank != pairs[0][0]:
        return None
    return {"nodes": nodes, "latency_s": small_s, "bytes_per_s": 4 * size / large_s}


def is_reached(place: tuple[str, int], patience_s: float) -> bool:
    """True if an address accepts a connection in time; it may refuse at first."""
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
    """Ports of other nodes that this one does not reach; None if all reach all.

    Called by the first rank of each node; :func:`is_blocked` by all others.
    """
    address = _own_address()
    with socket.create_server((address, 0)) as listener:
        store.set(f"port/{node}", json.dumps([address, listener.getsockname()[1]]))
        if not _have_all(store, "port", node, nodes, MEET_S):
            return []
        places = {other: json.loads(store.get(f"port/{other}")) for other in partners}
        blocked = [
            (other, port)
            for other, (address, port) in places.items()
            if not is_reached((address, port), _CONNECT_S)
        ]
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


def _own_address() -> str:
    """Address of the interface that gloo must use, else of the interface towards rank 0."""
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


class Card:
    """Load by other processes; must be made before this process uses the GPU."""

    def __init__(self) -> None:
        self._before = own_gpu(read_gpus())
        self._uuid = str(self._before["uuid"]) if self._before else ""
        self._users = users_of(self._uuid) if self._uuid else []
        self._asks = ThreadPoolExecutor(1)

    def look(self) -> Future[DriverRow | None]:
        """Ask for its state, to be seen while it computes."""
        return self._asks.submit(lambda: own_gpu(read_gpus()) if self._uuid else None)

    def document(
        self, device: torch.device, under_load: DriverRow | None
    ) -> dict[str, Any] | None:
        """All that was seen; None for a rank without a GPU."""
        if self._before is None and device.type != "cuda":
            return None
        state = under_load or self._before or {}
        seen = torch.cuda.get_device_name(device) if device.type == "cuda" else state.get("name")
        pending = state.get("retired_pending") == "Yes" or has_pending_rows(self._uuid)
        return {
            **state,
            "name": seen,
            "users": self._users,
            "repair_pending": pending,
            "is_usable": device.type == "cuda",
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }


def own_gpu(gpus: list[DriverRow]) -> DriverRow | None:
    """The GPU that CUDA shows this rank; None for a rank of a CPU and for a slice of a GPU."""
    local, visible = int(os.environ.get("LOCAL_RANK", "0")), os.environ.get(_VISIBLE)
    names = list(map(str, range(len(gpus)))) if visible is None else visible.split(",")
    if local >= len(names) or not (name := names[local].strip()):
        return None
    by_uuid = name.startswith("GPU-")
    return next(
        (
            g
            for g in gpus
            if name == str(g["slot"]) or (by_uuid and str(g["uuid"]).startswith(name))
        ),
        None,
    )


if __name__ == "__main__":
    main()
