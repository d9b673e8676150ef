"""Allocates beside a ``CpuMeter`` in a process of its own and says what it came to.

Megabytes as arguments: the limit, what exists before the meter, what is asked for after it, and
``lift`` to end the limit in between, ``threads`` to start twenty threads, or ``live`` to allocate
it in large blocks among small ones, watch what is live, and allocate more. Memory that a long
process has left free, or frees meanwhile, would count as room below the limit; here is none.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time

import torch

from autoconf_launch.runtime.rank import CpuMeter

MEGABYTE = 1_000_000
MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of mallopt(3): larger blocks are mapped, so that they come and go whole."""


def allocate(megabytes: int) -> list[torch.Tensor]:
    return [torch.ones(MEGABYTE // 4) for _ in range(megabytes)]


def allocate_unevenly(megabytes: int) -> list[torch.Tensor]:
    """Large blocks that small ones keep the heap from giving back, and others in their place."""
    small = []
    for part in (3, 2):
        large = [torch.ones(MEGABYTE // 4 * (megabytes // part)) for _ in range(2)]
        small.append(torch.ones(1000))
        del large
    return small


def watch(meter: CpuMeter, megabytes: int) -> dict[str, int | bool]:
    with meter.watch_live():
        kept = allocate_unevenly(megabytes)
    while_watched = meter.use().peak_bytes
    kept += allocate(2 * megabytes)
    use = meter.use()
    assert use.reserved_bytes is not None
    return {"watched": while_watched, "peak": use.peak_bytes, "reserved": use.reserved_bytes}


def main(limit: int, before: int, after: int, between: str) -> dict[str, int | bool]:
    gc.collect()
    held = allocate(before)
    meter = CpuMeter(limit * MEGABYTE or None, before * MEGABYTE)
    meter.enforce()
    if between == "lift":
        meter.lift()
    for _ in range(20 if between == "threads" else 0):
        threading.Thread(target=time.sleep, args=(0.5,)).start()
    if between == "live":
        return watch(meter, after)
    try:
        allocate(after)
    except RuntimeError:
        meter.lift()
        return {"fits": False, "held": len(held)}
    return {"fits": True, "held": len(held), "peak_bytes": meter.use().peak_bytes}


if __name__ == "__main__":
    torch.set_num_threads(1)
    between = "".join(sys.argv[4:])
    if between == "live":
        torch.ones(8 * MEGABYTE)  # freed, so that glibc keeps blocks of its size from now on
    else:
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MEGABYTE // 4)
    limit, before, after = map(int, sys.argv[1:4])
    sys.stdout.write(json.dumps(main(limit, before, after, between)))
