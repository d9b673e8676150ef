"""Context parallelism: ranks share out the tokens of each sample. Not: the attention over them.

A micro-batch is cut when the loss is asked for; models that can take them get positions, shifted
labels and the number of tokens, so that their own loss is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from autoconf_launch.core import ConfigError, Precision, ResolvedConfig

from ..model import Batch, LossFunction, SharedByCopies, evaluation_mode, map_tensors, tensors
from .base import Applied
from .context_attention import SharedAttention, active_chunks, join_transformers
from .mesh import DeviceMeshes
from .sequence_chunks import SequenceChunks

_IGNORED = -100
"""As a label: this token does not count."""
_COMPARED_TOKENS = 8
"""Tokens of each chunk where the loss is compared with that of whole sequences."""
_POSITIONS = "position_ids"


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Let each loss work on this rank's tokens and attention on those of all context ranks."""
    mesh = meshes.context
    if mesh is None:
        return applied
    model, chunks = applied.module, SequenceChunks(mesh)
    join_transformers()
    positions = _Positions(chunks)
    for module in {model: None, **dict.fromkeys(_takers(model))}:
        module.register_forward_pre_hook(positions.give, with_kwargs=True)
    tolerance = 1e-4 if config.precision is Precision.FP32 else 1e-2
    attention = SharedAttention(model, chunks)
    sharing = _Sharing(model, attention, tolerance)

    @contextmanager
    def around(last: bool) -> Iterator[None]:
        with applied.around(last), attention.on():
            yield

    def check(batch: Batch) -> None:
        applied.check_batch(batch)
        sharing.check(batch)

    return replace(applied, around=around, check_batch=check, wrap_loss=sharing.wrap)


def context_degree(module: nn.Module) -> int:
    """Ranks that were seen to attend together over sequences that they share out."""
    hooks = (hook for part in module.modules() for hook in part._forward_pre_hooks.values())
    owners = (getattr(hook, "__self__", None) for hook in hooks)
    found = (owner.chunks for owner in owners if isinstance(owner, _Positions))
    return max((chunks.ranks for chunks in found if chunks.gathers), default=1)


class _Positions(SharedByCopies):
    """Tells a model whose forward takes ``position_ids`` where its tokens stand."""

    def __init__(self, chunks: SequenceChunks) -> None:
        self.chunks = chunks

    def give(self, module: nn.Module, positional: Any, named: dict[str, Any]) -> Any:
        """A forward pre-hook."""
        if active_chunks() is None or not _takes(module, _POSITIONS):
            return None
        given = inspect.signature(module.forward).bind_partial(*positional, **named).arguments
        if given.get(_POSITIONS) is not None:
            return None
        first = next(tensor for tensor in tensors((positional, named)) if tensor.dim() > 1)
        at = self.chunks.positions(first.shape[1], first.device)
        return positional, {**named, _POSITIONS: at}


