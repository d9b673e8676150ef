"""Context parallelism: ranks share out the tokens of each sample.

A micro-batch is cut when the loss is computed; models that can take them get positions, shifted
labels and the number of tokens, so that their own loss is right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.hooks import RemovableHandle

from autoconf_launch.core import DegreeLimits, Precision, ResolvedConfig

from ..model import (
    Batch,
    LossFunction,
    SharedByCopies,
    TrainingParts,
    evaluation_mode,
    first_samples,
    map_tensors,
    tensors,
    to_device,
)
from .base import Applied, DeviceMeshes
from .context_attention import (
    SequenceChunks,
    SharedAttention,
    SharingError,
    active_chunks,
    is_shareable,
    join_transformers,
)

_IGNORED = -100
"""As a label: this token does not count."""
_COMPARED_TOKENS = 8
"""Tokens of each chunk if the loss is compared with the loss of whole sequences."""
_POSITIONS = "position_ids"


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Let each loss work on this rank's tokens, and attention on all context ranks' tokens."""
    if meshes.context is None:
        return applied
    model = applied.module
    chunks = SequenceChunks.along(meshes.context)
    averaged = tuple(mesh for mesh in (meshes.context, meshes.pipeline) if mesh is not None)
    sharing = _Sharing(model, chunks, config.precision, averaged)
    sharing.give_positions()

    @contextmanager
    def around(last: bool) -> Iterator[None]:
        with applied.around(last), sharing.attention.on():
            yield

    return replace(
        applied,
        around=around,
        checks=(*applied.checks, sharing.check),
        rehearse=sharing.compare,
        wrap_loss=sharing.wrap,
    )


def context_degree(module: nn.Module) -> int:
    """Ranks that were seen to attend together over sequences that they share out."""
    hooks = (hook for part in module.modules() for hook in part._forward_pre_hooks.values())
    owners = (getattr(hook, "__self__", None) for hook in hooks)
    found = (owner.chunks for owner in owners if isinstance(owner, _Positions))
    return max((chunks.ranks for chunks in found if chunks.is_used), default=1)


