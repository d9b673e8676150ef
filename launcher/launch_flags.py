"""A request back to the flags of a plain launch. Not: their parsing (flags)."""

from __future__ import annotations

from .request import LaunchRequest


def launch_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Flags that start the same ranks without tuning."""
    flags: list[str] = []
    if request.processes is not None:
        flags += ["--num_gpus", str(request.processes)]
    if request.master_addr != LaunchRequest.__dataclass_fields__["master_addr"].default:
        flags += ["--master_addr", request.master_addr]
    if request.master_port is not None:
        flags += ["--master_port", str(request.master_port)]
    if request.kind != "script":
        flags.append("--module" if request.kind == "module" else "--no_python")
    if not request.local_rank_argument:
        flags.append("--no_local_rank")
    return tuple(flags)
