"""Shared memory that ranks leave behind for ever, by its exact name. Not: files that they leave.

DeepSpeed's CPU communication makes 69 MB for each rank and never removes it. Its name holds the
user, the rendezvous and the rank (``csrc/cpu/comm/shm.cpp`` of deepspeed 0.19.8), so that what a
launch with a port of its own made is known from its plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..plan import LaunchPlan, RankPlan

_NAME = "deepspeed_allreduce_buffer"
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "RANK")
_FOLDER = Path("/dev/shm")


def shared_memory(rank: RankPlan) -> str | None:
    """Path of what this rank may leave behind; None where its launch has no rendezvous."""
    variables: Mapping[str, str] = dict(rank.environment)
    if any(name not in variables for name in _NEEDED):
        return None
    words = (variables[name] for name in _NEEDED)
    return str(_FOLDER / "_".join((_NAME, str(os.getuid()), *words)))


def remove_shared_memory(plan: LaunchPlan) -> None:
    """Remove what the ranks of a launch left; they must have ended."""
    for path in filter(None, map(shared_memory, plan.ranks)):
        with suppress(OSError):
            Path(path).unlink()
