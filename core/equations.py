"""The batch and mesh equations, and other formulas that many places share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from .errors import ConfigError

_Item = TypeVar("_Item")


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a number, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


def pareto_front(
    items: Iterable[_Item], costs: Callable[[_Item], tuple[float, float]]
) -> list[_Item]:
    """Items that no other beats in one cost without more of the other; the least first cost first.

    Of equal ones the first stays.
    """
    front: list[_Item] = []
    least = math.inf
    for item in sorted(items, key=costs):
        if (second := costs(item)[1]) < least:
            front.append(item)
            least = second
    return front


def global_batch(*, micro_batch: int, accumulation: int, data_parallel: int) -> int:
    """Samples of one optimizer step over all ranks; the micro-batch is their mean."""
    return micro_batch * accumulation * data_parallel


def require_micro_batch_split(split: tuple[int, ...], *, micro_batch: int, ranks: int) -> None:
    """Check the micro-batches of the data-parallel ranks against their mean.

    Raises:
        ConfigError: there is none for each rank, or they add up to another batch.
    """
    where = f"parallelism.micro_batch_split is {list(split)}"
    if len(split) != ranks:
        raise ConfigError(
            f"{where}, which has {len(split)} micro-batches, but must have one for each of the "
            f"{ranks} data-parallel ranks."
        )
    if sum(split) % ranks:
        raise ConfigError(
            f"{where}, which adds up to {sum(split)}, but must add up to a multiple of the "
            f"{ranks} data-parallel ranks: its mean is train_micro_batch_size_per_gpu."
        )
    if sum(split) != micro_batch * ranks:
        raise ConfigError(
            f"{where}, which adds up to {sum(split)}, but must add up to "
            f"train_micro_batch_size_per_gpu {micro_batch} x data-parallel ranks {ranks} = "
            f"{micro_batch * ranks}; change one of them."
        )


def require_global_batch(
    stated: int, *, micro_batch: int, accumulation: int, data_parallel: int
) -> None:
    """Check a stated ``train_batch_size`` against the product of its parts.

    Raises:
        ConfigError: they differ; the message prints the equation with its operands.
    """
    product = global_batch(
        micro_batch=micro_batch, accumulation=accumulation, data_parallel=data_parallel
    )
    if product != stated:
        raise ConfigError(
            f"train_batch_size is {stated}, but train_micro_batch_size_per_gpu {micro_batch} x "
            f"gradient_accumulation_steps {accumulation} x data-parallel ranks {data_parallel} "
            f"= {product}; change one of them."
        )


def data_parallel_degree(
    world_size: int, *, tensor: int = 1, pipeline: int = 1, context: int = 1
) -> int:
    """Data-parallel ranks from ``world = data x tensor x pipeline x context``.

    Raises:
        ConfigError: the product of the other degrees does not divide the world.
    """
    others = tensor * pipeline * context
    if world_size % others:
        valid = ", ".join(map(str, divisors(world_size)))
        raise ConfigError(
            f"world size {world_size} is not a multiple of tensor {tensor} x pipeline {pipeline} "
            f"x context {context} = {others}; choose degrees whose product is one of {valid}."
        )
    return world_size // others


def data_rank(rank: int, *, data_parallel: int, tensor: int = 1, context: int = 1) -> int:
    """The share of the global batch that a rank loads; ranks of one model copy load the same.

    Ranks are counted along pipeline, data, context, tensor: the last one is the innermost.
    """
    return rank // (tensor * context) % data_parallel


def external_data_parallel_degree(world_size: int, mp_size: int) -> int:
    """Data-parallel ranks of a script that splits its model over ``mp_size`` ranks by itself.

    Raises:
        ConfigError: ``mp_size`` does not divide the world.
    """
    if world_size % mp_size:
        raise ConfigError(
            f"autotuning.mp_size is {mp_size}, but must divide the {world_size} ranks."
        )
    return data_parallel_degree(world_size, tensor=mp_size)


def even_pipeline_split(blocks: int, stages: int) -> tuple[int, ...]:
    """Default pipeline split: equal stages; the first stages take the remainder.

    If stages would divide the blocks with embedding and head counted as one each (Llama 3,
    2024, section 3.3.2: 126 layers on 16 stages), the ends have one block less.
    """
    each, more = divmod(blocks, stages)
    if more and stages > 1 and (blocks + 2) % stages == 0:
        return (each, *[each + 1] * (stages - 2), each)
    return tuple(each + (stage < more) for stage in range(stages))
