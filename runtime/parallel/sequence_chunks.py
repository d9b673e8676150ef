"""Which tokens of a sequence a context rank has: a chunk from its head, one from its tail.

Under a causal mask late tokens attend to more than early ones; so every rank has equal work.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh


class SequenceChunks:
    """This rank's chunks; ``gathers`` counts how often ranks attended together."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.ranks = mesh.size()
        self.group: ProcessGroup = mesh.get_group()
        rank = mesh.get_local_rank()
        self.numbers = (rank, 2 * self.ranks - 1 - rank)
        self.gathers = 0

    def part(self, whole: Tensor, dimension: int = 1) -> Tensor:
        """This rank's tokens, contiguous."""
        chunks = whole.chunk(2 * self.ranks, dimension)
        return torch.cat([chunks[number] for number in self.numbers], dimension)

    def in_order(self, parts: Tensor, dimension: int) -> Tensor:
        """Whole sequences from the parts of all ranks, which stand along a first dimension."""
        heads, tails = zip(*(part.chunk(2, dimension) for part in parts), strict=True)
        return torch.cat((*heads, *reversed(tails)), dimension)

    def positions(self, tokens: int, device: torch.device) -> Tensor:
        """Where each of a rank's ``tokens`` stands in its sequence: (1, tokens)."""
        return self.part(torch.arange(tokens * self.ranks, device=device)[None])
