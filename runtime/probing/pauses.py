"""Which pauses between steps are left out of their time. Not: what a pause is.

A step's time goes from the end of the one before to its own end; an evaluation or a checkpoint
between them is left out, unless every step has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PauseRule:
    """Told of pauses and steps in order; marks are those of any clock."""

    def __init__(self, mark: Callable[[], Any]) -> None:
        self._mark = mark
        self.left_out: list[int] = []
        """Numbers of steps with a pause before them that their time leaves out."""
        self.pause: Any = None
        """Mark of the end of what was done since the last step; None: nothing was."""
        self._paused_before = False
        self._resumed = False

    def paused(self) -> None:
        """A part of an evaluation or of a checkpoint has just passed."""
        self.pause = self._mark()

    def drew(self) -> None:
        """A loader gave a batch: what an evaluation did with its results is over by now.

        To be told in a pause alone.
        """
        if not self._resumed:
            self.pause = self._mark()

    def resumed(self) -> None:
        """The training goes on: what a loader gives from here on is of the step."""
        self._resumed = True

    def start(self, since: Any, number: int) -> Any:
        """Where the time of the step that ends now begins: at ``since`` or after a pause."""
        left_out = self.pause is not None and not self._paused_before
        start = self.pause if left_out else since
        if left_out:
            self.left_out.append(number)
        self._paused_before = self.pause is not None
        self.forget_pause()
        return start

    def forget_pause(self) -> None:
        """There was none since the last step."""
        self.pause = None
        self._resumed = False
