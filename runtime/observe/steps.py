"""The optimizer steps that end a training step, and the samples that went into it.

A call of ``Optimizer.step`` is a boundary only after a backward pass: nested optimizers, several
of them in a row and one call per group of weights make one step. Of optimizers that take turns
(a GAN) the largest optimizer sets the pace, also if it comes later.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from enum import Enum

_MOST_SIZES = 4096
_PATIENCE = 16
"""Steps of other optimizers after which an idle optimizer is given up."""


class Meaning(Enum):
    """Meaning of a call of ``Optimizer.step``."""

    INSIDE = "inside"
    """Part of a step that ends elsewhere."""
    BOUNDARY = "boundary"
    """The end of a training step."""
    RESTART = "restart"
    """From here another optimizer sets the pace; steps count from 1 again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Micro-batches of one training step; 0 samples if nothing could be counted."""

    micro_batch: int
    accumulation: int

    @property
    def samples(self) -> int:
        return self.micro_batch * self.accumulation


class StepCounter:
    """Receives forward and backward passes, loaded batches and optimizer steps, in order."""

    def __init__(self, asked: int | None = None) -> None:
        """``asked``: the micro-batch that the launch asks for; None if it is not known."""
        self._asked = asked
        self._pace: weakref.ref[object] | None = None
        self._pace_size = 0
        self._others = 0
        self._backward_seen = False
        self.draw_size: int | None = None
        """Samples that the loader of the last batch puts into one; None if not known."""
        self._sizes: list[int] = []
        """Samples of each batch since the first draw of the step that made the last draw."""
        self._restart()

    def _restart(self) -> None:
        self.forwards_in_step = 0
        """Forward passes that were seen for the last step of any optimizer, or since it."""
        self._backwards = self._samples = self._draws = self._most_draws = 0
        self._spent = True
        self._same: tuple[object, ...] = ()
        self._made = Made(micro_batch=0, accumulation=1)

    @property
    def has_begun(self) -> bool:
        """True if a pass of the next step was seen since the last one."""
        return not self._spent

    def forward(self, samples: int) -> None:
        """A forward pass of the trained model outside of any backward pass."""
        if self._spent:
            self._begin()
        self.forwards_in_step += 1
        self._samples = samples

    def backward(self) -> int:
        """An outermost backward pass begins; its number in the step."""
        if self._spent:
            self._begin()
        self._backward_seen = True
        self._backwards += 1
        return self._backwards

    def draw(self, batch_size: int | None) -> None:
        self._draws += 1
        self.draw_size = batch_size
        if self._draws == 1:
            self._sizes.clear()
        if batch_size and len(self._sizes) < _MOST_SIZES:
            self._sizes.append(batch_size)

    def on_skip(self) -> None:
        """A scaler left the update out: its gradients belong to no step."""
        self._spent = True
        self._draws = 0

    def step_of_pacer(self, optimizer: object) -> Made | None:
        """Contents of the step that ends here, if this optimizer sets the pace.

        None: it is another one, or ends nothing; then :meth:`step` decides.
        """
        if self._spent or self._pace is None or self._pace() is not optimizer:
            return None
        if not (self._backwards if self._backward_seen else self.forwards_in_step):
            return None
        self._spent = True
        self._boundary()
        return self._made

    def step(self, optimizer: object, size: int) -> Meaning:
        """An optimizer with ``size`` weights has stepped."""
        ready = self._backwards if self._backward_seen else self.forwards_in_step
        if self._spent or not ready:
            return Meaning.INSIDE
        self._spent = True
        pace = self._pace() if self._pace else None
        if optimizer is pace:
            return self._boundary()
        replaced = pace is None and size == self._pace_size
        if self._pace is None or replaced:
            self._set_pace(optimizer, size)
            return self._boundary()
        self._others += 1
        if pace is not None and size <= self._pace_size and self._others <= _PATIENCE:
            return Meaning.INSIDE
        self._set_pace(optimizer, size)
        self._restart()
        return Meaning.RESTART

    def last_step(self) -> Made:
        """Contents of the step that has just ended."""
        return self._made

    def _boundary(self) -> Meaning:
        self._others = 0
        seen = self.forwards_in_step, self._backwards, self._samples
        same = (*seen, self._draws, self.draw_size, len(self._sizes))
        if same != self._same:
            self._same = same
            self._most_draws = max(self._most_draws, self._draws)
            self._made = self._count()
        self._draws = 0
        return Meaning.BOUNDARY

    def _count(self) -> Made:
        """Forward and backward passes pair up; a loader's batches bound them if it has any.

        So two passes over one batch (real and generated, say) are not two micro-batches. Rows
        beyond the size of a batch that has its own pass are views or frames, not more samples.
        """
        if not self.forwards_in_step:
            size = self.draw_size or 0
            return Made(micro_batch=size, accumulation=max(1, self._most_draws))
        pairs = self.forwards_in_step
        if self._backward_seen:
            pairs = min(pairs, self._backwards)
        passes = pairs
        size = self.draw_size or 0
        drawn = self._most_draws * size
        if drawn and self._samples:
            widened = self._samples > size and passes >= self._most_draws
            most = self._most_draws if widened else max(1, round(drawn / self._samples))
            pairs = min(pairs, most)
        is_asked = self._asked == self._samples
        was_drawn = self._asked in self._sizes and (self._asked or 0) < self._samples
        if is_asked or (drawn == pairs * self._samples and not was_drawn):
            return Made(micro_batch=self._samples, accumulation=max(1, pairs))
        return self._loader_batch(passes) or Made(
            micro_batch=self._samples, accumulation=max(1, pairs)
        )

    def _loader_batch(self, passes: int) -> Made | None:
        """The batch as the loader drew it, for a model whose rows are graphs, views or frames.

        None if several loaders drew different batches, or one drew single samples that may be
        whole batches without a request for that.
        """
        sizes = Counter(self._sizes)
        size = self._asked if self._asked in sizes else next(iter(sizes), 0)
        if not size or (size != self._asked and (len(sizes) > 1 or size == 1)):
            return None
        return Made(micro_batch=size, accumulation=max(1, min(sizes[size], passes)))

    def _set_pace(self, optimizer: object, size: int) -> None:
        self._pace = weakref.ref(optimizer)
        self._pace_size = size
        self._others = 0

    def _begin(self) -> None:
        self._spent = False
        self.forwards_in_step = self._backwards = self._samples = 0
