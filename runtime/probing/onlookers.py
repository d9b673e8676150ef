"""Processes that train beside the one that reports, as Hogwild's do. Not: ranks of their own.

Whoever waits for all of them would wait for trainings that nobody ends.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from ..report import leave

_POLL_S = 0.2


def leave_after(result: Path) -> None:
    """End this process soon after the one that reports has left its result."""
    threading.Thread(target=_wait, args=(result,), daemon=True).start()


def _wait(result: Path) -> None:
    while not result.exists():
        time.sleep(_POLL_S)
    leave(0)
