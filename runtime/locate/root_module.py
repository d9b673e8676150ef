"""Finds the module that the script calls to train, and listens to its calls.

Global hooks see every call during the search; then hooks on the root replace them. If a script
calls several modules, the root is the module with most of the optimizer's weights.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from ..model import SampleCounter, SharedByCopies, alive, first_tensor
from ..observe import dynamo_ran

_DEEPEST = 8


class CallListener(Protocol):
    """Receives calls of the outermost modules that train."""

    def call_begins(self, module: nn.Module) -> None:
        """A call with gradients begins, outside of any backward pass; may raise out of memory."""

    def on_call(self, samples: int) -> None:
        """A training call returned; 0 samples if none could be counted."""

    def on_evaluation(self) -> None:
        """A module in evaluation mode was called without gradients."""

    def on_failure(self, error: BaseException) -> None:
        """The call raised."""


class ModuleLocator(SharedByCopies):
    """Looks for the root and follows it; one per process."""

    def __init__(self, listener: CallListener, in_backward: Callable[[], object]) -> None:
        self._listener = listener
        self._in_backward = in_backward
        self._handles: list[RemovableHandle] = []
        self.looking = False
        """True while the calls of all modules are watched."""
        self._running: list[nn.Module] = []
        self._seen: weakref.WeakKeyDictionary[nn.Module, SampleCounter] = (
            weakref.WeakKeyDictionary()
        )
        self._root: weakref.ref[nn.Module] | None = None
        self._compiled: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._thread = threading.get_ident()
        self._sequence_first = 0
        self._was_inside = False
        self._counter = SampleCounter()
        self.draw_size: Callable[[], int | None] = lambda: None

    @property
    def root(self) -> nn.Module | None:
        """The module found, while it lives."""
        return self._root() if self._root else None

    @property
    def candidates(self) -> tuple[nn.Module, ...]:
        """Every module with trainable weights that was called from outside of a module."""
        return tuple(self._seen)

    def look(self) -> None:
        self._release()
        self.looking = True
        self._root = None
        self._running.clear()
        self._thread = threading.get_ident()
        if self._compiled:
            return
        self._handles = [
            register_module_forward_pre_hook(self._before_any),
            register_module_forward_hook(self._after_any, with_kwargs=True, always_call=True),
        ]

    def settle(self, trained: Iterable[torch.Tensor]) -> nn.Module | None:
        """Listen from here on only to the module that has the ``trained`` weights."""
        weights = {id(weight) for weight in trained}
        root = max(self._seen, key=lambda module: _share(module, weights), default=None)
        if root is not None and self._compiled:
            root = outermost(root)
        if not self._compiled and not self._seen and dynamo_ran():
            return None  # the hooks are compiled into what runs; without them it compiles anew
        self._release()
        self._root = weakref.ref(root) if root is not None else None
        if root is not None and not self._compiled:
            self._counter = self._seen[root]
            after = root.register_forward_hook(
                self._after_settled, with_kwargs=True, always_call=True
            )
            self._handles = [after]
            if (inside := _innermost(root)) is not root:
                self._handles.append(
                    inside.register_forward_hook(self._after_inside, always_call=True)
                )
        return root

    def watch_compile(self, any_compiles: Callable[[], None]) -> None:
        """Follow compiled modules from here on; ``any_compiles`` is called for functions, too."""
        compile_any, compile_module = torch.compile, nn.Module.compile

        @wraps(compile_any)
        def compile_and_follow(model: Any = None, *arguments: Any, **named: Any) -> Any:
            if isinstance(model, nn.Module):
                self._stop_hooks()
            if model is not None:
                any_compiles()
            result: Any = compile_any(model, *arguments, **named)
            if isinstance(model, nn.Module) and isinstance(result, nn.Module):
                self._compiled.add(result)
                result.register_forward_pre_hook(self._before_root)
                result.register_forward_hook(self._after_root, with_kwargs=True, always_call=True)
            return result

        @wraps(compile_module)
        def in_place(module: nn.Module, *arguments: Any, **named: Any) -> None:
            self._stop_hooks()
            any_compiles()
            compile_module(module, *arguments, **named)
            call: Any = module._compiled_call_impl
            module._compiled_call_impl = self._follow_call(module, call)

        torch.compile = compile_and_follow
        nn.Module.compile = in_place  # type: ignore[assignment, method-assign]

    def _stop_hooks(self) -> None:
        looking = self.looking
        self._release()
        self.looking = looking

    def _follow_call(self, module: nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
        """Function that is called for a module that was compiled in place."""
        self._compiled.add(module)

        @wraps(call)
        def call_watched(*arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return call(*arguments, **named)
            self._before_root(module, arguments)
            result = call(*arguments, **named)
            self._after_root(module, arguments, named, result)
            return result

        return call_watched

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.looking = False

    def _before_any(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        if self._in_backward():
            return
        self._running.append(module)
        if len(self._running) == 1:
            if torch.is_grad_enabled() and self._trains(module):
                self._listener.call_begins(module)
        elif getattr(module, "batch_first", None) is False:
            first = first_tensor(arguments)
            if first is not None and first.dim() == 3:
                self._sequence_first = int(first.shape[1])

    def _after_any(self, module: nn.Module, arguments: tuple[Any, ...], *rest: Any) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        if self._in_backward() or not self._running or self._running[-1] is not module:
            return
        self._running.pop()
        if not self._running:
            self._after_root(module, arguments, *rest)

    def _before_root(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or self._in_backward():
            return
        if torch.is_grad_enabled() and self._trains(module):
            self._listener.call_begins(module)

    def _after_root(self, module: nn.Module, arguments: tuple[Any, ...], *rest: Any) -> None:
        if torch.compiler.is_compiling() or self._in_backward():
            return
        error = sys.exc_info()[1]
        evaluates = not torch.is_grad_enabled() and not module.training
        was_inside, self._was_inside = self._was_inside, False
        if evaluates and not was_inside:
            self._listener.on_evaluation()
        if rest[-1] is None and isinstance(error, Exception):
            self._listener.on_failure(error)
        elif not torch.is_grad_enabled():
            pass
        elif getattr(rest[-1], "requires_grad", True):
            counter = self._seen.get(module)
            if counter is not None:
                self._listener.on_call(self._samples(counter, arguments, rest))

    def _after_settled(
        self, module: nn.Module, arguments: tuple[Any, ...], named: Any, result: Any
    ) -> None:
        """A call of the settled root ended; kept short, as it runs in every step."""
        if torch.compiler.is_compiling() or self._in_backward():
            return
        quick = self._counter.quick
        if quick and type(result) is torch.Tensor and result.requires_grad and arguments:
            first = arguments[0]
            if type(first) is torch.Tensor:
                self._listener.on_call(first.shape[quick - 1])
                return
        self._after_root(module, arguments, named, result)

    def _after_inside(self, module: nn.Module, arguments: object, result: object) -> None:
        """A script may train through a wrapper (DDP) and evaluate the module inside."""
        if not module.training and not torch.is_grad_enabled():
            self._was_inside = True
            self._listener.on_evaluation()
            if result is None and isinstance(error := sys.exc_info()[1], Exception):
                self._listener.on_failure(error)

    def _samples(
        self, counter: SampleCounter, arguments: tuple[Any, ...], rest: tuple[Any, ...]
    ) -> int:
        if counter.quick and arguments and type(arguments[0]) is torch.Tensor:
            return int(arguments[0].shape[counter.quick - 1])
        named = rest[0] if len(rest) > 1 else {}
        hints = [hint for hint in (self.draw_size(), self._sequence_first) if hint]
        return counter.count(arguments, named, hints)

    def _trains(self, module: nn.Module) -> bool:
        if module in self._seen:
            return True
        if not any(weight.requires_grad for weight in module.parameters()):
            return False
        self._seen[module] = SampleCounter()
        return True


def _innermost(module: nn.Module) -> nn.Module:
    """The module below it that still has all of its trainable weights, and no child that has."""
    wanted = _trainable(module)
    while wanted:
        inside = next((c for c in module.children() if wanted == _trainable(c)), None)
        if inside is None:
            break
        module = inside
    return module


def _trainable(module: nn.Module) -> set[int]:
    return {id(weight) for weight in module.parameters() if weight.requires_grad}


def _share(module: nn.Module, weights: set[int]) -> tuple[int, int]:
    own = [weight for weight in module.parameters() if weight.requires_grad]
    common = sum(weight.numel() for weight in own if id(weight) in weights)
    return common, sum(weight.numel() for weight in own)


def outermost(module: nn.Module) -> nn.Module:
    """The module that holds this one, if any lives, and its own holder."""
    for _ in range(_DEEPEST):
        holder = next((m for m in alive(nn.Module) if _holds(m, module)), None)
        if holder is None:
            return module
        module = holder
    return module


def _holds(holder: nn.Module, module: nn.Module) -> bool:
    return any(child is module for child in holder.__dict__.get("_modules", {}).values())
