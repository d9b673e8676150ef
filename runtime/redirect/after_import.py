"""Changes modules once their import is done, if they ever are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import torch

from ..rank import is_device_lost

_Change: TypeAlias = Callable[[ModuleType], None]
P = ParamSpec("P")


def change_on_import(changes: Mapping[str, _Change]) -> None:
    """Change modules of these names when their import is done; at once if it is done."""
    sys.meta_path.insert(0, _Changes(changes))
    for name in changes.keys() & sys.modules.keys():
        _apply(changes[name], sys.modules[name])


class _Changes(MetaPathFinder):
    """Steps aside for the finder that finds a module, and changes it when its import is done."""

    def __init__(self, changes: Mapping[str, _Change]) -> None:
        self._changes = changes
        self._asks: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._changes or name in self._asks:
            return None
        self._asks.add(name)  # another one like us asks us in turn
        try:
            spec = self._find_by_others(name, path, target)
        finally:
            self._asks.discard(name)
        if spec is not None and spec.loader is not None:
            self._change_after(spec.loader)
        return spec

    def _find_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _change_after(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            _apply(self._changes[module.__name__], module)

        loader.exec_module = exec_module


def _apply(change: _Change, module: ModuleType) -> None:
    with suppress(Exception):  # another version: the module then does what it always does
        change(module)


class Watcher(Protocol):
    """An observer of the script that can be silenced."""

    silent: bool

    def give_up(self, error: Exception) -> None:
        """An error of our own has come."""


W = TypeVar("W", bound=Watcher)


def safely(method: Callable[Concatenate[W, P], None]) -> Callable[Concatenate[W, P], None]:
    """Keep our own errors from the script: the first one silences the watcher for good."""

    def run_guarded(self: W, *arguments: P.args, **named: P.kwargs) -> None:
        if not self.silent:
            try:
                method(self, *arguments, **named)
            except torch.OutOfMemoryError:
                raise  # the memory limit, meant for the script
            except Exception as error:
                if is_device_lost():  # by the script: its own next call would raise the same
                    raise error.with_traceback(None) from error.__cause__
                self.give_up(error)

    return cast("Callable[Concatenate[W, P], None]", update_wrapper(run_guarded, method))
