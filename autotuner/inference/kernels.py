"""Seconds of what both phases are made of: products, all-reduces, and a host that launches them.

Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..cost import (
    ALL_REDUCE,
    GATHER,
    Group,
    InnerLayouts,
    Kernels,
    Machine,
    Product,
    StageSends,
    link_s,
    ring_s,
)
from ..space import Floats, Ints
from .engines import EngineHabits
from .generation import Generation, PointColumns

_SMALLEST_TILE = 0.55
"""Rate of the narrowest tiles over the rate of the widest, as in training's products."""


_CPU_LAYER_S = 3.3e-4
"""Python and the start of all kernels of a decoder layer of transformers without gradients: 0.32
ms (GPT-2) and 0.35 ms (Llama) for a tiny layer (``benchmarks/cpu_constants.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One GPU of a machine, and the engine on it."""

    machine: Machine
    engine: EngineHabits
    generation: Generation

    @property
    def kernels(self) -> Kernels:
        """In the precision of the products."""
        return Kernels(
            accelerator=self.machine.accelerator,
            physics=self.machine.physics,
            precision=self.generation.precision,
        )

    @property
    def nccl(self) -> Machine:
        """The machine with the protocols for short messages, if the engine has them."""
        link = self.machine.link
        if not self.engine.short_messages:
            return self.machine
        return replace(self.machine, link=replace(link, rates=link.rates + link.short_rates))

    @property
    def is_cpu(self) -> bool:
        """True if it is a process of a CPU."""
        return self.machine.accelerator.is_cpu

    def products_s(self, products: Iterable[Product]) -> Floats:
        """Products one after the other.

        One of few rows reads its weights once, whatever its rows, and computes as narrow tiles do:
        all multiprocessors share it along k.
        """
        kernels = self.kernels
        gpu, physics, size = kernels.accelerator, kernels.physics, self.generation.weight_bytes
        rate = kernels.reached_flops_per_s * _SMALLEST_TILE
        stream = gpu.memory_bytes_per_s * (gpu.streamed or physics.memory_efficiency)
        total = np.zeros(())
        if self.is_cpu:
            return sum((kernels.product_s(*product) for product in products), total)
        for m, n, k, count in products:
            moved = (
                size * (np.multiply(m, k) + np.multiply(k, n)) + 2.0 * np.multiply(m, n)
            ) * count
            flops = 2.0 * np.multiply(m, n) * k * count
            thin = np.maximum(moved / stream, flops / rate) + physics.kernel_s
            wide = np.maximum(moved / stream, kernels.product_s(m, n, k, count))
            total = total + np.minimum(thin, wide)
        return total

    def all_reduce_s(self, tensor_C: Ints, buffer_bytes: Floats) -> Floats:
        """An all-reduce of tensor ranks by the quickest way that the engine has."""
        machine, link = self.machine, self.machine.link
        group = Group(ranks=tensor_C, stride=np.ones_like(tensor_C))
        found = ring_s(self.nccl, group, buffer_bytes)
        if not self.engine.one_shot_bytes or not link.peer_rates:
            return found
        peers = link_s(replace(link, rates=link.peer_rates), tensor_C, buffer_bytes, ALL_REDUCE)
        reaches = (tensor_C <= machine.domain) & (buffer_bytes < self.engine.one_shot_bytes)
        return np.where(reaches & (tensor_C > 1), np.minimum(found, peers), found)

    def sends(self, points: PointColumns, buffer_bytes: Floats) -> StageSends:
        """Between the stages; processes of a CPU have a link's latency."""
        stages_C, tensor_C = points.pipeline_C, points.tensor_C
        if not self.is_cpu:
            return StageSends.between(stages_C, tensor_C, self.machine, buffer_bytes)
        pairs_C = np.full_like(tensor_C, 2)
        return StageSends.alike(
            stages_C, link_s(self.nccl.link, pairs_C, 2.0 * buffer_bytes, GATHER)
        )

    def launched_s(self, device_s: Floats) -> Floats:
        """A layer whose kernels a host launches ahead of a GPU; of a CPU it is the device."""
        if not self.engine.is_eager:
            return device_s
        if self.is_cpu:
            return device_s + _CPU_LAYER_S
        host_s = self.machine.physics.layer_forward_s
        power = self.machine.physics.host_sharpness
        return np.asarray((device_s**power + host_s**power) ** (1.0 / power))


def layouts_of(points: PointColumns) -> InnerLayouts:
    """Points as the layers of a training know them, without context and expert ranks."""
    one, no = np.ones_like(points.tensor_C), np.zeros_like(points.tensor_C)
    return InnerLayouts(
        tensor_U=points.tensor_C,
        context_U=one,
        expert_U=one,
        micro_U=points.batch_C,
        recompute_U=no,
        sequence_U=no.astype(np.bool_),
        sharded_U=no.astype(np.bool_),
        data_U=one,
        world_U=points.gpus_C,
    )
