"""Phases of a verification run besides its steps: evaluations, checkpoints, ends of an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

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

from .model import tensors_in
from .observe import PauseRule
from .rank import shown_json, write_sign

_EVERY_S = 1.0
_DEEP = 5
_AHEAD = 2
"""Last steps that draw the longest batch: a loader may be a step ahead of the training."""
_LEFT_OVER = 2
"""Steps that a script may still make from what it had drawn before its data ended."""


class Beside:
    """Evaluations, checkpoints and steps of one rank, in the order in which they are reported."""

    def __init__(
        self, task: RankTask, rank: int, pauses: PauseRule, so_far: Callable[[], RankResult | None]
    ) -> None:
        """``so_far`` is the rank's report by now; None: another process reports for it."""
        self.data: TrainingData | None = None
        """Loaders of a soak."""
        self.took_longest = False
        """True if the last step was given the longest batch, by the maker of the steps."""
        self._task, self._sign = task, unfinished_sign(rank)
        self._pauses, self._so_far = pauses, so_far
        self._due_s = 0.0
        self._noted: Aside | None = None
        self._forget()

    def _forget(self) -> None:
        self._seen = Asides()
        self._since_step: set[Aside] = set()
        self._saving = self._failing = False

    @property
    def went_on(self) -> bool:
        """True if the steps were made and the script goes on."""
        return self._seen.went_on is not None

    def on_evaluation(self) -> None:
        """The model was called without gradients, in evaluation mode."""
        begins, batches = self._begin(Aside.EVALUATION), self._seen.evaluation_batches
        self._note(evaluations=self._seen.evaluations + begins, evaluation_batches=batches + 1)
        self._saving = self._failing = False  # the script went on after a save that failed
        self._pauses.on_pause()
        self.write()

    def fails(self) -> None:
        """Note that the call of the model raised, if there was one."""
        self._failing = self._seen.under_way is Aside.EVALUATION

    def saves(self) -> None:
        """Tensors are about to be saved."""
        begins = self._begin(Aside.CHECKPOINT)
        self._note(checkpoints=self._seen.checkpoints + begins)
        self._saving = True
        self.write()

    def on_save(self, size_bytes: int) -> None:
        self._note(saved_bytes=self._seen.saved_bytes + size_bytes)
        self._saving = False
        if self.went_on:
            self._note(under_way=None)
        self._pauses.on_pause()
        self.write()

    def on_resume(self) -> None:
        """The training goes on after the work between its steps, if any."""
        if self._pauses.pause is not None:
            self._end_aside()
            self._pauses.on_resume()

    def on_step(self, *, paused: bool) -> None:
        """An optimizer step has ended, before which there was a pause or not."""
        if paused:
            self._end_aside()
            self._since_step.clear()
        if self.data is not None:
            self.data.on_step()

    def goes_on(self, agreed: Callable[[bool], bool]) -> bool:
        """After the last step: True if the script goes on to its actions after an epoch.

        ``agreed`` turns this rank's wish into a decision of all ranks.
        """
        data, seen = self.data, self._seen
        is_lacking = not (seen.evaluations and seen.checkpoints)
        if not agreed(data is not None and data.can_end and is_lacking):
            return False
        if data is not None:
            data.end()
        self._note(went_on=WentOn.EPOCH)
        self.write(now=True)
        return True

    def restart(self) -> None:
        """The steps so far did not belong to the training."""
        self._forget()
        if self.data is not None:
            self.data.restart()

    def on_end(self) -> None:
        self._end_aside()
        self._note(went_on=WentOn.EPOCH_END if self.went_on else WentOn.END)

    def judge(self, failure: Failure, steps: int) -> Failure | None:
        """The failure with its place; None if the steps were made and it is none of the soak's.

        It is unknown whether a script can go on if its data ends early: after the steps only a
        lack of memory counts, and failures in the evaluation or the checkpoint itself.
        """
        under_way = self._seen.under_way
        counts = failure.kind is FailureKind.OUT_OF_MEMORY or self._saving or self._failing
        if self.went_on and not counts:
            is_end_of_data = StopIteration.__name__ in failure.detail
            self._note(broke=failure.detail, broke_in=None if is_end_of_data else under_way)
            self._end_aside()
            return None
        if under_way is None:
            return failure
        at = "in" if self._saving else "in or after"
        place = f"{at} the {under_way.value} that followed optimizer step {steps}"
        return replace(failure, detail=f"{failure.detail} ({place})")

    def summary(self) -> Asides:
        drawn = self.data is not None and self.data.gave_longest
        return replace(
            self._seen,
            before_steps=tuple(self._pauses.left_out),
            longest_batch=self.took_longest or drawn,
        )

    def write(self, *, now: bool = False) -> None:
        """In a soak, write the rank's report by now: its asides can take longer than allowed.

        Once a second at most, and if something else is under way or ``now``.
        """
        is_new = now or self._seen.under_way is not self._noted
        if not self._task.soak or not (is_new or real_time.monotonic() >= self._due_s):
            return
        if (result := self._so_far()) is None:
            return
        with suppress(OSError):
            write_sign(self._task, self._sign, shown_json(encode(result)))
        self._noted = self._seen.under_way
        self._due_s = real_time.monotonic() + _EVERY_S

    def _begin(self, aside: Aside) -> bool:
        """True if it is the first of its kind since the last step."""
        is_first = aside not in self._since_step
        self._since_step.add(aside)
        self._note(under_way=aside)
        return is_first

    def _end_aside(self) -> None:
        self._note(under_way=None)
        self._saving = self._failing = False

    def _note(self, **changes: Any) -> None:
        self._seen = replace(self._seen, **changes)


@dataclass(frozen=True, slots=True)
class _Kept:
    values: Tensor
    device: torch.device


