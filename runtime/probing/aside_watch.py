"""Follows what a script does between its steps, and says where it failed. Not: its time."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import Failure
from autoconf_launch.core.asides import Aside, Asides


class AsideWatch:
    """Told of evaluations, checkpoints and steps of one rank, in order."""

    def __init__(self) -> None:
        self._before: set[Aside] = set()
        self._evaluations = self._batches = self._checkpoints = self._saved_bytes = 0
        self.under_way: Aside | None = None
        self._saving = False

    def evaluated(self) -> None:
        """The model was called without gradients, in evaluation mode."""
        self._evaluations += self._begins(Aside.EVALUATION)
        self._batches += 1
        self._saving = False  # where the script went on after a save that failed

    def saves(self) -> None:
        """Tensors are about to be saved."""
        self._checkpoints += self._begins(Aside.CHECKPOINT)
        self._saving = True

    def saved(self, size_bytes: int) -> None:
        """They were."""
        self._saved_bytes += size_bytes
        self._saving = False

    def resumed(self) -> None:
        """The training goes on."""
        self.under_way = None
        self._saving = False

    def step(self) -> None:
        """An optimizer step has ended."""
        self.resumed()
        self._before.clear()

    def located(self, failure: Failure, steps: int) -> Failure:
        """A failure with the place where it happened, where that is none of the training's."""
        if self.under_way is None:
            return failure
        at = "in" if self._saving else "in or after"
        place = f"{at} the {self.under_way.value} that followed optimizer step {steps}"
        return replace(failure, detail=f"{failure.detail} ({place})")

    def seen(self, before_steps: tuple[int, ...]) -> Asides:
        """All of it so far; ``before_steps`` as in :class:`Asides`."""
        return Asides(
            evaluations=self._evaluations,
            evaluation_batches=self._batches,
            checkpoints=self._checkpoints,
            saved_bytes=self._saved_bytes,
            under_way=self.under_way,
            before_steps=before_steps,
        )

    def _begins(self, aside: Aside) -> bool:
        """Note it; whether it is the first of its kind since the last step."""
        is_first = aside not in self._before
        self._before.add(aside)
        self.under_way = aside
        return is_first
