"""What a launcher and a probe tell each other beside the rank's task and result. Not: either side.

One environment variable starts a probe. Whatever happens to it leaves a small file below the
trial's folder, named after the attempt, so that a silent launch can be explained.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from .rank import RankTask

PROBE_VARIABLE = "AUTOCONF_LAUNCH_PROBE"
"""Holds a :class:`RankTask` as ``RankTask.to_variable`` writes it."""
SIGNS_FOLDER = "probe"


class Sign(str, Enum):
    """How far the probe came in any process of a launch."""

    INJECTED = "injected"
    """A Python of the launch read our ``sitecustomize``."""
    ARMED = "armed"
    """One of them imported torch, and the probe's hooks stand."""
    BROKEN = "broken"
    """The probe could not be loaded or failed; the file says why."""
    STOP = "stop"
    """Holds the number of the optimizer step after which all ranks end."""
    HOLLOW = "hollow"
    """Set by the launcher: weights are to be fake from their making on."""
    NOT_FAKE = "not_fake"
    """Why a first forward pass could not be gone through on fake tensors."""
    OUT_OF_MEMORY = "out_of_memory"
    """The script ran out of memory before its first backward pass was over."""


def unfinished_sign(rank: int) -> str:
    """Name of what replaces in a soak the result of a rank that has not ended."""
    return f"unfinished_rank{rank}"


def sign_path(task: RankTask, name: str) -> Path:
    """The file of a sign, or of any other ``name`` that belongs to this attempt."""
    return Path(task.folder, SIGNS_FOLDER, f"{name}.{task.attempt}")
