"""Points in time on the device that trains.

On CUDA they are events in the stream, so that nothing waits for the device while steps run.
Losses reach the host in the same way: copied when they are known, read once they have arrived.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from autoconf_launch.core import real_time


class Clock(Protocol):
    """Takes marks and tells the seconds between them."""

    lags: bool
    """True if the device can be behind its marks."""

    def mark(self) -> Any:
        """Now, in the order of the work given so far."""

    def has_passed(self, mark: Any) -> bool:
        """True if the device has come to a mark."""

    def between_s(self, start: Any, end: Any) -> float:
        """Seconds from one mark to a later one that has passed."""

    def wait(self, mark: Any) -> None:
        """Return when the device has come to a mark."""

    def settle(self) -> None:
        """Wait until every mark has passed."""


class HostClock:
    """A clock for devices that compute before they return."""

    lags = False
    mark = staticmethod(real_time.perf_counter)
    """See Clock."""

    def has_passed(self, mark: Any) -> bool:
        return True

    def between_s(self, start: Any, end: Any) -> float:
        return float(end - start)

    def wait(self, mark: Any) -> None:
        """See Clock."""

    def settle(self) -> None:
        """See Clock."""


class CudaClock:
    """Events on the current stream of one GPU."""

    lags = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def has_passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_s(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> Clock:
    """The clock that fits a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


class Arriving:
    """A number on its way from a GPU to the host."""

    __slots__ = ("_cell", "_copied")

    def __init__(self, cell: Tensor, copied: torch.cuda.Event) -> None:
        self._cell = cell
        self._copied = copied

    @property
    def has_arrived(self) -> bool:
        """True if reading it takes no time."""
        return bool(self._copied.query())  # type: ignore[no-untyped-call]

    def take(self, free_cells: list[Tensor]) -> float:
        """The number; its cell is free again."""
        self._copied.synchronize()
        value = float(self._cell)
        free_cells.append(self._cell)
        return value


_CELLS = 256
"""Numbers that share one block of pinned memory, which takes long to allocate."""


class LossReader:
    """Reads losses without waiting for the device.

    ``float(loss)`` waits for everything that is queued on a GPU, the next step's kernels too, so
    that no work of the host could overlap them.
    """

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def send(self, loss: Tensor | None) -> Tensor | Arriving | None:
        """Copy a loss of a GPU to pinned memory, in the order of the work queued so far."""
        if loss is None or not loss.is_cuda:
            return loss
        if not self._free:
            self._free += torch.empty(_CELLS, dtype=torch.float64, pin_memory=True).unbind()
        cell = self._free.pop()
        cell.copy_(loss.reshape(()), non_blocking=True)
        copied: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(loss.device))
        return Arriving(cell, copied)

    def has_arrived(self, sent: Tensor | Arriving | None) -> bool:
        """True if :meth:`read` returns at once."""
        return not isinstance(sent, Arriving) or sent.has_arrived

    def read(self, sent: Tensor | Arriving | None) -> float | None:
        """The number that was sent; to be called once."""
        if isinstance(sent, Arriving):
            return sent.take(self._free)
        return None if sent is None else float(sent)


def loss_of(tensors: Any) -> Tensor | None:
    """The number that a backward pass starts from, without waiting for it; None: no number."""
    first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
    if type(first) is not Tensor:
        first = getattr(first, "_local_tensor", None)
    if first is None or first.numel() != 1 or not first.is_floating_point():
        return None
    loss: Tensor = first.detach().clone()  # scripts change theirs: all_reduce, *= steps
    return loss


def sum_of(earlier: Tensor | None, loss: Tensor | None) -> Tensor | None:
    """Sum of the losses of a step's backward passes so far."""
    if earlier is None or loss is None or earlier.device != loss.device:
        return loss
    return earlier.float() + loss.float()
