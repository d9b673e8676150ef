"""A live model as stages of a pipeline, each with some of its blocks.

Embeddings and modules before the blocks belong to the first stage, modules after them to the last
one. A stage runs the model's own forward pass, entered and left between its blocks: operations
before its first block work on zeros, whose result the received hidden state replaces; after its
last block the pass ends by an exception.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from autoconf_launch.core import ConfigError, DegreeLimits, Precision, even_pipeline_split

from .model import BlockList, ForeignBlock, evaluation_mode, find_block_lists, shared_names

_TOLERANCES = {Precision.FP32: 1e-4}
_ROUNDED = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The parts of a model that each stage has.

    Attributes:
        blocks: the list that is cut.
        counts: blocks of each stage.
        after: outermost modules with weights behind the blocks.
        tied: names of the first and the last stage for one weight that both have.
    """

    blocks: BlockList
    counts: tuple[int, ...]
    after: tuple[str, ...] = ()
    tied: tuple[str, str] | None = None

    def stage_of(self, name: str) -> int:
        """The stage that has a weight or buffer."""
        if key := self._block_of(name):
            number = self.blocks.keys.index(key)
            return next(s for s, end in enumerate(accumulate(self.counts)) if number < end)
        return len(self.counts) - 1 if self._is_after(name) else 0

    def has_outside(self, name: str) -> bool:
        """True if a module is neither of a block nor behind them."""
        return not (name == self.blocks.name or self._block_of(name) or self._is_after(name))

    def _block_of(self, name: str) -> str:
        """Key of the block with a module or weight; empty if it is in none."""
        prefix = _join(self.blocks.name, "")
        key = name.removeprefix(prefix).partition(".")[0]
        return key if name.startswith(prefix) and key in self.blocks.keys else ""

    def _is_after(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self.after)


def blocks_to_cut(model: nn.Module) -> BlockList:
    """The only list of repeated blocks.

    Raises:
        StageError: there is none, or there are several.
    """
    lists = find_block_lists(model)
    if len(lists) == 1:
        return lists[0]
    what = f"{len(lists)} lists of repeated blocks ({', '.join(one.name for one in lists)})"
    if not lists:
        what = "no repeated blocks (a ModuleList of at least two modules of one class)"
    raise StageError(f"the model has {what} and stages share out one list")


def find_places(model: nn.Module, counts: tuple[int, ...]) -> Places:
    """If the stages have what.

    Raises:
        StageError: stages would have a weight in common that is not of embedding and head.
    """
    blocks = blocks_to_cut(model)
    places = Places(blocks=blocks, counts=counts, after=tuple(_behind(model, blocks)))
    tied = None
    for names in shared_names(model):
        stages = {name: places.stage_of(name) for name in names}
        if len(set(stages.values())) == 1:
            continue
        first, last = min(stages, key=stages.__getitem__), max(stages, key=stages.__getitem__)
        owner = model.get_submodule(first.rpartition(".")[0])
        is_embedding = isinstance(owner, nn.Embedding) and first.endswith("weight")
        if tied or len(names) > 2 or not is_embedding or not places._is_after(last):
            raise StageError(
                f"{' and '.join(names)} share one weight that stages would separate, which only "
                "an embedding and a head may"
            )
        tied = (first, last)
    return Places(blocks=blocks, counts=counts, after=places.after, tied=tied)


def make_stages(
    model: nn.Module, places: Places, own: tuple[int, ...], *, in_place: bool = True
) -> tuple[Stage, ...]:
    """Stages of a rank; ``in_place`` the model itself becomes the first of them.

    Blocks are shared with the model; other stages get their own modules around them.
    """
    models = [_twin(model, places.blocks) for _ in own]
    if in_place:
        models[0] = model
    return tuple(_stage(one, places, index) for one, index in zip(models, own, strict=True))


def _stage(model: nn.Module, places: Places, index: int) -> Stage:
    end = sum(places.counts[: index + 1])
    start = end - places.counts[index]
    container = model.get_submodule(places.blocks.name)
    for number, key in enumerate(places.blocks.keys):
        block = container._modules[key]
        assert block is not None
        if number < start:
            container._modules[key] = EarlierBlock(block)
        elif number >= end:
            container._modules[key] = LaterBlock(block)
    blocks = next(one for one in find_block_lists(model) if one.name == places.blocks.name)
    stage = Stage(model, blocks, index=index, count=len(places.counts))
    if index:
        _leave_to_first(stage, places)
    if not stage.is_last:
        for name in places.after:
            _put(model, name, RunsLater(name))
    return stage


def _leave_to_first(stage: Stage, places: Places) -> None:
    """Embeddings give zeros; other weights before the blocks are copies that do not train."""
    for name, module in list(stage.model.named_modules(remove_duplicate=False)):
        if not places.has_outside(name):
            continue
        if isinstance(module, nn.Embedding):
            _put(stage.model, name, NoEmbedding(module, name, stage.handover))
            continue
        for key, weight in list(module._parameters.items()):
            if weight is not None:
                del module._parameters[key]
                stale = weight.detach().requires_grad_(weight.requires_grad)
                setattr(module, key, stale)
                stage.stale[_join(name, key)] = stale


