"""The emulated limit is set in a child, since it holds for a whole process."""

import ctypes
from collections.abc import Callable

import pytest
import torch
from torch import nn

from autoconf_launch.runtime.child import in_child
from autoconf_launch.runtime.memory import CpuMeter
from autoconf_launch.runtime.model_source import held_bytes

MEGABYTE = 1_000_000
DEADLINE_S = 20.0
M_MMAP_THRESHOLD = -3


def in_fresh_heap(work: Callable[[], str]) -> str:
    """In a child that has no room which pytest has left free, so that all memory is new."""

    def fresh() -> str:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, MEGABYTE // 4)
        fill_gaps(libc)
        return work()

    return in_child(fresh, timeout_s=DEADLINE_S)


def fill_gaps(libc: ctypes.CDLL) -> None:
    """Take what the heap has free in pieces of a megabyte; what is not there is mapped."""
    libc.malloc.restype = ctypes.c_void_p
    while not _is_mapped(libc.malloc(MEGABYTE)):
        pass


def _is_mapped(address: int) -> bool:
    """By the flag that glibc keeps in a chunk's size, just before it."""
    size = ctypes.c_size_t.from_address(address - ctypes.sizeof(ctypes.c_size_t))
    return bool(size.value & 2)


def allocate(count: int) -> list[torch.Tensor]:
    return [torch.ones(MEGABYTE // 4) for _ in range(count)]


def test_the_peak_is_what_was_allocated_at_most() -> None:
    def work() -> str:
        meter = CpuMeter(None, 0)
        allocate(100)
        return str(meter.use().peak_bytes)

    peak = int(in_fresh_heap(work))
    assert 90 * MEGABYTE < peak < 130 * MEGABYTE


@pytest.mark.parametrize(("megabytes", "fits"), [(30, True), (70, False)])
def test_the_limit_holds(megabytes: int, fits: bool) -> None:
    def work() -> str:
        meter = CpuMeter(50 * MEGABYTE, 0)
        meter.enforce()
        try:
            allocate(megabytes)
        except RuntimeError:
            return "refused"
        return "fits"

    assert in_fresh_heap(work) == ("fits" if fits else "refused")


def test_a_lifted_limit_holds_no_more() -> None:
    def work() -> str:
        meter = CpuMeter(50 * MEGABYTE, 0)
        meter.enforce()
        meter.lift()
        return str(len(allocate(70)))

    assert in_fresh_heap(work) == "70"


def test_a_model_that_exists_counts() -> None:
    def work() -> str:
        held = allocate(30)
        meter = CpuMeter(50 * MEGABYTE, 30 * MEGABYTE)
        meter.enforce()
        try:
            allocate(30)
        except RuntimeError:
            return f"refused with {len(held)} held"
        return "fits"

    assert in_fresh_heap(work) == "refused with 30 held"


def test_a_model_larger_than_the_limit_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="but the memory limit is 5"):
        CpuMeter(5, 6).enforce()


def test_bytes_of_a_model_count_shared_weights_once() -> None:
    model = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)])
    first, second = model
    second.weight = first.weight
    assert held_bytes(model) == 4 * 4 * 4


def test_a_function_holds_nothing_yet() -> None:
    assert held_bytes(lambda: nn.Linear(4, 4)) == 0
