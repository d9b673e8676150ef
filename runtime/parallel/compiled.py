"""torch.compile of the repeated blocks, or of the whole model if it has none.

Modes that record CUDA graphs are missing: these need tensors that stay at their addresses, but
FSDP gathers weights anew for each pass and a pipeline keeps outputs of several micro-batches.
"""

from __future__ import annotations

import shutil

import torch
from torch import nn
from torch.optim import Optimizer

from autoconf_launch.core import ConfigError, KnobValue, ResolvedConfig

from ..model import repeated_blocks
from .base import Applied, DeviceMeshes, knob_value

_NAME, _OFF = "compile_mode", "off"


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Compile blocks in place at their first call; equal blocks share one compiled code.

    Raises:
        ConfigError: this machine lacks a requirement of torch.compile.
    """
    mode = knob_value(config, _NAME)
    if mode == _OFF:
        return applied
    if lack := _missing_compiler(meshes.world.device_type):
        raise ConfigError(
            f"{_NAME} is '{mode}', but torch.compile needs {lack}, which this machine lacks; "
            f'install it, or set {_NAME} to "{_OFF}".'
        )
    for block in repeated_blocks(applied.module) or applied.roots:
        block.compile(mode=mode)
        setattr(block, _NAME, mode)
    return applied


def look(root: nn.Module, optimizer: Optimizer | None, zero_stage: int) -> dict[str, KnobValue]:
    """The mode in which a live model's blocks are compiled."""
    block = next(iter(repeated_blocks(root)), root)
    is_compiled = getattr(block, "_compiled_call_impl", None) is not None
    return {_NAME: getattr(block, _NAME, _OFF) if is_compiled else _OFF}


def _missing_compiler(device_type: str) -> str | None:
    if device_type == "cpu":
        from torch._inductor import config

        names = [name for name in config.cpp.cxx if name]
        return None if any(map(shutil.which, names)) else f"a C++ compiler ({names[-1]})"
    return None if torch.utils._triton.has_triton() else "triton"
