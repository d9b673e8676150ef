"""Random weights of a rank's part of a model, without the other parts ever being in memory.

A weight's numbers depend on its name alone, so that every layout is one of the same model.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_SPREAD = 0.02
"""Spread of biases, and of norms around 1; a matrix has one that keeps the size of vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part of a weight that a tensor rank has.

    Attributes:
        dim: along which it is cut; None: the weight is whole.
        fused: matrices that stand beside each other along it, each of which is cut.
        first_alone: only the first rank has the numbers, the others zeros: a bias of a sum.
    """

    dim: int | None = None
    fused: int = 1
    first_alone: bool = False

    def part(self, whole: Tensor, rank: int, ranks: int) -> Tensor:
        if self.first_alone and rank:
            return torch.zeros_like(whole)
        if self.dim is None:
            return whole
        dim = self.dim
        matrices = whole.chunk(self.fused, dim)
        return torch.cat([one.chunk(ranks, dim)[rank] for one in matrices], dim)


UNCUT = Cut()


@contextmanager
def weights_on_meta() -> Iterator[None]:
    """Modules that are made inside have weights without memory, and real buffers."""
    register = nn.Module.register_parameter

    def register_on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), requires_grad=False)
        register(self, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def first_names(model: nn.Module) -> dict[int, str]:
    """The first name of each weight, by its identity; weights that are shared have several."""
    return {id(weight): name for name, weight in model.named_parameters()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWeights:
    """Makes the weights of one rank.

    Attributes:
        names: of all weights of the model, by their identity before it was cut.
        cuts: by name; a weight without one is whole.
        rank: among ``ranks`` tensor ranks.
    """

    names: Mapping[int, str]
    cuts: Mapping[str, Cut]
    rank: int
    ranks: int
    dtype: torch.dtype
    device: torch.device

    def fill(self, model: nn.Module) -> None:
        """Replace what has no memory, one weight after the other; shared ones stay shared."""
        made: dict[int, nn.Parameter] = {}
        for module in model.modules():
            for key, weight in module._parameters.items():
                if weight is None or not weight.is_meta:
                    continue
                if id(weight) not in made:
                    made[id(weight)] = self._make(weight)
                module._parameters[key] = made[id(weight)]
        for name, buffer in list(model.named_buffers()):
            parent, _, key = name.rpartition(".")
            model.get_submodule(parent)._buffers[key] = buffer.to(self.device)

    def _make(self, weight: nn.Parameter) -> nn.Parameter:
        name = self.names[id(weight)]
        seed = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
        whole = torch.empty(weight.shape, dtype=self.dtype, device=self.device)
        spread = _SPREAD if weight.ndim == 1 else weight.shape[-1] ** -0.5
        whole.normal_(0.0, spread, generator=seed)
        if weight.ndim == 1 and name.endswith("weight"):
            whole += 1.0  # of a norm
        part = self.cuts.get(name, UNCUT).part(whole, self.rank, self.ranks)
        return nn.Parameter(part, requires_grad=False)
