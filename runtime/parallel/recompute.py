"""Activation recomputation of the repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    checkpoint,
    create_selective_checkpoint_contexts,
)

from autoconf_launch.core import ConfigError, Recompute, ResolvedConfig

from ..model import repeated_blocks
from .base import Applied, DeviceMeshes, Extras

_NAMES = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "_scaled_mm",
    "_grouped_mm",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
_KEPT = [
    getattr(packet, overload)
    for packet in (getattr(torch.ops.aten, name, None) for name in _NAMES)
    if packet is not None
    for overload in packet.overloads()
]
"""ATen operators whose results selective recomputation keeps."""


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Make repeated blocks, or the first N, compute activations again in the backward pass.

    The forward method is replaced, so names of modules and weights stay as they are, and
    hooks (FSDP's among them) run once.

    Raises:
        ConfigError: the model has no repeated blocks, or fewer.
    """
    mode = config.layout.recompute
    if mode is Recompute.NONE:
        return applied
    blocks = repeated_blocks(applied.module)
    if not blocks:
        raise ConfigError(
            f"activation_checkpointing.mode is '{mode.value}', but the model has no repeated "
            'blocks (a ModuleList of at least two modules of one class); set it to "none".'
        )
    layers = int(dict(config.extras).get("recompute_layers") or len(blocks))
    if layers > len(blocks):
        raise ConfigError(
            f"activation_checkpointing.layers is {layers}, but there are only {len(blocks)} "
            "repeated blocks on a rank; give it at most that."
        )
    for block in blocks[:layers]:
        block.forward = partial(_recompute_wrapper, block.forward, mode)
    return applied


def recompute_of(block: nn.Module) -> Recompute:
    """The mode that a live block runs in."""
    forward = block.forward
    if isinstance(forward, partial) and forward.func is _recompute_wrapper:
        mode = forward.args[1]
        assert isinstance(mode, Recompute)
        return mode
    return Recompute.NONE


def recompute_of_blocks(blocks: Iterable[nn.Module]) -> tuple[Recompute, Extras]:
    """The mode that live blocks run in, and the number of blocks if it is full."""
    found = Counter(map(recompute_of, blocks))
    full = found[Recompute.FULL]
    if full and not found[Recompute.SELECTIVE]:
        return Recompute.FULL, (("recompute_layers", full),)
    return next(iter(found)) if len(found) == 1 else Recompute.NONE, ()


def _recompute_wrapper(
    forward: Callable[..., Any], mode: Recompute, *arguments: Any, **named: Any
) -> Any:
    if mode is Recompute.SELECTIVE:
        named["context_fn"] = partial(create_selective_checkpoint_contexts, _KEPT)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)
