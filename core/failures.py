"""Why a trial gave no measurement, as a value. Not: how the outcome is decided (launcher)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FailureKind(str, Enum):
    """Every way a trial can end without a measurement."""

    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    BAD_CONFIG = "bad_config"
    NOT_APPLIED = "not_applied"
    """The strategy that was asked for is not the one that ran."""
    NO_STEPS = "no_steps"
    NAN = "nan"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, in one sentence, and the child's own last lines.

    What stands for a byte that is not text (a lone surrogate) is escaped: no file takes it.
    ``ran_micro_batch`` is the largest that ran, where it was smaller than asked.
    """

    kind: FailureKind
    detail: str
    log_tail: tuple[str, ...] = ()
    ran_micro_batch: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _encodable(self.detail))
        object.__setattr__(self, "log_tail", tuple(map(_encodable, self.log_tail)))


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
