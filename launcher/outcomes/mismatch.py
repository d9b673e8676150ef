"""Whether what ran is what was asked for, by what a rank found on its live model. Not: why."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from autoconf_launch.core import Candidate, Failure, FailureKind, RankResult, Recompute

Checked: TypeAlias = tuple[tuple[str, str], ...]
"""Knobs that are compared, with the words that asked for them."""

_APPLIED = ("zero_stage", "data_parallel", "micro_batch", "accumulation", "recompute")
"""Fields of a layout that a rank finds on its live model; extras come beside them."""


def mismatch(
    result: RankResult, expected: Candidate | None, checked: Checked | None
) -> Failure | None:
    """What a rank ran instead of what was expected; None: just that, or it cannot tell."""
    if expected is not None and checked is not None:
        return _ignored(result, expected, checked)
    applied = result.applied
    if expected is None or (applied is None and not result.steps):
        return None
    if applied is None:
        detail = (
            "the script never applied its configuration; "
            "pass it to autoconf_launch.runtime.initialize"
        )
        return Failure(kind=FailureKind.NOT_APPLIED, detail=detail)
    ran = {name: getattr(applied, name) for name in _APPLIED} | dict(applied.extras)
    asked = {name: getattr(expected.layout, name) for name in _APPLIED} | dict(expected.extras)
    wrong = [
        f"{name} {_shown(ran[name]) if name in ran else 'left out'} instead of {_shown(value)}"
        for name, value in asked.items()
        if name not in ran or ran[name] != value
    ]
    if not wrong:
        return None
    return Failure(
        kind=FailureKind.NOT_APPLIED,
        detail=f"ran with {', '.join(wrong)}",
        ran_micro_batch=_smaller(ran, asked),
    )


def _ignored(result: RankResult, expected: Candidate, checked: Checked) -> Failure | None:
    """What a foreign script did otherwise than it was told; 0 is what a probe could not count."""
    if result.applied is None:
        return None
    found = {name: getattr(result.applied, name) for name, _ in checked}
    asked = {name: getattr(expected.layout, name) for name, _ in checked}
    wrong = [
        f"{name} {_shown(found[name])} instead of {_shown(asked[name])} (asked by {word})"
        for name, word in checked
        if _differs(name, found[name], asked[name])
    ]
    if not wrong:
        return None
    if result.caught is not None and result.caught.kind is FailureKind.OUT_OF_MEMORY:
        return result.caught  # and then went on with less
    detail = f"the script ran with {', '.join(wrong)}; {result.applied.description}"
    smaller = _smaller(found, asked)
    return Failure(kind=FailureKind.NOT_APPLIED, detail=detail, ran_micro_batch=smaller)


def _smaller(ran: Mapping[str, Any], asked: Mapping[str, Any]) -> int | None:
    """The micro-batch that ran, if it is smaller than asked; 0 was not counted."""
    micro: int = ran.get("micro_batch", 0)
    return micro if 0 < micro < asked["micro_batch"] else None


def _differs(name: str, found: object, asked: object) -> bool:
    """Whether a knob is seen to be another; a switch does not say how much it recomputes."""
    if found is None or (found == 0 and name != "zero_stage"):
        return False
    if name == "recompute":
        return (found is Recompute.NONE) != (asked is Recompute.NONE)
    return found != asked


def _shown(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
