"""A live model as a ModelSpec, from one forward pass each of one and of two samples.

Works on real and on fake tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from autoconf_launch.core import BlockSpec, Grade, ModelSpec, SplitPart

from ..model import (
    EMBEDDING,
    HEAD,
    MODEL,
    REST,
    Piece,
    bytes_per_parameter,
    find_experts,
    flop_counter,
    piece_names,
    repeated_blocks,
    tensors,
    vocabulary_size,
)
from ..parallel import COLUMNS, ROWS, SUMMED, expert_split, tensor_split, tensor_words

Seconds: TypeAlias = dict[str, tuple[float, float]]
"""From a piece's name to its seconds, and to the seconds of its split part."""
_PASSES = 3
Forward: TypeAlias = Callable[[int], Tensor]
"""From a number of samples to their mean loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A ModelSpec without seconds or peaks, and all that is kept for one and two samples.

    ``kept_bytes`` has more than the samples' part: weights cast to another precision, say.
    """

    spec: ModelSpec
    kept_bytes: tuple[int, int]


def describe(
    model: nn.Module,
    forward: Forward,
    grade: Grade,
    clock: Callable[[], float] | None = None,
) -> Description:
    """Blocks of the model; growth from one sample to two is a sample's share.

    With a ``clock`` their forward passes are timed, too.
    """
    one, two = (record(model, lambda n=n: forward(n)) for n in (1, 2))  # type: ignore[misc]
    times = piece_times(model, lambda: forward(2), clock) if clock else {}
    blocks = _blocks(one, two, times, has_plan=bool(tensor_words(model)))
    shape = next((seen.input_shape for seen in one if len(seen.input_shape) == 3), None)
    heads, kv_heads, head_size = _attention(model)
    spec = ModelSpec(
        grade=grade,
        blocks=blocks,
        parameter_bytes_each=bytes_per_parameter(model),
        hidden_size=shape[2] if shape else None,
        sequence_length=shape[1] if shape else None,
        layers=len({*repeated_blocks(model)}) or None,
        vocabulary_size=vocabulary_size(model),
        tensor_split=tensor_split(model),
        expert_split=expert_split(model),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )
    return Description(spec=spec, kept_bytes=(_kept_bytes(one), _kept_bytes(two)))


def _kept_bytes(tape: tuple[Piece, ...]) -> int:
    return sum(seen.kept_bytes for seen in tape)


def _attention(model: nn.Module) -> tuple[int | None, int | None, int | None]:
    """Heads, key-value heads and a head's width by the first configuration in the model."""
    configs: Iterator[Any] = (getattr(module, "config", None) for module in model.modules())
    config = next((c for c in configs if hasattr(c, "num_attention_heads")), None)
    heads = getattr(config, "num_attention_heads", None)
    if not isinstance(heads, int):
        return None, None, None
    size = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // heads
    return heads, getattr(config, "num_key_value_heads", None) or heads, size


def _blocks(
    one: tuple[Piece, ...], two: tuple[Piece, ...], times: Seconds, *, has_plan: bool
) -> tuple[BlockSpec, ...]:
    in_two = {seen.name: seen for seen in two}
    pieces = [(seen, in_two.get(seen.name, seen)) for seen in one]
    return tuple(
        _merge(list(group), times, has_plan=has_plan)
        for _, group in groupby(pieces, lambda both: both[0].kind)
    )


def _merge(group: list[tuple[Piece, Piece]], times: Seconds, *, has_plan: bool) -> BlockSpec:
    first, count = group[0][0], len(group)
    seconds = [times.get(one.name, (0.0, 0.0)) for one, _ in group]
    kept = sum(b.split_kept_bytes - a.split_kept_bytes for a, b in group)
    split = SplitPart(
        parameters=first.split_parameters,
        activation_bytes=max(0, kept) // count,
        forward_s=sum(split_s for _, split_s in seconds) / count,
        flops=sum(one.split_flops for one, _ in group) / count,
        columns=first.columns,
        rows=first.rows,
    )
    return BlockSpec(
        name=first.kind[0],
        count=count,
        parameters=first.parameters,
        frozen_parameters=first.frozen_parameters,
        expert_parameters=first.expert_parameters,
        experts_per_token=first.experts_per_token,
        flops=sum(one.flops for one, _ in group) / count,
        activation_bytes=max(0, sum(b.kept_bytes - a.kept_bytes for a, b in group)) // count,
        input_bytes=max(0, sum(b.input_bytes - a.input_bytes for a, b in group)) // count,
        forward_s=sum(whole_s for whole_s, _ in seconds) / count,
        tied_parameters=first.tied_parameters,
        split=split if has_plan else None,
    )


