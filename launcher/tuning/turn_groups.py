"""Launches that take turns, as the controller sees them: who holds them up, who left, who lacks.

Not: the turns, which the ranks pass to each other (``runtime/turns``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.space import FailedTrial, Outcome, Trial
from autoconf_launch.core import Failure, FailureKind

from ..events import Note
from .running import Running


class TurnGroups:
    """What was seen of launches side by side, and what it means for those that come.

    A launch that fails in its group may fail because of the others there: its port, a file, memory
    that was thought to be enough. So it is launched again alone. Does it come through then,
    launches follow each other from there on.
    """

    def __init__(self) -> None:
        self._fell_out: dict[str, Failure] = {}
        self.are_broken = False
        """Whether what fails side by side does not fail alone."""

    def fell_out(self, trial: Trial, failure: Failure) -> tuple[Trial, Note]:
        """It failed in turn; what is launched instead, and a sentence on it."""
        self._fell_out[trial.name] = failure
        said = f"{failure.kind.value}: {failure.detail}" if failure.detail else failure.kind.value
        text = f"{trial.name} failed beside the others ({said}); launching it again alone."
        return replace(trial, turn=None), Note(text=text, warning=True)

    def came_back(self, trial: Trial, outcome: Outcome) -> Note | None:
        """It has ended alone; a sentence where the group is to blame."""
        if self._fell_out.pop(trial.name, None) is None or isinstance(outcome, FailedTrial):
            return None
        self.are_broken = True
        return _from_here_on(f"{trial.name} runs alone but not beside others")

    def left(self, trial: Trial) -> tuple[Trial, Note]:
        """It has a result, but did not wait for the others; what its result is of."""
        self.are_broken = True
        return replace(trial, turn=None), _from_here_on(f"{trial.name} does not wait for others")


def members(running: Sequence[Running]) -> tuple[Running, ...]:
    """Those in turn that nobody has told to end; there is one group at a time."""
    return tuple(one for one in running if one.trial.turn is not None and not one.cancelled)


def is_waiting(one: Running, running: Sequence[Running]) -> bool:
    """Whether another launch of its group has the turn: the one that has had the fewest turns.

    The first of them, as the turn goes round in the order of submission.
    """
    group = members(running)
    return one in group and one is not min(group, key=lambda other: other.turns)


def share_progress(running: Sequence[Running]) -> None:
    """A step of any of them is a sign of life of the whole group."""
    group = members(running)
    latest_s = max((one.progress_s for one in group), default=0.0)
    for one in group:
        one.progress_s = latest_s


def _from_here_on(why: str) -> Note:
    text = (
        f"{why}, so the contenders are launched one after the other from here on; their "
        "intervals are wider."
    )
    return Note(text=text, warning=True)


def preempted_by(trial: Trial) -> Failure:
    """Why launches end whose group has lost one."""
    detail = f"{trial.name}, with which it took turns, has ended"
    return Failure(kind=FailureKind.PREEMPTED, detail=detail)
