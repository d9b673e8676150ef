"""A rank's work besides its steps: evaluations, checkpoints, the time after the last step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from autoconf_launch.core import (
    Aside,
    Asides,
    Failure,
    FailureKind,
    RankResult,
    RankTask,
    WentOn,
    encode,
    real_time,
    unfinished_sign,
)

from ..rank import shown_json, write_sign
from .training_data import TrainingData


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
        """True if there was no evaluation or no checkpoint."""
        return not (self._evaluations and self._checkpoints)

    def on_evaluation(self) -> None:
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

    def on_save(self, size_bytes: int) -> None:
        """Tensors were saved."""
        self._saved_bytes += size_bytes
        self._saving = False
        if self.went_on:
            self.under_way = None

    def on_resume(self) -> None:
        """The training goes on."""
        self.under_way = None
        self._saving = self._failing = False

    def on_end(self) -> None:
        """Note that the script ended by itself."""
        self.on_resume()
        self.went_on = WentOn.EPOCH_END if self.went_on else WentOn.END

    def step(self) -> None:
        """An optimizer step has ended."""
        self.on_resume()
        self._before.clear()

    def judge(self, failure: Failure, steps: int) -> Failure | None:
        """The failure with its place; None where the steps were made and it is none of the soak's.

        Nobody knows whether a script can go on where its data ends early: after the steps only a
        lack of memory counts, and what fails in the evaluation or the checkpoint itself.
        """
        blamed = failure.kind is FailureKind.OUT_OF_MEMORY or self._saving or self._failing
        if self.went_on is None or blamed:
            return self.locate(failure, steps)
        self._broke = failure.detail
        self._broke_in = None if StopIteration.__name__ in failure.detail else self.under_way
        self.on_resume()
        return None

    def locate(self, failure: Failure, steps: int) -> Failure:
        """A failure with the place where it happened, where that is none of the training's."""
        if self.under_way is None:
            return failure
        at = "in" if self._saving else "in or after"
        place = f"{at} the {self.under_way.value} that followed optimizer step {steps}"
        return replace(failure, detail=f"{failure.detail} ({place})")

    def summary(self, before_steps: tuple[int, ...], *, longest_batch: bool = False) -> Asides:
        """Evaluations and checkpoints so far; the arguments as in :class:`Asides`."""
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


class Pauses(Protocol):
    """Keeps them out of the steps' time."""

    left_out: list[int]
    """Numbers of steps with a pause before them that their time excludes."""

    pause: Any
    """Mark of the end of what was done since the last step; None: nothing was."""

    def on_pause(self) -> None:
        """A part of an evaluation or of a checkpoint has just passed."""

    def on_resume(self) -> None:
        """The training goes on."""


_EVERY_S = 1.0


class Unfinished:
    """A rank's report during a soak, as asides can take longer than allowed.

    Written once a second at most, and whenever something else is under way.
    """

    def __init__(self, task: RankTask, rank: int) -> None:
        self._task, self._sign = task, unfinished_sign(rank)
        self._due_s = 0.0
        self._under_way: Aside | None = None

    def note(
        self,
        under_way: Aside | None,
        result: Callable[[], RankResult | None],
        *,
        now: bool = False,
    ) -> None:
        """Write what ``result`` says, if it is time, something else is under way, or ``now``."""
        if not now and under_way is self._under_way and real_time.monotonic() < self._due_s:
            return
        if (said := result()) is None:
            return
        with suppress(OSError):
            write_sign(self._task, self._sign, shown_json(encode(said)))
        self._under_way = under_way
        self._due_s = real_time.monotonic() + _EVERY_S


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
        """True if the last step was given the longest batch, by the maker of the steps."""
        self._watch = AsideWatch()
        self._pauses = pauses
        self._so_far = so_far
        self._unfinished = Unfinished(task, rank) if task.soak else None

    @property
    def went_on(self) -> bool:
        """True if the steps were made and the script goes on."""
        return self._watch.went_on is not None

    def on_evaluation(self) -> None:
        """The model was called without gradients, in evaluation mode."""
        self._watch.on_evaluation()
        self._pauses.on_pause()
        self.note()

    def fails(self) -> None:
        """Note that the call raised, if there was one."""
        self._watch.fails()

    def saves(self) -> None:
        self._watch.saves()
        self.note()

    def on_save(self, size_bytes: int) -> None:
        self._watch.on_save(size_bytes)
        self._pauses.on_pause()
        self.note()

    def on_resume(self) -> None:
        """The training goes on after what was done between its steps, if anything was."""
        if self._pauses.pause is not None:
            self._watch.on_resume()
            self._pauses.on_resume()

    def on_step(self, *, paused: bool) -> None:
        """An optimizer step has ended, before which there was a pause or not."""
        if paused:
            self._watch.step()
        if self.data is not None:
            self.data.on_step()

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

    def on_end(self) -> None:
        """Note that the script ended by itself."""
        self._watch.on_end()

    def judge(self, failure: Failure, steps: int) -> Failure | None:
        return self._watch.judge(failure, steps)

    def summary(self) -> Asides:
        """Evaluations and checkpoints so far."""
        drawn = self.data is not None and self.data.gave_longest
        longest = self.took_longest or drawn
        seen = self._watch.summary(tuple(self._pauses.left_out), longest_batch=longest)
        return replace(seen, epoch_batches=self.data.epoch_batches) if self.data else seen

    def note(self, *, now: bool = False) -> None:
        """Write down in a soak what the rank has to say by now, if it is time or ``now``."""
        if self._unfinished is not None:
            self._unfinished.note(self._watch.under_way, self._so_far, now=now)
