"""The repeated blocks of a model and its experts, and their weights, bytes and operations."""

from __future__ import annotations

import gc
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

_Kind = TypeVar("_Kind")
_ARGUMENTS = 3
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
EMBEDDING, HEAD, REST, MODEL = "embedding", "head", "rest", "model"
"""Before the first repeated block, after the last, never run, and a model without blocks."""
_PRODUCTS_BACKWARD = 5 / 2
"""Attention's products in a backward pass for each one in a forward pass: scores come anew."""
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockList:
    """A container of at least two modules of one class.

    ``name`` is its path in the model, ``keys`` are the names of its modules when it was found.
    Blocks of other pipeline stages are not in it.
    """

    name: str
    container: nn.Module
    keys: tuple[str, ...]

    @property
    def pieces(self) -> tuple[nn.Module, ...]:
        return _own(self.container)

    def keep(self, pieces: tuple[nn.Module, ...]) -> None:
        """Change the live model so that the container holds just these, at most ``keys``."""
        self.container._modules.clear()
        for key, piece in zip(self.keys, pieces, strict=False):
            self.container.add_module(key, piece)


class ForeignBlock(nn.Module):
    """Holds the place of a block that another pipeline stage has."""


def find_block_lists(model: nn.Module) -> tuple[BlockList, ...]:
    """The outermost containers of repeated blocks with parameters, in the model's order."""
    return tuple(_find("", model))


def repeated_blocks(model: nn.Module) -> tuple[nn.Module, ...]:
    """The pieces of all block lists, in the model's order."""
    return tuple(piece for found in find_block_lists(model) for piece in found.pieces)


def piece_names(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Repeated blocks with the names by which a description lists them."""
    for found in find_block_lists(model):
        for number, piece in enumerate(found.pieces):
            yield piece, f"{found.name}.{number}"


def shared_names(model: nn.Module) -> list[list[str]]:
    """Names of each weight that has several."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, weight in model.named_parameters(remove_duplicate=False):
        names[id(weight)].append(name)
    return [same for same in names.values() if len(same) > 1]


def alive(kind: type[_Kind]) -> Iterator[_Kind]:
    """Objects of a class in this process; the type decides, as an object may answer for itself."""
    return (thing for thing in gc.get_objects() if issubclass(type(thing), kind))


def _find(name: str, module: nn.Module) -> Iterator[BlockList]:
    if isinstance(module, _CONTAINERS) and len(module) > 1 and _repeats(_own(module)):
        keys = tuple(k for k, m in module._modules.items() if not isinstance(m, ForeignBlock))
        yield BlockList(name=name, container=module, keys=keys)
        return
    for child_name, child in module.named_children():
        yield from _find(f"{name}.{child_name}" if name else child_name, child)


def _own(container: nn.Module) -> tuple[nn.Module, ...]:
    return tuple(m for m in container.children() if not isinstance(m, ForeignBlock))


def _repeats(pieces: tuple[nn.Module, ...]) -> bool:
    return (
        len({type(piece) for piece in pieces}) == 1
        and not isinstance(pieces[0], (nn.ModuleList, nn.ModuleDict))
        and all(any(True for _ in piece.parameters()) for piece in pieces)
    )


@dataclass(slots=True, kw_only=True)
class Piece:
    """Weights, operations and memory of a part; shared weights count for the first to run.

    Values with ``split`` cover only weights that tensor ranks share; the others include them.
    """

    name: str
    parameters: int = 0
    frozen_parameters: int = 0
    expert_parameters: int = 0
    experts_per_token: int = 0
    flops: float = 0.0
    kept_bytes: int = 0
    input_bytes: int = 0
    input_shape: tuple[int, ...] = ()
    tied_parameters: int = 0
    split_parameters: int = 0
    split_kept_bytes: int = 0
    split_flops: float = 0.0
    columns: int = 0
    rows: int = 0

    @property
    def kind(self) -> tuple[str, int, int]:
        """List and weights: neighbours of one kind are equal blocks."""
        list_name = self.name.rpartition(".")[0]
        return list_name or self.name, self.parameters, self.frozen_parameters


def bytes_per_parameter(model: nn.Module) -> float:
    """Mean size of a stored weight; 4 if there is none."""
    weights = list(model.parameters())
    total = sum(weight.numel() * weight.element_size() for weight in weights)
    return total / max(1, sum(weight.numel() for weight in weights)) or 4.0


def vocabulary_size(model: nn.Module) -> int | None:
    """Rows of the embedding that a linear layer's width matches, else of the first one."""
    rows = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    widths = {m.out_features for m in model.modules() if isinstance(m, nn.Linear)}
    return next((count for count in rows if count in widths), rows[0] if rows else None)


def find_experts(model: nn.Module) -> dict[str, nn.Module]:
    """Modules with experts by their full names."""
    return {name: module for name, module in model.named_modules() if _has_experts(module)}


def _has_experts(module: nn.Module) -> bool:
    count, weights = getattr(module, "num_experts", None), list(module.parameters())
    return (
        isinstance(count, int)
        and any(weight.ndim == 3 for weight in weights)
        and all(weight.ndim >= 2 and weight.shape[0] == count for weight in weights)
        and len(weights) == len(module._parameters)
        and len(inspect.signature(type(module).forward).parameters) == 1 + _ARGUMENTS
    )


def flop_counter() -> FlopCounterMode:
    """A counter as torch has it, that knows attention on CPU and recurrent layers too."""
    return FlopCounterMode(display=False, custom_mapping=_WITHOUT_FORMULA)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    """Two batched products, query by key and scores by value, 2 operations per multiply-add.

    Shapes are (batch, heads, tokens, width). A causal mask is not credited, as in torch's own
    formulas for attention on GPUs.
    """
    batch, heads, tokens, width = query
    return 2 * batch * heads * tokens * key[2] * (width + value[3])


def _rnn_flops(tokens: Sequence[int], weights: Sequence[Sequence[int]]) -> int:
    """Each token times the weights of its input and of the state before it.

    The last dimension of the tokens is their width; biases have one dimension.
    """
    return 2 * prod(tokens[:-1]) * sum(prod(shape) for shape in weights if len(shape) > 1)


_WITHOUT_FORMULA: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: attention_flops(query, key, value)
    ),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda _, query, key, value, *__, **___: int(
            attention_flops(query, key, value) * _PRODUCTS_BACKWARD
        )
    ),
    _aten.mkldnn_rnn_layer: lambda x, wide, deep, *_, **__: _rnn_flops(x, (wide, deep)),
    _aten.mkldnn_rnn_layer_backward: (
        lambda x, wide, deep, *_, **__: 2 * _rnn_flops(x, (wide, deep))
    ),
    **dict.fromkeys(
        (_aten._cudnn_rnn, _aten.miopen_rnn),
        lambda tokens, weights, *_, **__: _rnn_flops(tokens, weights),
    ),
    **dict.fromkeys(
        (_aten._cudnn_rnn_backward, _aten.miopen_rnn_backward),
        lambda tokens, weights, *_, **__: 2 * _rnn_flops(tokens, weights),
    ),
}


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements, whatever its storage holds besides."""
    return tensor.numel() * tensor.element_size()


def weights_of(optimizer: Optimizer) -> list[Tensor]:
    """Weights of all groups of an optimizer."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def device_of(optimizer: Optimizer) -> torch.device:
    """Device of an optimizer's first weight; the CPU if it has none."""
    return next((weight.device for weight in weights_of(optimizer)), torch.device("cpu"))