def context_split(
    model: nn.Module, recipe: TrainingParts, batch: Batch, device: torch.device
) -> DegreeLimits:
    """Limits of the context degree, or the reason why these samples cannot be shared out.

    Tried in one process: the loss of sequences whose halves change places, but not positions.
    """
    if not is_shareable(model):
        return DegreeLimits(key="context", missing=_no_attention(model))
    sharing = _Sharing(model, SequenceChunks(every=(1, 0)), recipe.config.precision)
    hooks = sharing.give_positions()
    try:
        sharing.check(batch)
        loss = sharing.wrap(recipe.loss)
        with evaluation_mode(model), torch.no_grad():
            sharing.compare(first_samples(batch, 2), lambda b: loss(model, to_device(b, device)))
    except SharingError as error:
        return DegreeLimits(key="context", missing=error.why)
    except Exception as error:
        text = (str(error) or type(error).__name__).splitlines()[0]
        failed = f"{type(model).__name__} fails on chunks of samples ({text}); set it to 1."
        return DegreeLimits(key="context", missing=failed)
    finally:
        for hook in hooks:
            hook.remove()
    return DegreeLimits(key="context", counts=(("pairs of tokens", _length(batch) // 2),))


class _Positions(SharedByCopies):
    """Gives a model whose forward takes ``position_ids`` the positions of its tokens."""

    def __init__(self, chunks: SequenceChunks) -> None:
        self.chunks = chunks

    def give(self, module: nn.Module, positional: Any, named: dict[str, Any]) -> Any:
        if active_chunks() is None or not _takes(module, _POSITIONS):
            return None
        given = inspect.signature(module.forward).bind_partial(*positional, **named).arguments
        if given.get(_POSITIONS) is not None:
            return None
        first = next(tensor for tensor in tensors((positional, named)) if tensor.dim() > 1)
        at = self.chunks.positions(first.shape[1], first.device)
        return positional, {**named, _POSITIONS: at}


class _Whole(NamedTuple):
    """A batch that is not shared out; ``samples`` let it have other shapes than a shared one.

    A pipeline keeps buffers for each shape.
    """

    batch: Batch
    samples: Tensor


class _Sharing:
    """This rank's share of a loss over whole sequences, which is its mean over ranks."""

    def __init__(
        self,
        model: nn.Module,
        chunks: SequenceChunks,
        precision: Precision,
        averaged: tuple[DeviceMesh, ...] = (),
    ) -> None:
        join_transformers()
        self._model = model
        self._chunks = chunks
        self._precision = precision
        self._shifts = _shifts_labels(model)
        self._averaged = averaged
        self.attention = SharedAttention(model, chunks)

    def give_positions(self) -> list[RemovableHandle]:
        """Give positions of tokens to the model, or to the modules in it that take them."""
        give = _Positions(self._chunks).give
        takers = {self._model: None, **dict.fromkeys(_takers(self._model))}
        return [taker.register_forward_pre_hook(give, with_kwargs=True) for taker in takers]

    def wrap(self, loss: LossFunction) -> LossFunction:
        """The loss of this rank's part of a micro-batch."""

        def of_part(model: nn.Module, batch: Batch) -> Tensor:
            if isinstance(batch, _Whole):
                return loss(model, batch.batch)
            with self.attention.on():
                return loss(model, self._part(batch))

        return of_part

    def check(self, batch: Batch) -> None:
        """Refuse models and batches that context ranks cannot share out.

        Raises:
            SharingError: sequences cannot be cut equally, or have padding or other such marks.
        """
        tokens, ranks = _length(batch), self._chunks.ranks
        named = batch if isinstance(batch, Mapping) else {}
        mask, positions = named.get("attention_mask"), named.get(_POSITIONS)
        why = ""
        if tokens % (2 * ranks):
            why = (
                f"samples of {tokens} tokens have no two equal chunks for each rank; use a "
                f"multiple of {2 * ranks} tokens."
            )
        elif mask is not None and (mask.dim() != 2 or not bool(mask.all())):
            why = (
                "attention_mask masks tokens: padding cannot be shared out. Cut samples to one "
                "length, or set it to 1."
            )
        elif positions is not None and bool((positions.diff(dim=-1) != 1).any()):
            why = (
                "position_ids begin anew within a sample: packed sequences cannot be shared out. "
                "Train on one sequence a sample, or set it to 1."
            )
        elif not self._counts(batch) and any(_has_ignored(one, tokens) for one in tensors(batch)):
            why = (
                f"some labels are {_IGNORED}, and the mean loss of {type(self._model).__name__} "
                "over the others differs between ranks; train on all tokens, or set it to 1."
            )
        if why:
            raise SharingError(ranks, why)

    def compare(self, batch: Batch, evaluate: Callable[[Batch], Tensor]) -> None:
        """Check that ranks which share out short sequences have the loss of the whole sequences.

        Args:
            batch: of which the first tokens count.
            evaluate: this rank's part of a mean over ranks, by the loss that is wrapped.

        Raises:
            SharingError: they have not.
        """
        tokens, most = _length(batch), 2 * self._chunks.ranks * _COMPARED_TOKENS

        def cut(tensor: Tensor) -> Tensor:
            is_sequence = tensor.dim() > 1 and tensor.shape[1] == tokens
            return tensor[:, :most].contiguous() if is_sequence else tensor

        short = map_tensors(batch, cut)
        with torch.compiler.set_stance("force_eager"):
            samples = torch.zeros(len(tensors(short)[0]))
            whole = self._mean(evaluate(_Whole(short, samples)))
            shared = self._mean(evaluate(short))
        exact, rough = (2e-5, 1e-3) if self._precision is Precision.FP32 else (1e-2, 1e-2)
        tolerance = exact if whole.device.type == "cpu" else rough
        why = self._difference(float(whole), float(shared), tolerance)
        if why:
            raise SharingError(self._chunks.ranks, why)

    def _mean(self, value: Tensor) -> Tensor:
        value = value.detach().float().clone()
        for mesh in self._averaged:
            dist.all_reduce(value, group=mesh.get_group())
            value /= mesh.size()
        return value

    def _difference(self, whole: float, shared: float, tolerance: float) -> str | None:
        name = type(self._model).__name__
        if not self._chunks.is_used:
            return _no_attention(self._model)
        if self.attention.unknown_kinds:
            kind = self.attention.unknown_kinds[0]
            return f"{name} has layers of {kind}, which context ranks cannot share; set it to 1."
        if not abs(whole - shared) > tolerance * max(abs(whole), 1.0):
            return None
        return (
            f"the loss of {name} is {shared:.6g} over context ranks and {whole:.6g} over whole "
            "sequences: its forward must take position_ids where places count, labels must be "
            "shifted by the script, and the loss must be the mean over tokens. Set it to 1 "
            "otherwise."
        )

    def _counts(self, batch: Batch) -> bool:
        return self._shifts and isinstance(batch, dict) and isinstance(batch.get("labels"), Tensor)

    def _part(self, batch: Batch) -> Batch:
        tokens = _length(batch)
        if self._counts(batch):
            shifted = F.pad(batch["labels"], (0, 1), value=_IGNORED)[..., 1:]
            # The mean over ranks divides by their number once more.
            counted = (shifted != _IGNORED).sum() / self._chunks.ranks
            batch = {**batch, "shift_labels": shifted, "num_items_in_batch": counted}

        def cut(tensor: Tensor) -> Tensor:
            is_sequence = tensor.dim() > 1 and tensor.shape[1] == tokens
            return self._chunks.part(tensor) if is_sequence else tensor

        return map_tensors(batch, cut)


def _no_attention(model: nn.Module) -> str:
    return (
        f"{type(model).__name__} has no attention that context ranks share; let it call "
        "autoconf_launch.runtime.scaled_dot_product_attention, or set it to 1."
    )


def _length(batch: Batch) -> int:
    for tensor in tensors(batch):
        if tensor.dim() > 1:
            return tensor.shape[1]
    return 1


def _has_ignored(tensor: Tensor, tokens: int) -> bool:
    is_labels = tensor.dtype == torch.int64 and tensor.dim() > 1 and tensor.shape[1] == tokens
    return is_labels and bool((tensor == _IGNORED).any())


def _takers(model: nn.Module) -> Iterator[nn.Module]:
    if _takes(model, _POSITIONS):
        yield model
        return
    for child in model.children():
        yield from _takers(child)


def _takes(module: nn.Module, name: str) -> bool:
    return name in inspect.signature(module.forward).parameters


def _shifts_labels(model: nn.Module) -> bool:
    """True if it has a loss function of transformers that takes labels as we shift them."""
    function = getattr(model, "loss_function", None)
    parameters = inspect.signature(model.forward).parameters.values()
    spreads = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    return (
        callable(function) and spreads and "shift_labels" in inspect.signature(function).parameters
    )
