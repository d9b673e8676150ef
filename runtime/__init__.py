"""In the rank: applies a configuration to a model and trains it. Not: which one is best.

The names load at first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine
    from .start import initialize
    from .trace import trace_model

__all__ = ["Engine", "initialize", "trace_model"]

_HOMES = {"Engine": ".engine", "initialize": ".start", "trace_model": ".trace"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
