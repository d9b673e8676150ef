"""One pipeline stage: the model's own forward pass, entered and left between its blocks.

What runs before the first own block works on zeros, whose result the received hidden state
replaces. After the last own block the pass ends by an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from autoconf_launch.core import ConfigError

from ..model import BlockList, ForeignBlock


class Stage(nn.Module):
    """A part of a model that passes hidden states on, or ends with the loss.

    ``index`` counts from 0; the rank that has stage 0 begins a pass.
    """

    def __init__(self, model: nn.Module, blocks: BlockList, *, index: int, count: int) -> None:
        super().__init__()
        self.model = model
        self.blocks = blocks
        self.index, self.count = index, count
        self.loss: Callable[[int], Tensor] | None = None
        """From a micro-batch's number to its loss; set by who trains, as is the next."""
        self.after_forward: Callable[[], None] = _nothing
        self.losses: dict[int, Tensor] = {}
        self.handover = Handover()
        self.stale: dict[str, Tensor] = {}
        """Copies of weights that an earlier stage trains, and that nothing here may need."""

    @property
    def is_last(self) -> bool:
        """True if it has the loss."""
        return self.index == self.count - 1

    def begin_at_first_block(self) -> Any:
        """Put what is received in front of the first block; to be called after all other hooks.

        Returns a handle that takes it away again.
        """
        if self.index == 0:
            return None
        first = self.blocks.pieces[0]
        return first.register_forward_pre_hook(self._enter, prepend=True, with_kwargs=True)

    def forward(self, received: Tensor, which: Tensor) -> Tensor:
        """The hidden state after the last own block, or the loss with one dimension."""
        assert self.loss is not None
        self.handover.received = received
        self.handover.entered = self.index == 0
        try:
            loss = self.loss(int(which))
        except Leave as leave:
            hidden = leave.hidden
        else:
            if not self.is_last:
                raise StageError("the loss was computed without all of its blocks")
            self.losses[int(which)] = loss.detach().float()
            hidden = loss.reshape(1).clone()  # FSDP's hooks want no view
        if not self.handover.entered:
            raise StageError("its blocks were not called")
        self.handover.received = None
        self.after_forward()
        return hidden

    def require_unused_copies(self) -> None:
        """After a backward pass.

        Raises:
            ConfigError: a weight got its gradient on another stage than the one that has it.
        """
        for name, weight in self.stale.items():
            if weight.grad is not None:
                raise StageError(f"{name} is used after its first blocks")

    def _enter(self, module: nn.Module, positional: Any, named: dict[str, Any]) -> Any:
        self.handover.entered = True
        received = self.handover.received
        if positional and isinstance(positional[0], Tensor):
            return (received, *positional[1:]), named
        first = next(name for name, value in named.items() if isinstance(value, Tensor))
        return positional, {**named, first: received}


class StageError(ConfigError):
    """Says ``why`` a model cannot run in stages, as a clause."""

    def __init__(self, why: str) -> None:
        super().__init__(f"parallelism.pipeline is above 1, but {why}; set it to 1.")
        self.why = why


class Handover:
    """What a stage received, and whether the pass is past the start of its first block."""

    def __init__(self) -> None:
        self.received: Tensor | None = None
        self.entered = False


class Leave(BaseException):
    """Ends a stage's forward pass; not an Exception, which a loss function may catch."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class EarlierBlock(ForeignBlock):
    """Passes its input on; a model may take the first item, as of a block that gives a tuple."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        plain = (str, int, float, bool, type(None))
        self.__dict__ |= {n: v for n, v in block.__dict__.items() if isinstance(v, plain)}

    def forward(self, *positional: Any, **named: Any) -> Any:
        """The hidden state."""
        return _first_tensor(positional, named).as_subclass(_Passed)


class LaterBlock(EarlierBlock):
    """Takes the hidden state away to the next stage."""

    def forward(self, *positional: Any, **named: Any) -> Any:
        """Leave the forward pass."""
        raise Leave(_first_tensor(positional, named))


class _Passed(Tensor):
    """A hidden state before the first own block, which replaces it."""

    def __getitem__(self, index: Any) -> Any:
        return self if type(index) is int and index == 0 else super().__getitem__(index)


class NoEmbedding(nn.Module):
    """Gives zeros in the shape of an embedding that the first stage has."""

    def __init__(self, embedding: nn.Embedding, name: str, handover: Handover) -> None:
        super().__init__()
        self._width, self._name, self._handover = embedding.embedding_dim, name, handover
        self._dtype = embedding.weight.dtype

    def forward(self, numbers: Tensor, *positional: Any, **named: Any) -> Tensor:
        """Zeros."""
        if self._handover.entered:
            raise StageError(f"{self._name} is used after its first blocks")
        shape = (*numbers.shape, self._width)
        return torch.zeros(shape, dtype=self._dtype, device=numbers.device)


class RunsLater(nn.Module):
    """Holds the place of what the last stage has."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def forward(self, *positional: Any, **named: Any) -> Any:
        """Must not be called."""
        raise StageError(f"{self._name} is used before its last blocks")


def _nothing() -> None:
    """Watch no pass."""


def _first_tensor(positional: Any, named: dict[str, Any]) -> Tensor:
    values = (*positional, *named.values())
    found = next((value for value in values if isinstance(value, Tensor)), None)
    if found is None:
        raise StageError("its blocks take no tensor")
    return found
