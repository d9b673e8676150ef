"""What one rank does beside its steps: evaluations, checkpoints, and what follows its last step.

Not: how they are heard of, nor which calls are steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from autoconf_launch.core import Failure, RankResult, RankTask
from autoconf_launch.core.asides import Asides, WentOn

from .aside_watch import AsideWatch
from .training_data import TrainingData
from .unfinished import Unfinished


class Pauses(Protocol):
    """Keeps them out of the steps' time."""

    left_out: list[int]
    """Numbers of steps with a pause before them that their time leaves out."""

    pause: Any
    """Mark of the end of what was done since the last step; None: nothing was."""

    def paused(self) -> None:
        """A part of an evaluation or of a checkpoint has just passed."""

    def resumed(self) -> None:
        """The training goes on."""


class Beside:
    """Is told of it in order; ``data`` is what a soak does with loaders."""

    def __init__(
        self,
        task: RankTask,
        rank: int,
        pauses: Pauses,
        so_far: Callable[[], RankResult | None],
    ) -> None:
        """``so_far`` is what the rank has to say by now; None: another speaks for it."""
        self.data: TrainingData | None = None
        self.took_longest = False
        """Whether the last step was given the longest batch, by whoever makes the steps."""
        self._watch = AsideWatch()
        self._pauses = pauses
        self._so_far = so_far
        self._unfinished = Unfinished(task, rank) if task.soak else None

    @property
    def went_on(self) -> bool:
        """Whether the steps were made and the script goes on."""
        return self._watch.went_on is not None

    def evaluated(self) -> None:
        """The model was called without gradients, in evaluation mode."""
        self._watch.evaluated()
        self._pauses.paused()
        self.note()

    def fails(self) -> None:
        """Note that the call raised, if there was one."""
        self._watch.fails()

    def saves(self) -> None:
        """See SaveListener."""
        self._watch.saves()
        self.note()

    def saved(self, size_bytes: int) -> None:
        """See SaveListener."""
        self._watch.saved(size_bytes)
        self._pauses.paused()
        self.note()

    def resumed(self) -> None:
        """The training goes on after what was done between its steps, if anything was."""
        if self._pauses.pause is not None:
            self._watch.resumed()
            self._pauses.resumed()

    def stepped(self, *, paused: bool) -> None:
        """An optimizer step has ended, before which there was a pause or not."""
        if paused:
            self._watch.step()
        if self.data is not None:
            self.data.stepped()

    def goes_on(self, agreed: Callable[[bool], bool]) -> bool:
        """After the last step: whether the script goes on to what it does after an epoch.

        ``agreed`` makes what this rank wants the word of all.
        """
        data = self.data
        if not agreed(data is not None and data.can_end and self._watch.is_lacking):
            return False
        if data is not None:
            data.end()
        self._watch.went_on = WentOn.EPOCH
        self.note(now=True)
        return True

    def restart(self) -> None:
        """The steps so far were not those of the training."""
        self._watch = AsideWatch()
        if self.data is not None:
            self.data.restart()

    def ended(self) -> None:
        """Note that the script ended by itself."""
        self._watch.ended()

    def judged(self, failure: Failure, steps: int) -> Failure | None:
        """See :meth:`.aside_watch.AsideWatch.judged`."""
        return self._watch.judged(failure, steps)

    def seen(self) -> Asides:
        """All of it so far."""
        drawn = self.data is not None and self.data.gave_longest
        longest = self.took_longest or drawn
        seen = self._watch.seen(tuple(self._pauses.left_out), longest_batch=longest)
        return replace(seen, epoch_batches=self.data.epoch_batches) if self.data else seen

    def note(self, *, now: bool = False) -> None:
        """In a soak, write down what the rank has to say by now, if it is time or ``now``."""
        if self._unfinished is not None:
            self._unfinished.note(self._watch.under_way, self._so_far, now=now)