class _Sharing:
    """A loss over whole sequences made one of this rank's tokens, whose mean over ranks it is."""

    def __init__(self, model: nn.Module, attention: SharedAttention, tolerance: float) -> None:
        self._model = model
        self._attention = attention
        self._chunks = attention.chunks
        self._tolerance = tolerance
        self._shifts = _shifts_labels(model)
        self._is_compared = False

    def wrap(self, loss: LossFunction) -> LossFunction:
        """The loss of this rank's part of a micro-batch."""

        def of_part(model: nn.Module, batch: Batch) -> Tensor:
            if not self._is_compared:
                self._is_compared = True
                self._compare(loss, model, batch)
            with self._attention.on():
                return loss(model, self._part(batch))

        return of_part

    def check(self, batch: Batch) -> None:
        """Refuse what context ranks cannot share out.

        Raises:
            ConfigError: sequences cannot be cut equally, or have padding or other such marks.
        """
        tokens, ranks = _length(batch), self._chunks.ranks
        asked = f"parallelism.context is {ranks}, but"
        if tokens % (2 * ranks):
            raise ConfigError(
                f"{asked} {ranks} ranks cannot share {tokens} tokens equally, each a chunk from "
                f"the head and one from the tail; use sequences of a multiple of {2 * ranks}."
            )
        named = batch if isinstance(batch, Mapping) else {}
        mask, positions = named.get("attention_mask"), named.get(_POSITIONS)
        if mask is not None and (mask.dim() != 2 or not bool(mask.all())):
            raise ConfigError(
                f"{asked} attention_mask masks tokens: padding cannot be shared out. Pack or cut "
                "samples to one length, or set parallelism.context to 1."
            )
        if positions is not None and bool((positions.diff(dim=-1) != 1).any()):
            raise ConfigError(
                f"{asked} position_ids begin anew within a sample: packed sequences cannot be "
                "shared out. Train on one sequence a sample, or set parallelism.context to 1."
            )
        if not self._counts(batch) and any(_has_ignored(one, tokens) for one in tensors(batch)):
            raise ConfigError(
                f"{asked} some labels are {_IGNORED}, which the mean loss of "
                f"{type(self._model).__name__} counts on each rank alone; train on all tokens, or "
                "set parallelism.context to 1."
            )

    def _counts(self, batch: Batch) -> bool:
        return self._shifts and isinstance(batch, dict) and isinstance(batch.get("labels"), Tensor)

    def _part(self, batch: Batch) -> Batch:
        tokens = _length(batch)
        if self._counts(batch):
            shifted = F.pad(batch["labels"], (0, 1), value=_IGNORED)[..., 1:]
            counted = (
                shifted != _IGNORED
            ).sum() / self._chunks.ranks  # the mean over ranks follows
            batch = {**batch, "shift_labels": shifted, "num_items_in_batch": counted}

        def cut(tensor: Tensor) -> Tensor:
            is_sequence = tensor.dim() > 1 and tensor.shape[1] == tokens
            return self._chunks.part(tensor) if is_sequence else tensor

        return map_tensors(batch, cut)

    def _compare(self, loss: LossFunction, model: nn.Module, batch: Batch) -> None:
        """Whether ranks that share out short sequences have the loss that each has of the whole.

        Raises:
            ConfigError: they have not.
        """
        tokens, most = _length(batch), 2 * self._chunks.ranks * _COMPARED_TOKENS
        short = map_tensors(
            batch, lambda t: t[:, :most] if t.dim() > 1 and t.shape[1] == tokens else t
        )
        with evaluation_mode(model), torch.no_grad(), torch.compiler.set_stance("force_eager"):
            with self._attention.off():
                whole = loss(model, short).float()
            with self._attention.on():
                part = loss(model, self._part(short)).float()
        dist.all_reduce(part, group=self._chunks.group)
        shared = part / self._chunks.ranks
        self._require_equal(float(whole), float(shared))

    def _require_equal(self, whole: float, shared: float) -> None:
        asked, kind = f"parallelism.context is {self._chunks.ranks}", type(self._model).__name__
        if not self._chunks.gathers:
            raise ConfigError(
                f"{asked}, but {kind} has no attention that context ranks share; let it call "
                "autoconf_launch.runtime.scaled_dot_product_attention, or set it to 1."
            )
        if abs(whole - shared) > self._tolerance * max(abs(whole), 1.0):
            raise ConfigError(
                f"{asked}, but the loss of {kind} is {shared:.6g} over context ranks and "
                f"{whole:.6g} over whole sequences: its forward must take position_ids where "
                "places count, labels must be shifted by the script, and the loss must be the "
                "mean over tokens. Set it to 1 otherwise."
            )


def _length(batch: Batch) -> int:
    for tensor in tensors(batch):
        if tensor.dim() > 1:
            return tensor.shape[1]
    raise ConfigError(
        "parallelism.context shares out tokens, but no tensor of the batch has the shape "
        "(samples, tokens); set it to 1."
    )


def _has_ignored(tensor: Tensor, tokens: int) -> bool:
    is_labels = tensor.dtype == torch.int64 and tensor.dim() > 1 and tensor.shape[1] == tokens
    return is_labels and bool((tensor == _IGNORED).any())


def _takers(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules that take positions."""
    if _takes(model, _POSITIONS):
        yield model
        return
    for child in model.children():
        yield from _takers(child)


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _shifts_labels(model: nn.Module) -> bool:
    """Whether it has a loss function of transformers that takes labels as we shift them."""
    function = getattr(model, "loss_function", None)
    parameters = inspect.signature(model.forward).parameters.values()
    spreads = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    return (
        callable(function) and spreads and "shift_labels" in inspect.signature(function).parameters
    )
