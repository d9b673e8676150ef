"""Stops an external script at its first forward pass and reports the contents of that pass.

A fork of the process goes on to the backward pass with fake weights; if it cannot, the process
itself does, on the CPU with what the script has made. Neither lets an optimizer make a step with
real weights. Not: the probe of trials (``runtime/probe.py``).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from autoconf_launch.core import (
    FIRST_FORWARD_FILE,
    FirstForward,
    RankTask,
    Sign,
    encode,
    real_time,
    sign_path,
)

from ..locate import Hooks
from ..model import alive, run_on_cpu
from ..probe_report import Endings, environment_rank, exit_now
from ..rank import is_allocation_failure, leave, shown_json, write_whole
from ..redirect import Surroundings, change_on_import
from .bystanders import DevicePlaces, Surveyor
from .fakes import Answers, Fakes, make_hollow
from .forward_backward_trace import ForwardBackwardTrace, FrozenCalls

_FAKE_TIMEOUT_S = 120.0
_POLL_S = 0.01
_UNSEEN = 0.02
"""Share of the optimizers' weights that may belong to modules that nothing called."""
_MOST_CALLS = 64
"""Without a backward pass among them, after which there will be none."""
_CHECKS_FORMATS = "transformers.training_args"


class FirstForwardProbe:
    """Hears the first calls of modules, and never lets the script come to a step."""

    def __init__(self, task: RankTask) -> None:
        self._task = task
        self._process = os.getpid()
        self._hooks = Hooks(self)
        self._endings = Endings(self)
        self._surroundings = Surroundings(own=task.folder)
        self._pass: ForwardBackwardTrace | None = None
        self._fakes: Fakes | None = None
        self._why_real = ""
        self._calls = 0
        self._draws: list[int | None] = []
        self._over = False
        self._places = DevicePlaces()
        self._surveyor = Surveyor(self._places)
        self._frozen = FrozenCalls()

    def install(self) -> None:
        if environment_rank():
            return
        _compile_nothing()
        self._places.install()
        run_on_cpu(self._places.follow)
        change_on_import({_CHECKS_FORMATS: _allow_formats})
        if sign_path(self._task, Sign.HOLLOW.value).exists():
            self._fakes = Fakes()
            make_hollow(self._fakes)
        self._hooks.install()
        self._endings.install()
        watch_outer_calls(self, lambda: self._hooks.in_backward)
        register_optimizer_step_pre_hook(lambda *_: self._before_step())
        path = sign_path(self._task, Sign.ARMED.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def begins(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._over or os.getpid() != self._process:
            return
        if self._pass is None:
            if self._fakes is None:
                self._choose()
            else:
                self._answer()
            self._pass = ForwardBackwardTrace(lambda: self._hooks.in_backward, self._fakes)
        try:
            frozen = self._frozen.take([module])
            made = {key for costs in frozen for key in costs.storages.keys}
            self._surveyor.begins(module, (arguments, named), made)
            self._pass.begins(module, (arguments, named), self._draws, frozen)
        except Exception as error:
            self.on_failure(error)

    def on_return(self) -> None:
        self._calls += 1
        if self._pass and not self._over and self._calls >= _MOST_CALLS:
            self._conclude()

    def on_failure(self, error: BaseException) -> None:
        """Fakes end here, a real pass goes on to its end."""
        if self._fakes is not None and os.getpid() == self._process:
            self._give_up(error)

    def during_frozen(self, module: nn.Module) -> AbstractContextManager[object]:
        if self._over or os.getpid() != self._process:
            return nullcontext()
        return self._frozen.look(module)

    def backward_begins(self, tensors: Any) -> None:
        if self._pass is None or self._over or os.getpid() != self._process:
            return
        self._calls = 0
        if self._unseen_share() <= _UNSEEN:
            self._conclude(tensors)

    def on_step(self, optimizer: Optimizer) -> None:
        """See Listener."""

    def on_skip(self) -> None:
        """See Listener."""

    def drew(self, batch_size: int | None) -> None:
        self._draws.append(batch_size)
        self._frozen.next_batch()

    def thread_died(self, error: BaseException) -> None:
        """See EndListener."""

    def uncaught(self, error: BaseException) -> bool:
        self.on_end(error)
        return False

    def giving_up(self, error: BaseException | None, status: object) -> None:
        if error is not None:
            self.on_end(error)

    def on_end(self, error: BaseException | None) -> None:
        if os.getpid() != self._process or self._over:
            return
        if self._fakes is not None and self._pass is not None:
            self._give_up(error or RuntimeError("the script ended before a backward pass"))
        if error is not None and is_allocation_failure(error):
            sign_path(self._task, Sign.OUT_OF_MEMORY.value).touch()
        elif error is None and self._pass is not None:
            self._conclude()

    def _before_step(self) -> None:
        """An optimizer will change weights next; other processes handle their own optimizers."""
        if self._pass is not None and not self._over and os.getpid() == self._process:
            self._conclude()

    def _choose(self) -> None:
        """Have a fork try it with fakes; here that is what this process now is, or it failed."""
        child = os.fork()
        if child == 0:
            self._process = os.getpid()
            self._become_fake()
            return
        if self._wait_for(child) and self._path().exists():
            leave(0)
        with suppress(OSError):
            self._why_real = sign_path(self._task, Sign.NOT_FAKE.value).read_text()

    def _become_fake(self) -> None:
        """Make tensors fake; real ones use one thread, as OpenMP's others end in a fork."""
        torch.set_num_threads(1)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        self._fakes = Fakes()
        self._answer()

    def _answer(self) -> None:
        Answers(self._give_up).__enter__()  # type: ignore[no-untyped-call]

    def _wait_for(self, child: int) -> bool:
        give_up_s = real_time.monotonic() + _FAKE_TIMEOUT_S
        while real_time.monotonic() < give_up_s:
            with suppress(ChildProcessError):
                if os.waitpid(child, os.WNOHANG)[0]:
                    return True
                real_time.sleep(_POLL_S)
                continue
            return True  # the script waits for all children itself
        os.kill(child, signal.SIGKILL)
        self._why_real = f"it took longer than {_FAKE_TIMEOUT_S:.0f} s"
        return False

    def _give_up(self, error: BaseException) -> NoReturn:
        text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        with suppress(OSError):
            write_whole(sign_path(self._task, Sign.NOT_FAKE.value), text)
        exit_now(1)

    def _unseen_share(self) -> float:
        """Share of the trained weights that no called module has."""
        assert self._pass
        weights = {
            id(weight): weight.numel()
            for optimizer in _optimizers()
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        seen = sum(size for key, size in weights.items() if key in self._pass.weights)
        total = sum(weights.values())
        return 1.0 - seen / total if total and seen else 0.0

    def _conclude(self, tensors: Any = None) -> None:
        assert self._pass
        self._over = True
        try:
            found = self._description(self._pass, tensors)
            write_whole(self._path(), shown_json(encode(found)))
        except BaseException as error:
            if self._fakes is not None:
                self._give_up(error)
            if is_allocation_failure(error):
                sign_path(self._task, Sign.OUT_OF_MEMORY.value).touch()
            raise
        if self._fakes is not None:
            exit_now(0)
        leave(0)

    def _description(self, seen: ForwardBackwardTrace, tensors: Any) -> FirstForward:
        optimizers = _optimizers()
        notes: list[str] = [self._why_real and f"Not on fake tensors: {self._why_real}"]
        if tensors is not None:
            seen.backward(tensors)
        if tensors is not None and self._fakes is not None and optimizers:
            try:
                seen.step(optimizers)
            except Exception as error:
                notes.append(f"The optimizer's step was not tried: {error}")
        found = seen.describe(self._frozen.take(seen.roots))
        name = type(optimizers[0]).__name__ if optimizers else None
        return replace(
            found,
            optimizer=name,
            bystanders=self._surveyor.bystanders(seen.roots, seen.samples),
            left_behind=self._surroundings.new(),
            notes=(*filter(None, notes), *found.notes),
        )

    def _path(self) -> Path:
        return Path(self._task.folder, FIRST_FORWARD_FILE)


def watch_outer_calls(listener: FirstForwardProbe, in_backward: Callable[[], bool]) -> None:
    """Report outermost calls of modules from here on; calls in other threads pass by.

    Runs before every hook, so that the first call is seen whole.
    """
    original: Any = nn.Module.__call__
    thread, inside, is_aside = threading.get_ident(), False, False

    def call_aside(module: nn.Module, *arguments: Any, **named: Any) -> Any:
        """Call a module that trains nothing now; its parts are not observed separately."""
        nonlocal is_aside
        if is_aside or next(module.parameters(), None) is None:
            return original(module, *arguments, **named)
        is_aside = True
        try:
            with listener.during_frozen(module):
                return original(module, *arguments, **named)
        finally:
            is_aside = False

    @wraps(original)
    def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
        nonlocal inside
        if inside or in_backward() or threading.get_ident() != thread:
            return original(module, *arguments, **named)
        if not torch.is_grad_enabled() or not _trains(module):
            return call_aside(module, *arguments, **named)
        listener.begins(module, arguments, named)
        inside = True
        try:
            result = original(module, *arguments, **named)
        except Exception as error:
            listener.on_failure(error)
            raise
        finally:
            inside = False
        listener.on_return()
        return result

    nn.Module.__call__ = call  # type: ignore[method-assign]


def _trains(module: nn.Module) -> bool:
    return any(weight.requires_grad for weight in module.parameters())


def _optimizers() -> list[Optimizer]:
    """Live optimizers that hold weights themselves, not wrappers around them."""
    own = (
        one
        for one in alive(Optimizer)
        if not isinstance(getattr(one, "optimizer", None), Optimizer)
    )
    return [one for one in own if getattr(one, "param_groups", None)]


def _allow_formats(module: ModuleType) -> None:
    """Let a Trainer take bf16 and TF32, which it refuses if it sees no GPU."""
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        if hasattr(module, name):
            setattr(module, name, lambda: True)


def _compile_nothing() -> None:
    """Compiling takes longer than all the rest, and changes no size that is looked at."""

    def as_it_is(model: Any = None, *_: Any, **__: Any) -> Any:
        return (lambda function: function) if model is None else model

    torch.compile = as_it_is
    nn.Module.compile = lambda *_, **__: None  # type: ignore[method-assign]
