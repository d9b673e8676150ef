"""Notices modules that torch.compile takes, before anything of them is compiled.

Global hooks on modules would be compiled in, and their removal would compile all anew: such
modules are followed by hooks of their own, outside of what is compiled.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn

_DEEPEST = 8


class CompileListener(Protocol):
    """Is told of each module."""

    def compiles(self) -> None:
        """A module is about to be compiled."""

    def on_compile(self, module: nn.Module) -> None:
        """A module was wrapped for compilation in this one, which the script calls."""

    def in_place(self, module: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """A module is compiled in place: gives the function that is called instead of ``call``."""


def watch_compile(listener: CompileListener, any_compiles: Callable[[], None]) -> None:
    """Tell a listener from here on; ``any_compiles`` is called for functions, too."""
    compile_any, compile_module = torch.compile, nn.Module.compile

    @wraps(compile_any)
    def compile_and_tell(model: Any = None, *arguments: Any, **named: Any) -> Any:
        if isinstance(model, nn.Module):
            listener.compiles()
        if model is not None:
            any_compiles()
        result: Any = compile_any(model, *arguments, **named)
        if isinstance(model, nn.Module) and isinstance(result, nn.Module):
            listener.on_compile(result)
        return result

    @wraps(compile_module)
    def in_place(module: nn.Module, *arguments: Any, **named: Any) -> None:
        listener.compiles()
        any_compiles()
        compile_module(module, *arguments, **named)
        call: Any = module._compiled_call_impl
        module._compiled_call_impl = listener.in_place(module, call)

    torch.compile = compile_and_tell
    nn.Module.compile = in_place  # type: ignore[assignment, method-assign]


def outermost(module: nn.Module) -> nn.Module:
    """The module that holds this one, if any lives, and the one that holds that."""
    for _ in range(_DEEPEST):
        holder = next((m for m in _modules() if _holds(m, module)), None)
        if holder is None:
            return module
        module = holder
    return module


def _modules() -> list[nn.Module]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]


def _holds(holder: nn.Module, module: nn.Module) -> bool:
    return any(child is module for child in holder.__dict__.get("_modules", {}).values())
