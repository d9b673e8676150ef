"""Our hooks in copies of a hooked model.

A script may copy its model (an average of the weights, say), save it whole, or compile it to
TorchScript. Such hooks are methods of a :class:`SharedByCopies`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn
from torch.jit import _recursive


class SharedByCopies:
    """Copies of a model go on with the same listener; a saved one is loaded with none."""

    def __deepcopy__(self, memo: object) -> SharedByCopies:
        """Itself: there is one listener in a process."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Save nothing of this object."""
        return (Deaf, ())


def stay_out_of_scripts() -> None:
    """torch.jit.script compiles a module's hooks, too: ours are away meanwhile."""
    if hasattr(_recursive, "create_script_module"):
        _recursive.create_script_module = _without_ours(_recursive.create_script_module)


def _without_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def create_script_module(nn_module: nn.Module, *arguments: Any, **named: Any) -> Any:
        every = [
            hooks
            for module in nn_module.modules()
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
        ]
        before = [(hooks, hooks.copy()) for hooks in every if any(map(_is_ours, hooks.values()))]
        for hooks, all_of_them in before:
            for key in [key for key, hook in all_of_them.items() if _is_ours(hook)]:
                del hooks[key]
        try:
            return original(nn_module, *arguments, **named)
        finally:
            for hooks, all_of_them in before:
                hooks.clear()
                hooks.update(all_of_them)

    return create_script_module


def _is_ours(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), SharedByCopies)


class Deaf:
    """Has every method that a hook may be, and does nothing."""

    def __getattr__(self, name: str) -> Any:
        """A hook that does nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None
