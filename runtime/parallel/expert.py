"""Which experts of a live model ranks can share out."""

from __future__ import annotations

from torch import nn

from autoconf_launch.core import DegreeLimits

from ..model import find_experts
from .tensor_plan import name_pattern


def expert_split(model: nn.Module) -> DegreeLimits:
    """What the expert degree must divide in a live model, or why there is nothing to share out."""
    counts = dict.fromkeys(
        (f"experts of {name_pattern(name)}", int(getattr(experts, "num_experts")))  # noqa: B009
        for name, experts in find_experts(model).items()
    )
    if counts:
        return DegreeLimits(key="expert", counts=tuple(counts))
    missing = (
        f"{type(model).__name__} has no experts (modules with num_experts, weights stacked in "
        "three dimensions, and forward(hidden, top_k_index, top_k_weights)); set it to 1."
    )
    return DegreeLimits(key="expert", missing=missing)
