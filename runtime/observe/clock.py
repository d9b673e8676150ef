"""Points in time on the device that trains.

On CUDA they are events in the stream, so that nothing waits for the device while steps run.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch
from torch import Tensor


class Clock(Protocol):
    """Takes marks and tells the seconds between them."""

    lags: bool
    """Whether the device can be behind its marks."""

    def mark(self) -> Any:
        """Now, in the order of the work given so far."""

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has come to a mark."""

    def between_s(self, start: Any, end: Any) -> float:
        """Seconds from one mark to a later one that has passed."""

    def wait(self, mark: Any) -> None:
        """Return when the device has come to a mark."""

    def settle(self) -> None:
        """Wait until every mark has passed."""


class HostClock:
    """A clock for devices that compute before they return."""

    lags = False
    mark = staticmethod(time.perf_counter)
    """See Clock."""

    def has_passed(self, mark: Any) -> bool:
        """See Clock."""
        return True

    def between_s(self, start: Any, end: Any) -> float:
        """See Clock."""
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
        """See Clock."""
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def has_passed(self, mark: Any) -> bool:
        """See Clock."""
        return bool(mark.query())

    def between_s(self, start: Any, end: Any) -> float:
        """See Clock."""
        return float(start.elapsed_time(end)) / 1e3

    def wait(self, mark: Any) -> None:
        """See Clock."""
        mark.synchronize()

    def settle(self) -> None:
        """See Clock."""
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> Clock:
    """The clock that fits a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


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
    """What an optimizer step descends: the losses of its backward passes together, so far."""
    if earlier is None or loss is None or earlier.device != loss.device:
        return loss
    return earlier.float() + loss.float()