class Longest:
    """Keeps the batch whose tensors have the most elements."""

    def __init__(self) -> None:
        self._batch: Any = None
        self._elements = 0

    @property
    def is_known(self) -> bool:
        """True if there is one; a batch without tensors has no length."""
        return self._elements > 0

    def see(self, batch: Any) -> None:
        """Keep a copy of the longest batch; a batch that cannot be copied is not kept."""
        elements = _elements(batch)
        if elements > self._elements:
            with suppress(Exception):  # somebody's own type of batch
                self._batch, self._elements = _change_leaves(batch, Tensor, _keep), elements

    def instead_of(self, batch: Any) -> Any:
        """The longest, if this one is shorter; a copy, so that it can be asked for again."""
        self.see(batch)
        if _elements(batch) >= self._elements:
            return batch
        return _change_leaves(self._batch, _Kept, _give)


def _elements(batch: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_in(batch))


def _keep(tensor: Tensor) -> _Kept:
    return _Kept(tensor.detach().to("cpu", copy=True), tensor.device)


def _give(kept: _Kept) -> Tensor:
    return kept.values.to(kept.device, copy=True)


def _change_leaves(
    value: Any, leaf: type[Any], change: Callable[[Any], Any], deep: int = _DEEP
) -> Any:
    def change_inside(item: Any) -> Any:
        return _change_leaves(item, leaf, change, deep - 1)

    if isinstance(value, leaf):
        return change(value)
    if not deep or isinstance(value, (_Kept, Tensor)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change_inside, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(change_inside, value))
    made = copy.copy(value)
    if isinstance(value, Mapping):
        made.update((key, change_inside(item)) for key, item in value.items())
    elif hasattr(value, "__dict__") and not callable(value):
        vars(made).update((name, change_inside(item)) for name, item in vars(value).items())
    return made


class TrainingData:
    """Receives draws, passes and steps of one rank, in order."""

    def __init__(self, steps: int, *, repeats: bool = True) -> None:
        """``steps`` of the soak; ``repeats``: the last of them take the longest batch."""
        self._steps = steps
        self._repeats = repeats
        self._longest: dict[int, tuple[object, Longest]] = {}
        """By the identity of the loader's sampler, which lives as long as the loader."""
        self.restart()

    def restart(self) -> None:
        self.is_over = False
        """True if the steps were made and the script goes on."""
        self.is_new_epoch = False
        """True if it trains on batches drawn since its data ended."""
        self._new: WeakSet[Any] = WeakSet()
        """Iterators that were drawn from since the last pass: their purpose is not yet known."""
        self._training: WeakSet[Any] = WeakSet()
        self._in_step: WeakSet[Any] = WeakSet()
        """Loaders that the training has drawn from since its last step."""
        self._last: WeakSet[Any] = WeakSet()
        """Loaders that the training drew from for its last step."""
        self._ending: WeakSet[Any] = WeakSet()
        self._has_ended = self._last_ended = self._trained = self._gave = False
        self._made = self._drawn = self._step_drawn = self._left_over = 0
        self._draws: list[int] = []
        """Batches that were drawn for each step."""

    @property
    def can_end(self) -> bool:
        """True if the last step was made from a loader."""
        return bool(self._last) or self._last_ended

    @property
    def gave_longest(self) -> bool:
        """True if the last step was made from the longest batches.

        Known only if at most a step's batches are drawn ahead, judged by the first step.
        """
        if not self._gave or len(self._draws) < _AHEAD:
            return False
        return 0 < self._draws[0] <= _AHEAD * min(self._draws[-_AHEAD:])

    def draw(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The iterator's next batch, or the longest one so far.

        Raises:
            StopIteration: it is at its end, or the training is.
        """
        if iterator in self._ending:
            self._ending.discard(iterator)
            self._has_ended = True
            raise StopIteration
        try:
            batch = original(iterator)
        except StopIteration:
            self._has_ended = self._has_ended or iterator in self._training
            raise
        self._new.add(iterator)
        self._drawn += 1
        try:
            return self._exchange_batch(iterator, batch) if self._repeats else batch
        except Exception:  # somebody's own type of batch
            self._gave = False
            return batch

    def trains(self) -> bool:
        """A pass of the training begins; whether it is of a new epoch after the end."""
        self.is_new_epoch = self.is_over and self._has_ended and bool(self._new)
        self._trained = True
        self._training |= self._new
        self._in_step |= self._new
        self._step_drawn += self._drawn
        self._forget()
        return self.is_new_epoch

    def evaluates(self) -> None:
        """A model is called without gradients: the last drawn batch was for that."""
        self._forget()

    def on_step(self) -> None:
        self._made += 1
        self._draws.append(self._step_drawn)
        self._step_drawn = 0
        self._last, self._in_step = self._in_step, WeakSet()
        self._last_ended, self._has_ended = self._has_ended, False
        self._trained = False

    def end(self) -> None:
        """The steps were made: the loaders of the last one give nothing more, once."""
        self.is_over = True
        self._ending |= self._last
        self._has_ended = self._last_ended and not self._last

    def is_left_over(self) -> bool:
        """True if a step after the end may be of batches that were drawn before."""
        self._left_over += self._trained
        self._trained = False
        return self._left_over <= _LEFT_OVER

    def _forget(self) -> None:
        self._new.clear()
        self._drawn = 0

    def _exchange_batch(self, iterator: Any, batch: Any) -> Any:
        sampler = iterator._index_sampler
        _, longest = self._longest.setdefault(id(sampler), (sampler, Longest()))
        if self.is_over or self._made < self._steps - _AHEAD or iterator not in self._training:
            longest.see(batch)
            return batch
        given = longest.instead_of(batch)
        self._gave = longest.is_known
        return given
