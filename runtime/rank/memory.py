"""Memory that this rank uses, and the limit that it holds itself to.

On a GPU it is what torch's allocator reserves, and the process's context. The allocator is held
to the limit less the context.

On CPU the limit is emulated by RLIMIT_DATA: it counts what the process may write to (heap,
anonymous maps, stacks), so reserved memory counts before it is touched. The peak is the kernel's
high-water mark of resident memory, reset at the start, less the pages of files (libraries) now
resident; it needs no samples and stays a little below what the limit counts.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

from autoconf_launch.core import CONTEXT_BYTES, MemoryUse

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_STACK_BYTES = 1 << 20
_ATTRIBUTES_BYTES = 256  # more than any pthread_attr_t of Linux
_PEAK = "5"
"""Written to clear_refs, sets VmHWM to the present use (proc(5))."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_SMALL_BLOCK_BYTES, _LARGE_BLOCK_BYTES = 64 << 10, 32 << 20


class Meter(Protocol):
    """Measures from its making on."""

    def use(self) -> MemoryUse:
        """Peak since the start."""

    def restart(self) -> None:
        """Let the peak begin at the present use."""

    def enforce(self) -> None:
        """Begin the memory limit.

        Raises:
            torch.OutOfMemoryError: the model by itself exceeds it.
        """

    def lift(self) -> None:
        """End the memory limit, so that a failure can be reported."""

    def watch_live(self) -> AbstractContextManager[None]:
        """Measure the peak of used memory inside; an allocator's cache is not included."""


def start_meter(device: torch.device, limit_bytes: int | None, held_bytes: int) -> Meter:
    """Measure from here, after imports; ``held_bytes`` of model exist already and count."""
    if device.type == "cuda":
        meter = CudaMeter(device, limit_bytes)
        meter.restart()
        return meter
    return CpuMeter(limit_bytes, held_bytes)


_MOST_CONTEXT_BYTES, _MOST_NCCL_BYTES = 1 << 30, 1 << 30
"""More than this outside of torch's allocator belongs to other processes."""


class CudaMeter:
    """Memory that torch's allocator has reserved on one GPU, and the context's."""

    def __init__(
        self, device: torch.device, limit_bytes: int | None = None, weight_bytes: int = 0
    ) -> None:
        """``weight_bytes`` of weights are on the device already."""
        self._device = device
        self._weight_bytes = weight_bytes
        free, total = torch.cuda.mem_get_info(device)
        self._total = total
        self._limit = min(limit_bytes or total, total)
        self._kept_bytes = 0
        """Bytes that a limit keeps free for the context."""
        self._is_limited = self._weights_exceed = False
        held = torch.cuda.memory_reserved(device) + self._context_bytes()
        self._free_before = min(free + held, self._limit)

    def use(self) -> MemoryUse:
        """Peak since the start.

        Raises:
            RuntimeError: the device is lost.
        """
        reserved = torch.cuda.max_memory_reserved(self._device)
        return MemoryUse(
            free_before_bytes=self._free_before,
            peak_bytes=reserved + max(self._context_bytes(), self._kept_bytes),
            limit_bytes=self._limit,
            reserved_bytes=reserved,
            allocated_bytes=torch.cuda.max_memory_allocated(self._device),
            weights_alone=self._weights_exceed,
        )

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def enforce(self) -> None:
        """Let the allocator reserve the limit less the context.

        The context grows as kernels and libraries are loaded, so that at least its typical size is
        subtracted.
        """
        if self._limit >= self._total:
            return
        torch.cuda.empty_cache()
        held = torch.cuda.memory_reserved(self._device)
        self._kept_bytes = max(self._context_bytes(), CONTEXT_BYTES)
        allowed = max(self._limit - self._kept_bytes, 0)
        self._weights_exceed = self._weight_bytes > allowed
        if held > allowed:
            raise torch.OutOfMemoryError(
                f"the model and its first batch take {held} bytes of the GPU, but the memory "
                f"limit of {self._limit} bytes leaves {allowed} besides the CUDA context."
            )
        self._is_limited = True
        torch.cuda.set_per_process_memory_fraction(allowed / self._total, self._device)

    def lift(self) -> None:
        if self._is_limited:
            with suppress(RuntimeError):  # a lost device refuses, and allocates no more either
                torch.cuda.set_per_process_memory_fraction(1.0, self._device)

    @contextmanager
    def watch_live(self) -> Iterator[None]:
        self.restart()
        yield

    def _context_bytes(self) -> int:
        """Bytes of this process on the device outside of torch's allocator.

        The driver reports only the total: others' memory counts as ours unless it is too much.
        """
        free, total = torch.cuda.mem_get_info(self._device)
        outside: int = total - free - torch.cuda.memory_reserved(self._device)
        has_peers = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        most = _MOST_CONTEXT_BYTES + _MOST_NCCL_BYTES * has_peers
        return outside if 0 < outside <= most else CONTEXT_BYTES


