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
from ..parallel import COLUMNS, ROWS, SUMMED, tensor_words


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
        words = tensor_words(model)
        self._words = {model.get_submodule(name): word for name, word in words.items()}
        self._is_split = False
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
                if self._words.get(module, SUMMED) != SUMMED:
                    starts = module.register_forward_pre_hook(self._start_split)
                    ends = module.register_forward_hook(self._end_split)
                    stack.callback(starts.remove)
                    stack.callback(ends.remove)
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

    def _start_split(self, module: nn.Module, arguments: Any) -> None:
        self._settle_flops(split=self._is_split)

    def _end_split(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """From columns on until rows a rank has its part; a module keeps its input before."""
        self._settle_flops(split=True)
        self._is_split = self._words[module] == COLUMNS

    def _note_place(self, module: nn.Module, arguments: Any) -> None:
        self._ran_in.setdefault(module, self._place)

    def _note_route(self, module: nn.Module, arguments: Any, named: dict[str, Any]) -> None:
        chosen = next(t for t in tensors((arguments, named)) if not t.is_floating_point())
        self._at(self._place).experts_per_token = chosen.shape[-1]

    def _settle_flops(self, *, split: bool = False) -> None:
        total = self._counter.get_total_flops()
        seen = self._at(self._place)
        seen.flops += total - self._flops_before
        seen.split_flops += (total - self._flops_before) * split
        self._flops_before = total

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = _storage(tensor)
        if storage._cdata not in self._known:
            self._known.add(storage._cdata)
            self._kept.append(storage)
            seen = self._at(self._place)
            seen.kept_bytes += storage.nbytes()
            seen.split_kept_bytes += storage.nbytes() * self._is_split
        return tensor

    def _count_parameters(self) -> None:
        counted: dict[nn.Parameter, Piece] = {}
        for module in self._model.modules():
            weights = set(module.parameters(recurse=False))
            if not weights:
                continue
            seen = self._at(self._ran_in.get(module, REST))
            for parameter in weights:
                if parameter not in counted:
                    seen.parameters += parameter.numel()
                    seen.frozen_parameters += 0 if parameter.requires_grad else parameter.numel()
                    seen.expert_parameters += parameter.numel() if module in self._experts else 0
                elif counted[parameter] is not seen:
                    seen.tied_parameters += parameter.numel()
                counted.setdefault(parameter, seen)
            self._count_split(module, seen)

    def _count_split(self, module: nn.Module, seen: Piece) -> None:
        word = self._words.get(module, SUMMED)
        if word == SUMMED:
            return
        seen.rows += word == ROWS
        seen.columns += word != ROWS
        for name, parameter in module.named_parameters(recurse=False):
            seen.split_parameters += parameter.numel() * (word != ROWS or name == "weight")


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
