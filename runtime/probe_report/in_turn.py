"""A probed rank's place in a ring of launches that compute in turn. Not: the ring (``turns``)."""

from __future__ import annotations

from autoconf_launch.core import RankTask

from ..observe import Timeline
from ..rank import Turns


class InTurn:
    """Takes part from the end of the first step on, where the launch has others beside it.

    To be told of steps by the process that speaks for the rank, and by nobody else.
    """

    def __init__(self, task: RankTask, rank: int, timeline: Timeline) -> None:
        self._task = task
        self._rank = rank
        self._timeline = timeline
        self._turns: Turns | None = None

    def wait(self) -> None:
        """After a step: let the others compute; the next one's time begins with its turn."""
        if self._task.next_folder is None:
            return
        if self._turns is not None and not self._turns.ends_with(self._timeline.steps):
            return
        self._timeline.settle()
        if self._turns is None:
            self._turns = Turns(self._task, self._rank)
            self._turns.begin()
        else:
            self._turns.hand_on()
            self._turns.wait()
        self._timeline.begin()

    def end(self) -> None:
        """After the last step; returns when the others are done, too."""
        if self._turns is not None:
            self._turns.end()
