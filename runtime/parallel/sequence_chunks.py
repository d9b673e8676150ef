"""Which tokens of a sequence a context rank has: a chunk from its head, one from its tail.

Under a causal mask late tokens attend to more than early ones; so every rank has equal work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from autoconf_launch.core import ConfigError


class SharingError(ConfigError):
    """What context ranks cannot share out; ``why`` goes on after "but"."""

    def __init__(self, ranks: int, why: str) -> None:
        super().__init__(f"parallelism.context is {ranks}, but {why}")
        self.why = why


@dataclass(slots=True, kw_only=True)
class SequenceChunks:
    """This rank's chunks among those of all.

    Attributes:
        every: numbers of all ranks' chunks, two of each rank.
        rank: this one.
        group: the ranks; None where one rank has all chunks.
        is_used: they attended together; no count, for which a compiled model would compile again.
    """

    every: tuple[int, ...]
    rank: int = 0
    group: ProcessGroup | None = None
    is_used: bool = False

    @staticmethod
    def along(mesh: DeviceMesh) -> SequenceChunks:
        """Chunks of the ranks of a mesh of one dimension."""
        last = 2 * mesh.size() - 1
        every = tuple(number for rank in range(mesh.size()) for number in (rank, last - rank))
        return SequenceChunks(every=every, rank=mesh.get_local_rank(), group=mesh.get_group())

    @property
    def ranks(self) -> int:
        """How many share a sequence."""
        return len(self.every) // 2

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of this rank's chunks."""
        return self.every[2 * self.rank : 2 * self.rank + 2]

    def part(self, whole: Tensor, dimension: int = 1) -> Tensor:
        """This rank's tokens, contiguous."""
        chunks = whole.chunk(2 * self.ranks, dimension)
        return torch.cat([chunks[number] for number in self.numbers], dimension)

    def in_order(self, parts: Tensor, dimension: int) -> Tensor:
        """Whole sequences from the parts of all ranks, which stand along a first dimension."""
        chunks = [chunk for part in parts for chunk in part.chunk(2, dimension)]
        places = sorted(range(len(chunks)), key=self.every.__getitem__)
        return torch.cat([chunks[place] for place in places], dimension)

    def positions(self, tokens: int, device: torch.device) -> Tensor:
        """Where each of a rank's ``tokens`` stands in its sequence: (1, tokens)."""
        return self.part(torch.arange(tokens * self.ranks, device=device)[None])
