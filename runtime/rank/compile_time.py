"""Tells the launcher how long this rank has compiled, so that no deadline counts that as hung.

Torch's own callbacks say it, which old versions lack. Not: what is compiled
(``locate/compiled``).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import torch

from autoconf_launch.core import RankTask, compile_sign, real_time

from .report import write_sign


class CompileTime:
    """Seconds of torch.compile in this process; writes them when it begins and when it ends."""

    def __init__(self, task: RankTask) -> None:
        self.autocast: torch.dtype | None = None
        """Format of autocast around the first call that was compiled under it."""
        self._task = task
        self._spent_s = 0.0
        self._since_s: float | None = None
        self._watches = False

    def watch(self) -> None:
        """Count from here on, if torch.compile is loaded; once."""
        callback: Any = sys.modules.get("torch._dynamo.callback")
        handler = getattr(callback, "callback_handler", None)
        if self._watches or handler is None:
            return
        with suppress(AttributeError):
            handler.register_end_callback(self._ends)
            handler.register_start_callback(self._begins)
            self._watches = True

    def _begins(self, *_: object) -> None:
        self.autocast = self.autocast or autocast_format()
        if self._since_s is None:
            self._since_s = real_time.time()
            self._write(str(self._since_s))

    def _ends(self, *_: object) -> None:
        if self._since_s is not None:
            self._spent_s += max(0.0, real_time.time() - self._since_s)
            self._since_s = None
            self._write("")

    def _write(self, since: str) -> None:
        with suppress(OSError):
            write_sign(self._task, compile_sign(os.getpid()), f"{self._spent_s} {since}")


def autocast_format() -> torch.dtype | None:
    """The format that autocast computes matrix products in here and now; None: it is off."""
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None
