"""A live model as a ModelSpec, from one forward pass each of one and of two samples.

Works on real and on fake tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from torch import Tensor, nn

from autoconf_launch.core import BlockSpec, Grade, ModelSpec, SplitPart

from ..model import Piece, bytes_per_parameter, repeated_blocks, vocabulary_size
from ..parallel import expert_split, tensor_split, tensor_words
from .piece_times import Seconds, piece_times
from .tape import record

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
    """Blocks of the model; what grows from one sample to two is what a sample takes.

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
