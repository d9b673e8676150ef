"""Attention over sequences that context ranks share out: each rank's queries meet all keys.

A rank has a chunk from the head of a sequence and one from its tail: under a causal mask late
tokens attend to more than early ones. Keys and values are gathered, and their gradients added up,
by each call. Outside of a step, and without context ranks, this is torch's own attention.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.attention.bias import causal_lower_right
from torch.utils._python_dispatch import _disable_current_modes

from autoconf_launch.core import ConfigError

_NAME = "autoconf_launch_context"
"""Our function in transformers' registry, which builds no mask for names that it does not know."""
_TOKENS = 2
"""Dimension of the tokens in (samples, heads, tokens, head_dim)."""
_UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments of transformers' attention functions that torch's attention does not have."""
_all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
"""By their newer names, since torch 2.13 warns of the older ones."""
_active: SequenceChunks | None = None
_was_called = False


class SharingError(ConfigError):
    """A batch or model that context ranks cannot share out; ``why`` goes on after "but"."""

    def __init__(self, ranks: int, why: str) -> None:
        super().__init__(f"parallelism.context is {ranks}, but {why}")
        self.why = why


@dataclass(slots=True, kw_only=True)
class SequenceChunks:
    """This rank's chunks among the chunks of all.

    Attributes:
        every: numbers of all ranks' chunks, two of each rank.
        rank: this one.
        group: the ranks; None if one rank has all chunks.
        is_used: they attended together; no count, for which a compiled model would compile again.
    """

    every: tuple[int, ...]
    rank: int = 0
    group: ProcessGroup | None = None
    is_used: bool = False

    @staticmethod
    def along(mesh: DeviceMesh) -> SequenceChunks:
        """Chunks of the ranks of a mesh of one dimension."""
        last = 2 * mesh.size() - 1
        every = tuple(number for rank in range(mesh.size()) for number in (rank, last - rank))
        return SequenceChunks(every=every, rank=mesh.get_local_rank(), group=mesh.get_group())

    @property
    def ranks(self) -> int:
        return len(self.every) // 2

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.every[2 * self.rank : 2 * self.rank + 2]

    def part(self, whole: Tensor, dimension: int = 1) -> Tensor:
        """This rank's tokens, contiguous."""
        chunks = whole.chunk(2 * self.ranks, dimension)
        return torch.cat([chunks[number] for number in self.numbers], dimension)

    def in_order(self, parts: Tensor, dimension: int) -> Tensor:
        """Whole sequences from the parts of all ranks along a first dimension."""
        chunks = [chunk for part in parts for chunk in part.chunk(2, dimension)]
        places = sorted(range(len(chunks)), key=self.every.__getitem__)
        return torch.cat([chunks[place] for place in places], dimension)

    def positions(self, tokens: int, device: torch.device) -> Tensor:
        """Position of each of a rank's ``tokens`` in its sequence: (1, tokens)."""
        return self.part(torch.arange(tokens * self.ranks, device=device)[None])


class SharedAttention:
    """The attention of one model, on chunks of sequences or on whole ones."""

    def __init__(self, model: nn.Module, chunks: SequenceChunks) -> None:
        self._configs = tuple(_configs(model))
        self._names: tuple[str, ...] = ()
        self.chunks = chunks

    @property
    def unknown_kinds(self) -> list[str]:
        """Kinds of layers of transformers whose tokens meet in another way."""
        kinds = {kind for one in self._configs for kind in getattr(one, "layer_types", None) or ()}
        return sorted(kinds - {"full_attention", "sliding_attention"})

    @contextmanager
    def on(self) -> Iterator[None]:
        """Attend together with the other context ranks."""
        global _active
        before = _active
        if before is None:
            self._names = tuple(one._attn_implementation for one in self._configs)
            self._choose([_NAME] * len(self._names))
        _active = self.chunks
        try:
            yield
        finally:
            _active = before
            if before is None:
                self._choose(self._names)

    def _choose(self, names: Iterable[str]) -> None:
        for config, name in zip(self._configs, names, strict=True):
            config._attn_implementation = name


def is_shareable(model: nn.Module) -> bool:
    """True if it has attention of transformers, or has called ours."""
    return _was_called or any(True for _ in _configs(model))


