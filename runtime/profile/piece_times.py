"""Seconds of each piece in forward passes of a model, and of what tensor ranks share out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from torch import nn

from ..model import EMBEDDING, HEAD, MODEL, find_block_lists
from ..parallel import COLUMNS, SUMMED, tensor_words

Seconds: TypeAlias = dict[str, tuple[float, float]]
"""From a piece's name to its seconds, and to those of its split part."""
_PASSES = 3


def piece_times(
    model: nn.Module, forward: Callable[[], object], clock: Callable[[], float]
) -> Seconds:
    """The least of a few passes after the first; names are those of ``record``.

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
    """A clock that is read where the pass goes from one part into the next."""

    def __init__(self, model: nn.Module, clock: Callable[[], float]) -> None:
        lists = find_block_lists(model)
        self._clock = clock
        self._first = EMBEDDING if lists else MODEL
        self._pieces = {
            piece: f"{found.name}.{number}"
            for found in lists
            for number, piece in enumerate(found.pieces)
        }
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
        """While it holds, the model tells where it is."""
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
