"""Outermost calls of modules that train, with their arguments. Not: calls inside of them.

Stands before every hook, so that the first call of all is seen whole. For a process that ends
soon; ``roots`` is for those that go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn


class OuterCallListener(Protocol):
    """Is told of each such call."""

    def begins(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """It is about to run."""

    def returned(self) -> None:
        """It is over."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


def watch_outer_calls(listener: OuterCallListener, in_backward: Callable[[], bool]) -> None:
    """Tell a listener from here on; calls in other threads pass by."""
    original: Any = nn.Module.__call__
    thread, inside = threading.get_ident(), False

    @wraps(original)
    def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
        nonlocal inside
        quiet = inside or in_backward() or not torch.is_grad_enabled()
        if quiet or threading.get_ident() != thread or not _trains(module):
            return original(module, *arguments, **named)
        listener.begins(module, arguments, named)
        inside = True
        try:
            result = original(module, *arguments, **named)
        except Exception as error:
            listener.failed(error)
            raise
        finally:
            inside = False
        listener.returned()
        return result

    nn.Module.__call__ = call  # type: ignore[method-assign]


def _trains(module: nn.Module) -> bool:
    return any(weight.requires_grad for weight in module.parameters())
