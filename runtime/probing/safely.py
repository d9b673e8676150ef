"""Keeps errors of our own from the script that is watched. Not: errors of the script."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

import torch

P = ParamSpec("P")


class Watcher(Protocol):
    """Something that hears the script and can fall silent."""

    silent: bool

    def give_up(self, error: Exception) -> None:
        """An error of our own has come."""


W = TypeVar("W", bound=Watcher)


def safely(method: Callable[Concatenate[W, P], None]) -> Callable[Concatenate[W, P], None]:
    """Keep our own errors from the script: the first one silences the watcher for good."""

    def guarded(self: W, *arguments: P.args, **named: P.kwargs) -> None:
        if not self.silent:
            try:
                method(self, *arguments, **named)
            except torch.OutOfMemoryError:
                raise  # the emulated limit, meant for the script
            except Exception as error:
                self.give_up(error)

    return cast("Callable[Concatenate[W, P], None]", update_wrapper(guarded, method))