def active_chunks() -> SequenceChunks | None:
    """The tokens of this rank in the sequences that attention works on now."""
    return _active


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **settings: Any,
) -> Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` that context ranks share.

    Tensors are (samples, heads, tokens, head_dim) and have this rank's tokens; ``settings`` are
    torch's ``scale`` and ``enable_gqa``. Without context ranks it is torch's own.

    Raises:
        ConfigError: there is a mask under context parallelism.
    """
    global _was_called
    settings["dropout_p"] = dropout_p
    if _active is None:
        _was_called = True
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, **settings
        )
    if attn_mask is not None:
        raise SharingError(
            _active.ranks,
            "attention was given attn_mask, which has a rank's tokens only; use is_causal=True, "
            "or set it to 1.",
        )
    return _attend(_active, (query, key, value), is_causal, None, settings)


def join_transformers() -> None:
    """Register our attention function if the script has loaded transformers."""
    library: Any = sys.modules.get("transformers.modeling_utils")
    if library is not None:
        library.AttentionInterface.register(_NAME, _for_transformers)


def _configs(model: nn.Module) -> Iterable[Any]:
    """Configurations of transformers that choose an attention function, outer ones first."""
    found = (getattr(module, "config", None) for module in model.modules())
    known = {id(one): one for one in found if hasattr(one, "_attn_implementation")}
    return known.values()


def _for_transformers(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: it returns (samples, tokens, heads, head_dim)."""
    assert _active is not None
    causal = given.get("is_causal")
    causal = bool(getattr(module, "is_causal", True) if causal is None else causal)
    window = given.get("sliding_window")
    unknown = [name for name in _UNKNOWN if given.get(name) is not None]
    unknown += ["attention_mask"] if attention_mask is not None else []
    unknown += ["sliding_window"] if window and not causal else []
    if unknown:
        raise SharingError(
            _active.ranks,
            f"{type(module).__name__} gives attention {unknown[0]}, which context ranks cannot "
            "apply; set it to 1.",
        )
    settings = {
        "dropout_p": given.get("dropout", 0.0),
        "scale": given.get("scaling"),
        "enable_gqa": query.shape[1] != key.shape[1],
    }
    mixed = _attend(_active, (query, key, value), causal, window, settings)
    return mixed.transpose(1, 2).contiguous(), None


def _attend(
    chunks: SequenceChunks,
    parts: tuple[Tensor, Tensor, Tensor],
    is_causal: bool,
    window: int | None,
    settings: dict[str, Any],
) -> Tensor:
    query, key, value = parts
    if key.shape[_TOKENS] != query.shape[_TOKENS]:
        raise SharingError(
            chunks.ranks,
            f"attention was given queries of {query.shape[_TOKENS]} and keys of "
            f"{key.shape[_TOKENS]} tokens; only self-attention can be shared out. Set it to 1.",
        )
    chunks.is_used = True
    both = chunks.in_order(_gather(torch.cat((key, value), -1), chunks.group), _TOKENS)
    keys, values = both.tensor_split((key.shape[-1],), -1)
    if not is_causal:
        return F.scaled_dot_product_attention(query, keys, values, **settings)
    size = query.shape[_TOKENS] // 2
    mixed = [
        _causal(own, keys, values, chunk * size, window, settings)
        for own, chunk in zip(query.chunk(2, _TOKENS), chunks.numbers, strict=True)
    ]
    return torch.cat(mixed, _TOKENS)


def _causal(
    query: Tensor, keys: Tensor, values: Tensor, start: int, window: int | None, settings: Any
) -> Tensor:
    """Attention of the tokens from ``start`` on to those before them, at most ``window``."""
    tokens = query.shape[_TOKENS]
    first = max(0, start - window + 1) if window else 0
    seen = slice(first, start + tokens)
    keys, values = keys[:, :, seen], values[:, :, seen]
    mask = _mask(tokens, keys.shape[_TOKENS], window, query.device)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, **settings)


def _mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor:
    """Mask of the last ``queries`` of ``keys`` tokens; the flash kernel's own, if it can."""
    if device.type == "cuda" and not (window and window < keys):
        with _disable_current_modes():  # one of recomputation would make a plain tensor of it
            return causal_lower_right(queries, keys)
    at = torch.arange(keys - queries, keys, device=device)[:, None]
    to = torch.arange(keys, device=device)
    return (to <= at) & (to > at - window) if window else to <= at


def _gather(own: Tensor, group: ProcessGroup | None) -> Tensor:
    if group is None:
        return own[None]
    every: Tensor = _Gather.apply(own, group)  # type: ignore[no-untyped-call]
    return every


class _Gather(torch.autograd.Function):
    """Every rank's tensor, one after the other in a new first dimension."""

    @staticmethod
    def forward(context: Any, own: Tensor, group: ProcessGroup) -> Tensor:
        context.group = group
        ranks = dist.get_world_size(group)
        every = own.new_empty((ranks * own.shape[0], *own.shape[1:]))
        _all_gather(every, own.contiguous(), group=group)
        return every.view(ranks, *own.shape)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient.new_empty(gradient.shape[1:])
        every = gradient.contiguous().flatten(0, 1)
        _reduce_scatter(own, every, group=context.group)
        return own, None
