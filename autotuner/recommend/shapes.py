"""Layers, widths and learning rate of a model of some size. Not: what else it is made of.

NVIDIA's tables give the widths; its search of five passes gives the layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.core import ConfigError

CountB: TypeAlias = Callable[["Shape"], float]
"""Billions of parameters of a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths of a transformer; ``kv`` is the width of one head."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    kv: int
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """Widths of all sizes below a bound, or up to it where ``inclusive``.

    ``ffn`` and ``kv`` are None where they follow: four times hidden, and hidden by heads.
    """

    bound_b: float
    inclusive: bool
    hidden: int
    heads: int
    ffn: int | None
    kv: int | None
    learning_rate: float

    def covers(self, size_b: float) -> bool:
        """Whether a size is on this side of the bound."""
        return size_b < self.bound_b or (self.inclusive and size_b == self.bound_b)


def row_of(rows: Sequence[ShapeRow], size_b: float, family: str) -> ShapeRow:
    """The first row that covers a size.

    Raises:
        ConfigError: the size is above the last bound.
    """
    for row in rows:
        if row.covers(size_b):
            return row
    raise ConfigError(
        f"A model of family {family} must be {most_text(rows)} billion parameters, but "
        f"{size_b:g} was asked."
    )


def most_text(rows: Sequence[ShapeRow]) -> str:
    """``at most 250`` or ``smaller than 1105``: billions that the last row covers."""
    last = rows[-1]
    return f"{'at most' if last.inclusive else 'smaller than'} {last.bound_b:g}"


def row_near(rows: Sequence[ShapeRow], size_b: float) -> ShapeRow:
    """The first row that covers a size, or the last."""
    return next((row for row in rows if row.covers(size_b)), rows[-1])


def table_shape(row: ShapeRow, size_b: float, count_b: CountB) -> Shape | None:
    """The row's widths with as many layers as give the size; None where no number does."""
    shape = Shape(
        layers=1,
        hidden=row.hidden,
        heads=row.heads,
        ffn=row.ffn or 4 * row.hidden,
        kv=row.kv or row.hidden // row.heads,
        learning_rate=row.learning_rate,
    )
    layers = layers_for(size_b, lambda number: count_b(replace(shape, layers=number)))
    return replace(shape, layers=layers) if layers else None


_STEP = 0.01
_PASSES: tuple[tuple[Sequence[int], int], ...] = (
    (tuple(2**power for power in range(1, 10)), 10),
    (range(16, 193, 16), 6),
    (range(2, 201, 2), 6),
    (range(5, 201, 5), 6),
    (range(1, 200), 10),
)
"""Numbers of layers to try, and how often the margin is widened by a hundredth."""


def layers_for(size_b: float, count_b: Callable[[int], float]) -> int | None:
    """The first number of layers whose count is within the margin, in NVIDIA's order.

    Args:
        size_b: billions of parameters.
        count_b: the same for a number of layers.
    """
    for numbers, tries in _PASSES:
        counts = [(number, count_b(number)) for number in numbers]
        margin = _STEP
        for _ in range(tries):
            low, high = size_b * (1 - margin), size_b * (1 + margin)
            if found := next((number for number, count in counts if low < count < high), None):
                return found
            margin += _STEP
    return None


_RATIO = 100.0
"""Width over layers that our own shapes come near: losses are flat around it (Kaplan et al. 2020,
"Scaling Laws for Neural Language Models", figure 5)."""
_RATIO_WEIGHT = 0.02
_MOST_LAYERS = 256


def own_shape(size_b: float, learning_rate: float, count_b: CountB) -> Shape | None:
    """Our shape for a size that no table covers; None where none comes within a tenth.

    Args:
        size_b: billions of parameters.
        learning_rate: of a model of that size.
        count_b: exact count.
    """
    ranked = [
        (_misfit(shape, size_b, count_b), shape)
        for hidden in _widths()
        for shape in _nearest_layers(hidden, size_b, learning_rate, count_b)
    ]
    _, best = min(ranked, key=lambda pair: pair[0])
    return best if abs(count_b(best) / size_b - 1) < 0.1 else None


def _nearest_layers(
    hidden: int, size_b: float, learning_rate: float, count_b: CountB
) -> Iterable[Shape]:
    head = 128 if hidden % 128 == 0 and hidden >= 1024 else min(64, hidden)
    one = Shape(
        layers=1,
        hidden=hidden,
        heads=hidden // head,
        ffn=4 * hidden,
        kv=head,
        learning_rate=learning_rate,
    )
    first = count_b(one)
    layer = count_b(replace(one, layers=2)) - first
    wanted = 1 + round((size_b - first) / layer)
    if 1 <= wanted <= _MOST_LAYERS:
        yield replace(one, layers=wanted)
    yield one


def _misfit(shape: Shape, size_b: float, count_b: CountB) -> float:
    ratio = shape.hidden / shape.layers / _RATIO
    return abs(math.log(count_b(shape) / size_b)) + _RATIO_WEIGHT * abs(math.log(ratio))


def _widths() -> list[int]:
    return [32, *range(64, 1024, 64), *range(1024, 8192, 256), *range(8192, 40961, 1024)]
