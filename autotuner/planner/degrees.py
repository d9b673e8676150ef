"""The degrees of parallelism that a number of ranks allows.

Shapes: M = meshes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, Degrees, divisors

from ..space import Ints


def select_wanted(found: tuple[int, ...], wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """The values found that are wanted, in order."""
    return found if wanted is None else tuple(value for value in found if value in wanted)


Mesh: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meshes:
    """Meshes with the same data parallelism, those with the same tensor ranks together."""

    data: int
    tensor_M: Ints
    context_M: Ints
    expert_M: Ints
    pipeline_M: Ints
    virtual_M: Ints


def meshes(
    world: int, global_batch: int, architecture: Architecture, degrees: Degrees
) -> Iterator[Meshes]:
    """All that obey ``world = data x tensor x pipeline x context`` and divide the global batch.

    Virtual stages are those that divide the layers of a stage, embedding and head counted as two
    more layers or not; expert ranks are divisors of the experts.
    """
    for data in divisors(world):
        if global_batch % data:
            continue
        found = list(_of_ranks(world // data, architecture, degrees))
        if found:
            tensor, context, expert, pipeline, virtual = np.array(found, np.int64).T
            yield Meshes(
                data=data,
                tensor_M=tensor,
                context_M=context,
                expert_M=expert,
                pipeline_M=pipeline,
                virtual_M=virtual,
            )


def _of_ranks(ranks: int, a: Architecture, degrees: Degrees) -> Iterator[Mesh]:
    experts = select_wanted(
        divisors(a.experts.count) if a.experts else (1,), degrees.expert_parallel
    )
    layers = a.layers + a.encoder_layers
    for tensor in select_wanted(divisors(ranks), degrees.tensor_parallel):
        for context in select_wanted(divisors(ranks // tensor), degrees.context_parallel):
            pipeline = ranks // tensor // context
            if degrees.pipeline_parallel is not None and pipeline not in degrees.pipeline_parallel:
                continue
            virtual = select_wanted(_virtual(layers, pipeline), degrees.virtual_pipeline)
            for expert in experts:
                for pieces in virtual:
                    yield tensor, context, expert, pipeline, pieces


@cache
def _virtual(layers: int, pipeline: int) -> tuple[int, ...]:
    """Virtual stages that a pipeline's stages can be cut into; 1 is always one of them."""
    if pipeline == 1 or pipeline > layers:
        return (1,)
    cuts = {1}
    for pieces in (layers, layers + 2):
        if pieces % pipeline == 0:
            cuts |= set(divisors(pieces // pipeline))
    return tuple(sorted(cuts))
