"""Follows what a script does between its steps, and says where it failed. Not: its time."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.core.asides import Aside, Asides, WentOn


class AsideWatch:
    """Told of evaluations, checkpoints and steps of one rank, in order."""

    def __init__(self) -> None:
        self._before: set[Aside] = set()
        self._evaluations = self._batches = self._checkpoints = self._saved_bytes = 0
        self.under_way: Aside | None = None
        self.went_on: WentOn | None = None
        """Beyond the steps asked for."""
        self._saving = self._failing = False
        self._broke = ""
        self._broke_in: Aside | None = None

    @property
    def is_lacking(self) -> bool:
        """Whether there was no evaluation or no checkpoint."""
        return not (self._evaluations and self._checkpoints)

    def evaluated(self) -> None:
        """The model was called without gradients, in evaluation mode."""
        self._evaluations += self._begins(Aside.EVALUATION)
        self._batches += 1
        self._saving = self._failing = False  # where the script went on after a save that failed

    def fails(self) -> None:
        """Note that the call of the model raised."""
        self._failing = self.under_way is Aside.EVALUATION

    def saves(self) -> None:
        """Tensors are about to be saved."""
        self._checkpoints += self._begins(Aside.CHECKPOINT)
        self._saving = True

    def saved(self, size_bytes: int) -> None:
        """They were."""
        self._saved_bytes += size_bytes
        self._saving = False
        if self.went_on:
            self.under_way = None

    def resumed(self) -> None:
        """The training goes on."""
        self.under_way = None
        self._saving = self._failing = False

    def ended(self) -> None:
        """Note that the script ended by itself."""
        self.resumed()
        self.went_on = WentOn.END

    def step(self) -> None:
        """An optimizer step has ended."""
        self.resumed()
        self._before.clear()

    def judged(self, failure: Failure, steps: int) -> Failure | None:
        """The failure with its place; None where the steps were made and it is none of the soak's.

        Nobody knows whether a script can go on where its data ends early: after the steps only a
        lack of memory counts, and what fails in the evaluation or the checkpoint itself.
        """
        blamed = failure.kind is FailureKind.OUT_OF_MEMORY or self._saving or self._failing
        if self.went_on is None or blamed:
            return self.located(failure, steps)
        self._broke = failure.detail
        self._broke_in = None if StopIteration.__name__ in failure.detail else self.under_way
        self.resumed()
        return None

    def located(self, failure: Failure, steps: int) -> Failure:
        """A failure with the place where it happened, where that is none of the training's."""
        if self.under_way is None:
            return failure
        at = "in" if self._saving else "in or after"
        place = f"{at} the {self.under_way.value} that followed optimizer step {steps}"
        return replace(failure, detail=f"{failure.detail} ({place})")

    def seen(self, before_steps: tuple[int, ...], *, longest_batch: bool = False) -> Asides:
        """All of it so far; the arguments as in :class:`Asides`."""
        return Asides(
            evaluations=self._evaluations,
            evaluation_batches=self._batches,
            checkpoints=self._checkpoints,
            saved_bytes=self._saved_bytes,
            under_way=self.under_way,
            before_steps=before_steps,
            longest_batch=longest_batch,
            went_on=self.went_on,
            broke=self._broke,
            broke_in=self._broke_in,
        )

    def _begins(self, aside: Aside) -> bool:
        """Note it; whether it is the first of its kind since the last step."""
        is_first = aside not in self._before
        self._before.add(aside)
        self.under_way = aside
        return is_first
