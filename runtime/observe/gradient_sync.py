"""Detection of launches whose ranks exchange nothing while they train.

Where they do not, each trains a model of its own, however many were launched.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

_OTHER_MEANS = (
    "horovod",
    "mpi4py",
    "byteps",
    "bagua",
    "hivemind",
    "smdistributed",
    "torch_xla",
    "torch.distributed.pipelining",
)
"""Packages that exchange without collectives of torch's process groups."""
_ON_CPU_IF_ASKED = ("accelerate", "transformers")


class Exchange:
    """Counts the collectives of all process groups from :meth:`begin` on."""

    def __init__(self) -> None:
        self._before: int | None = None

    def begin(self) -> None:
        """Count from here on."""
        self._before = _collectives()

    def is_nothing(self) -> bool:
        """True if there was none; never where something else may exchange, too."""
        if any(name in sys.modules for name in _OTHER_MEANS):
            return False
        return self._before is not None and _collectives() == self._before


def apart(ranks: int, device: str) -> str:
    """The sentence on ranks that exchange nothing."""
    asked = device == "cpu" and any(name in sys.modules for name in _ON_CPU_IF_ASKED)
    hint = (
        "on a CPU, Hugging Face's Trainer joins its ranks only with --use_cpu, and Accelerate "
        "with ACCELERATE_USE_CPU=true"
        if asked
        else "join them in the script (torch.distributed), or launch one rank: --num_gpus 1"
    )
    return (
        f"the {ranks} ranks did not synchronize gradients: each trains a model of its own; {hint}"
    )


def _collectives() -> int | None:
    """Collectives of all process groups so far; None where this torch does not count them."""
    if not dist.is_available() or not dist.is_initialized():
        return 0
    try:
        groups: Any = dist.distributed_c10d._world.pg_map
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except (AttributeError, RuntimeError):
        return None
