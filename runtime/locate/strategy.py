"""The strategy that an external training really runs, by its live modules and optimizers.

Knows DDP, FSDP 1 and 2, DTensor placements, ZeroRedundancyOptimizer and DeepSpeed's engine by what
they are, without importing what the script has not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from autoconf_launch.core import AppliedStrategy, KnobValue, Precision, Recompute

from ..model import base_learning_rate, precision_of
from ..observe import Made, unwrapped_model

_FSDP1_STAGES = {
    "FULL_SHARD": 3,
    "HYBRID_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "_HYBRID_SHARD_ZERO2": 2,
    "NO_SHARD": 0,
}


def find_strategy(
    root: nn.Module,
    optimizers: Iterable[Optimizer],
    *,
    made: Made,
    precision: Precision,
    recompute: Recompute | None,
) -> AppliedStrategy:
    """The strategy that runs; the first kind that is found decides the ZeRO stage."""
    optimizers = tuple(optimizers)
    names = tuple(dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers))
    stage, ranks, words = _layout(root, names)
    return AppliedStrategy(
        zero_stage=stage,
        data_parallel=ranks,
        micro_batch=made.micro_batch,
        accumulation=made.accumulation,
        precision=precision,
        recompute=recompute,
        description=f"{type(unwrapped_model(root)).__name__}: {words}, {' and '.join(names)}",
        extras=_extras(root),
        learning_rate=base_learning_rate(optimizers),
        optimizer=next(iter(names), None),
    )


def stated_precision(root: nn.Module, autocast: torch.dtype | None) -> Precision:
    """The format that layers compute in, for a training that cannot be inspected.

    Autocast around the model decides, then what its wrappers state, then its weights.

    Args:
        root: the model.
        autocast: format of autocast at the start of a forward pass; None: it was off.
    """
    weights = Counter[torch.dtype]()
    for weight in root.parameters():
        weights[weight.dtype] += weight.numel() if weight.is_floating_point() else 0
    stated = (autocast, *map(_fsdp_format, root.modules()), _accelerate_format())
    own = max(weights, key=lambda dtype: weights[dtype], default=torch.float32)
    found = next((dtype for dtype in stated if dtype is not None), own)
    return precision_of(found)


def _fsdp_format(module: Any) -> torch.dtype | None:
    """Format that FSDP gathers weights in, if its mixed precision states one."""
    if _is(module, "FullyShardedDataParallel"):
        return getattr(getattr(module, "mixed_precision", None), "param_dtype", None)
    if _is_fsdp2(module):
        state = module._get_fsdp_state()
        return getattr(getattr(state, "_mp_policy", None), "param_dtype", None)
    return None


def _accelerate_format() -> torch.dtype | None:
    """Format of the autocast that accelerate puts inside of the model's forward pass."""
    state: Any = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    name = str(getattr(state, "_shared_state", {}).get("_mixed_precision"))
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)


def _layout(root: nn.Module, optimizers: tuple[str, ...]) -> tuple[int, int, str]:
    if hasattr(root, "zero_optimization_stage"):
        return _deepspeed_layout(root)
    units = [module for module in root.modules() if _is(module, "FullyShardedDataParallel")]
    if units:
        return _fsdp1_layout(units)
    sharded = [module for module in root.modules() if _is_fsdp2(module)]
    if sharded:
        return _fsdp2_layout(root, sharded)
    wrapped = next((m for m in root.modules() if _is(m, "DistributedDataParallel")), None)
    stage = int("ZeroRedundancyOptimizer" in optimizers)
    placements = _placements(root)
    if wrapped is not None:
        group: Any = wrapped.process_group
        words = f"DDP over {group.size()} ranks"
        return stage, int(group.size()), f"{words}, {placements}" if placements else words
    return stage, 1, placements or "one rank"


def _deepspeed_layout(engine: Any) -> tuple[int, int, str]:
    stage, ranks = int(engine.zero_optimization_stage()), int(engine.dp_world_size)
    offload = getattr(engine, "zero_offload_optimizer", lambda: None)()
    device = getattr(getattr(offload, "device", None), "value", None)
    where = f", optimizer on {device}" if device and device != "none" else ""
    return stage, ranks, f"DeepSpeed ZeRO stage {stage} over {ranks} ranks{where}"


def _fsdp1_layout(units: list[Any]) -> tuple[int, int, str]:
    name = units[0].sharding_strategy.name
    ranks = int(units[0].process_group.size())
    between = getattr(units[0], "_inter_node_pg", None)
    if name.strip("_").startswith("HYBRID") and between is not None:
        ranks *= int(between.size())
    return _FSDP1_STAGES.get(name, 3), ranks, f"FSDP1 {name} in {len(units)} units"


def _fsdp2_layout(root: nn.Module, units: list[Any]) -> tuple[int, int, str]:
    found = dict(_extras(root))
    meshes = {
        f"mesh {'x'.join(str(mesh.size(n)) for n in range(mesh.ndim))}"
        for mesh in map(_mesh_of, units)
        if mesh is not None
    }
    stage = 2 if found.get("reshard_after_forward") is False else 3
    words = f"FSDP2 in {len(units)} units over {', '.join(sorted(meshes))}"
    others = _placements(root)
    return stage, _fsdp2_ranks(root), f"{words}; {others}" if others else words


def _fsdp2_ranks(root: nn.Module) -> int:
    """Ranks of the dimensions that shard data, which other kinds of parallelism do not use."""
    mesh = _mesh_of(root)
    if mesh is None:
        return 1
    names = mesh.mesh_dim_names or ("",) * mesh.ndim
    return prod(mesh.size(n) for n, name in enumerate(names) if name not in ("tp", "cp", "ep"))


def _mesh_of(module: nn.Module) -> Any:
    """Mesh of the first weight that has one."""
    meshes = (getattr(weight, "device_mesh", None) for weight in module.parameters())
    return next((mesh for mesh in meshes if mesh is not None), None)


def _placements(root: nn.Module) -> str:
    """Placements of the weights that are DTensors, with how many have each."""
    counts = Counter(
        str(tuple(weight.placements))
        for weight in root.parameters()
        if hasattr(weight, "placements")
    )
    return ", ".join(f"{count} DTensors {placed}" for placed, count in sorted(counts.items()))


def _extras(root: nn.Module) -> tuple[tuple[str, KnobValue], ...]:
    """Knobs of ZeRO as our own runtime finds them; none if this torch keeps them elsewhere."""
    try:
        from ..parallel import found_extras

        return found_extras(root, None)
    except (ImportError, AttributeError, AssertionError):
        return ()


def _is(module: nn.Module, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(module).__mro__)


def _is_fsdp2(module: nn.Module) -> bool:
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)
    return kind is not None and isinstance(module, kind)
