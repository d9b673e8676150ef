"""Which rank a process is, and of how many. Not: who speaks for it (claim)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from .claim import environment_rank, environment_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Rank of this process and how many there are: by its process group, else its variables."""

    rank: int
    world_size: int


def place() -> Place:
    """Place of this process among the ranks."""
    if dist.is_available() and dist.is_initialized():
        return Place(rank=dist.get_rank(), world_size=dist.get_world_size())
    return Place(rank=environment_rank(), world_size=environment_size())