class CpuMeter:
    """Resident memory of this process beyond its memory before the model."""

    def __init__(self, limit_bytes: int | None, held_bytes: int) -> None:
        _finish_imports()
        self._limit = limit_bytes
        self._held = held_bytes
        self._live_peak: int | None = None
        self._free_before = _host_bytes("MemAvailable") + held_bytes
        self._before = _status_bytes("VmRSS") - _status_bytes("RssFile") - held_bytes
        self.restart()

    def restart(self) -> None:
        """Let the high-water mark begin at the present use, without freed memory."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        with suppress(OSError):
            _RESET.write_text(_PEAK)

    def use(self) -> MemoryUse:
        """High-water mark over the start, the model's own bytes included."""
        peak, live = self._peak(), self._live_peak
        return MemoryUse(
            free_before_bytes=self._limit or self._free_before,
            peak_bytes=peak if live is None else live,
            limit_bytes=self._limit or _host_bytes("MemTotal"),
            reserved_bytes=None if live is None else peak,
            weights_alone=self._limit is not None and self._held > self._limit,
        )

    @contextmanager
    def watch_live(self) -> Iterator[None]:
        """Measure with an allocator that keeps no freed block, which is slower."""
        _keep_freed_blocks(_SMALL_BLOCK_BYTES)
        self.restart()
        try:
            yield
            self._live_peak = self._peak()
        finally:
            _keep_freed_blocks(_LARGE_BLOCK_BYTES)

    def _peak(self) -> int:
        peak = _status_bytes("VmHWM") - _status_bytes("RssFile")
        return max(peak - self._before, 0)

    def enforce(self) -> None:
        """Set RLIMIT_DATA so that ``limit_bytes`` beyond the use before the model remain."""
        if self._limit is None:
            return
        if self._held > self._limit:
            raise torch.OutOfMemoryError(
                f"the model's weights take {self._held} bytes, but the memory limit is "
                f"{self._limit}."
            )
        _make_stacks_small()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        allowed = _status_bytes("VmData") - self._held + self._limit
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))

    def lift(self) -> None:
        if self._limit is not None:
            lift_data_limit()


def _keep_freed_blocks(most_bytes: int) -> None:
    """Have glibc keep freed blocks of at most this size for reuse, and twice it at the end.

    By itself it begins with the smaller size and grows to the largest freed block's, up to
    the larger one (mallopt(3), M_MMAP_THRESHOLD). Other C libraries are left as they are.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, most_bytes)
        libc.mallopt(_TRIM_THRESHOLD, 2 * most_bytes)


def _make_stacks_small() -> None:
    """Have threads that start from here on reserve little: the limit counts whole stacks.

    By itself each takes ``ulimit -s``, 8 MB mostly, of which it touches next to nothing.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        libc.pthread_setattr_default_np(attributes)


def lift_data_limit() -> None:
    """Set this process's soft RLIMIT_DATA to its hard one."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _finish_imports() -> None:
    """Let torch load its libraries of the first use, and OpenMP start its threads.

    Neither is memory of the training; and a thread that meets the limit aborts the process.
    """
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1 << 18).square_())])


def _status_bytes(name: str) -> int:
    return _kilobytes(_STATUS, name)


def _host_bytes(name: str) -> int:
    return _kilobytes(Path("/proc/meminfo"), name)


def _kilobytes(path: Path, name: str) -> int:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
