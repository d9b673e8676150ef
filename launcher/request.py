"""One command line as a value. Not: its parsing (flags), nor what is done with it (commands)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What the user asked for. Times are in seconds; None leaves a choice to us.

    Attributes:
        processes: ranks on this machine: GPUs, or processes on a machine without any.
        script: path, module name or program, as ``kind`` says.
        overrides: keys of the autotuning section that were given as flags.
    """

    script: str
    script_args: tuple[str, ...] = ()
    kind: Literal["script", "module", "program"] = "script"
    processes: int | None = None
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    local_rank_argument: bool = True
    autotuning: Literal["tune", "run"] | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    fresh: bool = False
    allow_global_batch_change: bool = False
    memory_limit_bytes: int | None = None
    trial_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    backend: str = "local"
    quiet: bool = False
    log_level: str = "info"
    argv: tuple[str, ...] = ()
