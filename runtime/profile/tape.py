"""Records one forward pass piece by piece: bytes kept for the backward pass, operations, weights.

What runs before the first repeated block is ``embedding``, what runs outside of blocks after
it is ``head``, weights that never run are ``rest``; a model without repeated blocks is one
piece, ``model``. Works on real and on fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..model import (
    EMBEDDING,
    HEAD,
    MODEL,
    REST,
    Piece,
    find_block_lists,
    find_experts,
    flop_counter,
    tensors,
)


def record(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Piece, ...]:
    """Run ``forward``, which calls ``model``, once and tell what was seen, in order of running."""
    return _Tape(model).run(forward)


class _Tape:
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        lists = find_block_lists(model)
        self._pieces = {
            piece: f"{found.name}.{index}"
            for found in lists
            for index, piece in enumerate(found.pieces)
        }
        self._outside = EMBEDDING if lists else MODEL
        self._experts = set(find_experts(model).values())
        self._seen: dict[str, Piece] = {}
        self._ran_in: dict[nn.Module, str] = {}
        self._known: set[int] = set()
        self._kept: list[torch.UntypedStorage] = []
        self._flops_before = 0

    def run(self, forward: Callable[[], Tensor]) -> tuple[Piece, ...]:
        for tensor in (*self._model.parameters(), *self._model.buffers()):
            self._known.add(_storage(tensor)._cdata)
        self._place = self._outside
        with self._hooks(), flop_counter() as self._counter:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept):
                loss = forward()
            self._settle_flops()
        del loss
        self._count_parameters()
        last = [self._seen.pop(name) for name in (HEAD, REST) if name in self._seen]
        return (*self._seen.values(), *last)

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self._model.modules():
                if module in self._pieces:
                    before = module.register_forward_pre_hook(self._enter, with_kwargs=True)
                    after = module.register_forward_hook(self._leave)
                    stack.callback(before.remove)
                    stack.callback(after.remove)
                if module in self._experts:
                    routed = module.register_forward_pre_hook(self._note_route, with_kwargs=True)
                    stack.callback(routed.remove)
                handle = module.register_forward_pre_hook(self._note_place)
                stack.callback(handle.remove)
            yield

    def _at(self, name: str) -> Piece:
        return self._seen.setdefault(name, Piece(name=name))

    def _enter(self, piece: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._settle_flops()
        self._place = self._pieces[piece]
        inputs = [t for t in tensors((arguments, named)) if t.is_floating_point()]
        seen = self._at(self._place)
        seen.input_bytes += sum(t.numel() * t.element_size() for t in inputs)
        seen.input_shape = tuple(inputs[0].shape) if inputs else ()

    def _leave(self, piece: nn.Module, arguments: Any, output: Any) -> None:
        self._settle_flops()
        self._place = self._outside = HEAD

    def _note_place(self, module: nn.Module, arguments: Any) -> None:
        self._ran_in.setdefault(module, self._place)

    def _note_route(self, module: nn.Module, arguments: Any, named: dict[str, Any]) -> None:
        chosen = next(t for t in tensors((arguments, named)) if not t.is_floating_point())
        self._at(self._place).experts_per_token = chosen.shape[-1]

    def _settle_flops(self) -> None:
        total = self._counter.get_total_flops()
        self._at(self._place).flops += total - self._flops_before
        self._flops_before = total

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = _storage(tensor)
        if storage._cdata not in self._known:
            self._known.add(storage._cdata)
            self._kept.append(storage)
            self._at(self._place).kept_bytes += storage.nbytes()
        return tensor

    def _count_parameters(self) -> None:
        counted: set[nn.Parameter] = set()
        for module in self._model.modules():
            for parameter in set(module.parameters(recurse=False)) - counted:
                seen = self._at(self._ran_in.get(module, REST))
                seen.parameters += parameter.numel()
                seen.frozen_parameters += 0 if parameter.requires_grad else parameter.numel()
                seen.expert_parameters += parameter.numel() if module in self._experts else 0
                counted.add(parameter)


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
