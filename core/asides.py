"""What a script does beside its optimizer steps: evaluations, checkpoints. Not: the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Aside(str, Enum):
    """A kind of it, by the word that people use."""

    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


class WentOn(str, Enum):
    """How far a script went after the steps that were asked of it."""

    EPOCH = "epoch"
    """To what it does after an epoch, up to its next training step or until nobody waited."""
    END = "end"
    """To its own end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asides:
    """What a probe saw between the steps of one rank, or of a whole launch.

    Attributes:
        evaluations: pauses between steps in which the model was called without gradients, in
            evaluation mode.
        evaluation_batches: these calls.
        checkpoints: pauses in which tensors were saved.
        saved_bytes: that they took; ranks together.
        under_way: what had begun last and had not ended; None: the next step had begun.
        before_steps: numbers of steps whose time leaves out a pause before them.
        longest_batch: the last step took the longest batch that was seen.
        went_on: after the last step; None: it ended there.
        broke: what it failed with after them, outside of calls of the model and of saves; ""
            where it did not.
        epoch_batches: micro-batches of one pass over the training's data on a rank; None: not
            known.
        broke_in: what had begun last and was not seen to end then; None: nothing, or the data's
            own end broke it.
    """

    evaluations: int = 0
    evaluation_batches: int = 0
    checkpoints: int = 0
    saved_bytes: int = 0
    under_way: Aside | None = None
    before_steps: tuple[int, ...] = ()
    longest_batch: bool = False
    went_on: WentOn | None = None
    broke: str = ""
    broke_in: Aside | None = None
    epoch_batches: int | None = None


def of_all_ranks(asides: Sequence[Asides]) -> Asides | None:
    """What the ranks of one launch did together; None where none of them says anything."""
    if not asides:
        return None
    broken = next((rank for rank in asides if rank.broke), Asides())
    return Asides(
        evaluations=max(rank.evaluations for rank in asides),
        evaluation_batches=max(rank.evaluation_batches for rank in asides),
        checkpoints=max(rank.checkpoints for rank in asides),
        saved_bytes=sum(rank.saved_bytes for rank in asides),
        under_way=next((rank.under_way for rank in asides if rank.under_way), None),
        before_steps=tuple(sorted({step for rank in asides for step in rank.before_steps})),
        longest_batch=all(rank.longest_batch for rank in asides),
        went_on=_of_all({rank.went_on for rank in asides}),
        broke=broken.broke,
        broke_in=broken.broke_in,
        epoch_batches=min((r.epoch_batches for r in asides if r.epoch_batches), default=None),
    )


def _of_all(ranks: set[WentOn | None]) -> WentOn | None:
    """To the end only where all went there."""
    return next((way for way in (WentOn.EPOCH, WentOn.END) if way in ranks), None)
