"""Facts about running ranks for all engines: time to end, files that they leave, signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..plan import LaunchPlan, RankPlan

LINGER_S = 1.5
"""Time for the peers of a failed rank of a trial to write their reports."""

GRACE_S = 3.0
"""Time from SIGTERM to SIGKILL."""

OBEYS_WITHIN_S = 3.0
"""Time after the grace at which an agent is killed that did not end its ranks."""
LOG_LIMIT_BYTES = 64 << 20
"""Size limit of each of the two logs of a launch; half is kept from its beginning."""
_NAME = "deepspeed_allreduce_buffer"
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "RANK")
_FOLDER = Path("/dev/shm")


def shared_memory(rank: RankPlan) -> str | None:
    """Path of shared memory that this rank may leave; None if its launch has no rendezvous."""
    variables: Mapping[str, str] = dict(rank.environment)
    if any(name not in variables for name in _NEEDED):
        return None
    words = (variables[name] for name in _NEEDED)
    return str(_FOLDER / "_".join((_NAME, str(os.getuid()), *words)))


def remove_shared_memory(plan: LaunchPlan) -> None:
    """Remove shared memory of ranks that have ended."""
    for path in filter(None, map(shared_memory, plan.ranks)):
        with contextlib.suppress(OSError):
            Path(path).unlink()


def extension_caches(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Folders in which torch.utils.cpp_extension builds, with these variables."""
    if given := variables.get("TORCH_EXTENSIONS_DIR"):
        return (given,)
    cache = variables.get("XDG_CACHE_HOME") or Path(variables.get("HOME", "/"), ".cache")
    return (str(Path(cache, "torch_extensions")),)


@cache
def _wake_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def wake_on_signals() -> int:
    """A descriptor that becomes readable when a signal arrives."""
    read, write = _wake_pipe()
    with contextlib.suppress(ValueError):  # not the main thread: signals go there anyway
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before not in (-1, write):
            signal.set_wakeup_fd(before)
    return read


def wait_until_readable(poller: select.poll, timeout_s: float) -> None:
    """Return when something that is polled can be read, a signal came, or time is up."""
    wake = wake_on_signals()
    poller.register(wake, select.POLLIN)
    ready = poller.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1e3)
    if any(descriptor == wake for descriptor, _ in ready):
        os.read(wake, 4096)
