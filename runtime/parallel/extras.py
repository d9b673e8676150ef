"""Finds the further knobs of ZeRO on a live model and optimizer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autoconf_launch.core import FIRST_FSDP_STAGE, ZERO_KNOBS, KnobValue, ResolvedConfig

from ..model import repeated_blocks

MIB = 1 << 20
Extras = tuple[tuple[str, KnobValue], ...]


def knob(config: ResolvedConfig, name: str) -> KnobValue:
    """What a configuration says of a knob, else its default."""
    return dict(config.extras).get(name, ZERO_KNOBS[name].default)


def found_extras(
    module: nn.Module, optimizer: Optimizer, zero_stage: int = FIRST_FSDP_STAGE
) -> Extras:
    """Every knob that this layout has, in the order of ``ZERO_KNOBS``.

    ``zero_stage`` counts for FSDP, which also does what DDP does elsewhere.
    """
    found: dict[str, KnobValue] = {}
    if isinstance(module, DistributedDataParallel):
        found["bucket_cap_mb"] = module.bucket_bytes_cap // MIB
        found["gradient_as_bucket_view"] = bool(module.gradient_as_bucket_view)
    if hasattr(optimizer, "parameters_as_bucket_view"):
        found["parameters_as_bucket_view"] = bool(optimizer.parameters_as_bucket_view)
    if isinstance(module, FSDPModule) and zero_stage > 0:
        found["shard_ranks"] = _shard_ranks(module)
    if isinstance(module, FSDPModule) and zero_stage >= FIRST_FSDP_STAGE:
        found |= _of_fsdp(module)
    return tuple((name, found[name]) for name in ZERO_KNOBS if name in found)


def _of_fsdp(module: FSDPModule) -> dict[str, KnobValue]:
    assert isinstance(module, nn.Module)
    modules = [m for m in module.modules() if isinstance(m, FSDPModule)]
    blocks = [block for block in repeated_blocks(module) if isinstance(block, FSDPModule)]
    units = Counter(id(_state(block)) for block in blocks)
    return {
        "blocks_per_unit": max(units.values(), default=1),
        "forward_prefetch": max(len(_state(m)._states_to_forward_prefetch) for m in modules),
        "reshard_after_forward": _reshards(blocks[0] if blocks else module),
        "reshard_root": _reshards(module) is not False,
    }


def _shard_ranks(root: FSDPModule) -> bool | int:
    """Ranks that share each weight, or whether all that train on different samples do."""
    assert isinstance(root, nn.Module)
    groups = [_state(m)._fsdp_param_group for m in root.modules() if isinstance(m, FSDPModule)]
    mesh: Any = next(group for group in groups if group is not None).mesh_info
    copied = getattr(mesh, "replicate_mesh_size", 1) > 1
    return int(mesh.shard_mesh_size) if copied else True


def _reshards(module: FSDPModule) -> bool | int:
    """Whether a unit's weights go back to shards, or over how many ranks if not over all."""
    group: Any = _state(module)._fsdp_param_group
    if group is None:
        return True
    after = group.post_forward_mesh_info
    if after is None:
        return False
    size = int(after.shard_mesh_size)
    return size if size < group.mesh_info.shard_mesh_size else True


def _state(module: FSDPModule) -> Any:
    """Where torch keeps these and nowhere else; tests say when a new torch moves them."""
    return module._get_fsdp_state()