def _behind(model: nn.Module, blocks: BlockList) -> Iterator[str]:
    seen, last = False, ""
    container = model.get_submodule(blocks.name)
    for name, module in model.named_modules(remove_duplicate=False):
        seen = seen or module is container
        inside = name.startswith(_join(blocks.name, "")) or module is container
        if not seen or inside or (last and name.startswith(f"{last}.")):
            continue
        has_weights = any(weight is not None for weight in module._parameters.values())
        if has_weights and not isinstance(module, nn.Embedding):
            last = name
            yield name


def _twin(module: nn.Module, blocks: BlockList) -> nn.Module:
    """A model of the same weights and blocks, so that either can be cut by itself."""
    twins: dict[int, nn.Module] = {id(block): block for block in blocks.pieces}

    def twin_of(one: nn.Module) -> nn.Module:
        if id(one) not in twins:
            twins[id(one)] = twin = copy.copy(one)
            for key, value in one.__dict__.items():
                if isinstance(value, dict):
                    twin.__dict__[key] = copy.copy(value)
            twin._modules = {k: m and twin_of(m) for k, m in one._modules.items()}
        return twins[id(one)]

    return twin_of(module)


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, key = name.rpartition(".")
    model.get_submodule(parent)._modules[key] = module


def _join(*names: str) -> str:
    return ".".join(names) if names[0] else names[-1]


def stage_split(
    model: nn.Module, loss: Callable[[nn.Module], Tensor], precision: Precision
) -> DegreeLimits:
    """Limits of the stages, or the reason why this model has no pipeline.

    Losses and gradients of two stages are compared with the whole model's, in evaluation
    mode; gradients are gone afterwards.

    Args:
        model: left as it is.
        loss: of any micro-batch.
        precision: of the pass, by which small differences count as none.
    """
    try:
        blocks = len(blocks_to_cut(model).keys)
        with evaluation_mode(model):
            _compare(model, loss, _TOLERANCES.get(precision, _ROUNDED))
    except StageError as error:
        return DegreeLimits(key="pipeline", missing=f"{error.why}; set it to 1.")
    except Exception as error:
        text = (str(error) or type(error).__name__).splitlines()[0]
        failed = f"{type(model).__name__} fails in two stages ({text}); set it to 1."
        return DegreeLimits(key="pipeline", missing=failed)
    finally:
        model.zero_grad(set_to_none=True)
    return DegreeLimits(key="pipeline", most=("repeated blocks", blocks))


def _compare(model: nn.Module, loss: Callable[[nn.Module], Tensor], tolerance: float) -> None:
    model.zero_grad(set_to_none=True)
    whole = loss(model)
    torch.autograd.backward(whole)
    expected = torch.stack((whole.detach().float(), _norm(model)))
    model.zero_grad(set_to_none=True)
    counts = even_pipeline_split(len(blocks_to_cut(model).keys), 2)
    stages = make_stages(model, find_places(model, counts), (0, 1), in_place=False)
    found = torch.stack((_staged_loss(stages, loss), _norm(model)))
    for what, one, other in zip(("loss", "gradient"), found, expected, strict=True):
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance):
            raise StageError(
                f"the {what} of two stages is {float(one):.6g} where the whole model's is "
                f"{float(other):.6g}, as more than one hidden state goes from block to block"
            )


def _staged_loss(stages: tuple[Stage, ...], loss: Callable[[nn.Module], Tensor]) -> Tensor:
    first, last = stages
    number = torch.tensor([0])
    for stage in stages:
        stage.loss = lambda _, model=stage.model: loss(model)
    entry = last.begin_at_first_block()
    try:
        hidden = first(number, number)
        received = hidden.detach().requires_grad_(hidden.requires_grad)
        ended: Tensor = last(received, number)
        torch.autograd.backward(ended)
        if hidden.requires_grad:
            hidden.backward(received.grad)
        last.require_unused_copies()
    finally:
        entry.remove()
    return ended.detach().float().reshape(())


def _norm(model: nn.Module) -> Tensor:
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return torch.nn.utils.get_total_norm(gradients).float()


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
        self.after_forward: Callable[[], object] = tuple
        self.losses: dict[int, Tensor] = {}
        self.handover = Handover()
        self.stale: dict[str, Tensor] = {}
        """Copies of weights that an earlier stage trains, and that nothing here may need."""

    @property
    def is_last(self) -> bool:
        return self.index == self.count - 1

    def begin_at_first_block(self) -> Any:
        """Put the received tensors in front of the first block; call it after all other hooks.

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
            ConfigError: a weight got its gradient on a stage that does not own it.
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
    """Input of a stage, and whether the pass is past the start of its first block."""

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
        return _first_tensor(positional, named).as_subclass(_Passed)


class LaterBlock(EarlierBlock):
    """Takes the hidden state away to the next stage."""

    def forward(self, *positional: Any, **named: Any) -> Any:
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
        if self._handover.entered:
            raise StageError(f"{self._name} is used after its first blocks")
        shape = (*numbers.shape, self._width)
        return torch.zeros(shape, dtype=self._dtype, device=numbers.device)


class RunsLater(nn.Module):
    """A placeholder for modules of the last stage."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def forward(self, *positional: Any, **named: Any) -> Any:
        raise StageError(f"{self._name} is used before its last blocks")


def _first_tensor(positional: Any, named: dict[str, Any]) -> Tensor:
    values = (*positional, *named.values())
    found = next((value for value in values if isinstance(value, Tensor)), None)
    if found is None:
        raise StageError("its blocks take no tensor")
    return found