def record(model: nn.Module, forward: Callable[[], Tensor]) -> tuple[Piece, ...]:
    """Run ``forward``, which calls ``model``, once and return the observed calls, in order."""
    return _Tape(model).run(forward)


class _Tape:
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._pieces = dict(piece_names(model))
        self._outside = EMBEDDING if self._pieces else MODEL
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
                before = partial(module.register_forward_pre_hook, with_kwargs=True)
                if module in self._pieces:
                    stack.callback(before(self._enter).remove)
                    stack.callback(module.register_forward_hook(self._leave).remove)
                if module in self._experts:
                    stack.callback(before(self._note_route).remove)
                stack.callback(before(self._note_place).remove)
                if self._words.get(module, SUMMED) != SUMMED:
                    stack.callback(before(self._start_split).remove)
                    stack.callback(module.register_forward_hook(self._end_split).remove)
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

    def _start_split(self, module: nn.Module, *_: Any) -> None:
        self._settle_flops(split=self._is_split)

    def _end_split(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """From columns on until rows a rank has its part; a module keeps its input before."""
        self._settle_flops(split=True)
        self._is_split = self._words[module] == COLUMNS

    def _note_place(self, module: nn.Module, *_: Any) -> None:
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


def piece_times(
    model: nn.Module, forward: Callable[[], object], clock: Callable[[], float]
) -> Seconds:
    """The least of a few passes after the first; names are taken from ``record``.

    What is compared is of one model, so what interrupts a piece must not count.
    """
    laps = _Laps(model, clock)
    with laps.hooks():
        passes = [laps.take(forward) for _ in range(_PASSES + 1)][1:]
    names = {name for seen in passes for name, _ in seen}

    def least(name: str, split: bool) -> float:
        return min(seen[name, split] for seen in passes)

    return {name: (least(name, False) + least(name, True), least(name, True)) for name in names}


class _Laps:
    """A clock that is read if the pass goes from one part into the next."""

    def __init__(self, model: nn.Module, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pieces = dict(piece_names(model))
        self._first = EMBEDDING if self._pieces else MODEL
        named = {model.get_submodule(name): word for name, word in tensor_words(model).items()}
        self._words = {module: word for module, word in named.items() if word != SUMMED}

    def take(self, forward: Callable[[], object]) -> defaultdict[tuple[str, bool], float]:
        """Seconds of one pass by piece, and whether split."""
        self._seen: defaultdict[tuple[str, bool], float] = defaultdict(float)
        self._place = (self._first, False)
        self._since = self._clock()
        loss = forward()
        self._go(self._place)
        del loss
        return self._seen

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """While it holds, the model reports the piece that runs."""
        with ExitStack() as stack:
            for piece in self._pieces:
                stack.callback(piece.register_forward_pre_hook(self._enter).remove)
                stack.callback(piece.register_forward_hook(self._leave).remove)
            for module in self._words:
                stack.callback(module.register_forward_pre_hook(self._start_split).remove)
                stack.callback(module.register_forward_hook(self._end_split).remove)
            yield

    def _go(self, place: tuple[str, bool]) -> None:
        now = self._clock()
        self._seen[self._place] += now - self._since
        self._place, self._since = place, now

    def _enter(self, piece: nn.Module, arguments: Any) -> None:
        self._go((self._pieces[piece], False))

    def _leave(self, piece: nn.Module, arguments: Any, output: Any) -> None:
        self._go((HEAD, False))

    def _start_split(self, module: nn.Module, arguments: Any) -> None:
        self._go((self._place[0], True))

    def _end_split(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._go((self._place[0], self._words[module] == COLUMNS))
