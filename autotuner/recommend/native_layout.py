"""A base configuration as our own runtime's configuration. Not: the model, which a script builds.

Reads both layouts, NeMo 1.0's and the recipe's, by full path. Degrees of model parallelism stay
behind: the runtime is data-parallel, its search has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoconf_launch.core import ConfigError, KeyPath, RawConfig

_RECIPE: Mapping[str, KeyPath] = {
    "batch": ("data", "global_batch_size"),
    "micro_batch": ("data", "micro_batch_size"),
    "lr": ("optim", "config", "lr"),
    "min_lr": ("optim", "lr_scheduler", "min_lr"),
    "warmup": ("optim", "lr_scheduler", "warmup_steps"),
    "constant": ("optim", "lr_scheduler", "constant_steps"),
    "weight_decay": ("optim", "config", "weight_decay"),
}
_NEMO1: Mapping[str, KeyPath] = {
    "batch": ("model", "global_batch_size"),
    "micro_batch": ("model", "micro_batch_size"),
    "lr": ("model", "optim", "lr"),
    "min_lr": ("model", "optim", "sched", "min_lr"),
    "warmup": ("model", "optim", "sched", "warmup_steps"),
    "constant": ("model", "optim", "sched", "constant_steps"),
    "weight_decay": ("model", "optim", "weight_decay"),
}
_STEPS: KeyPath = ("trainer", "max_steps")
_WARMUP_RATIO: KeyPath = ("model", "optim", "sched", "warmup_ratio")


def native_document(base: RawConfig, *, micro_batch: int | None = None) -> RawConfig:
    """Batch, optimizer, schedule and precision as ``runtime.initialize`` reads them.

    Args:
        base: a base configuration of either layout.
        micro_batch: samples of one pass; by default the file's, at most the global batch.

    Raises:
        ConfigError: the file lacks a value that is needed.
    """
    paths = _RECIPE if ("optim", "config") in base else _NEMO1
    batch = int(_needed(base, paths["batch"]))
    micro = min(batch, micro_batch or int(_needed(base, paths["micro_batch"])))
    return RawConfig(
        {
            "train_batch_size": batch,
            "train_micro_batch_size_per_gpu": micro,
            "gradient_clipping": float(base.get(("trainer", "gradient_clip_val")) or 0.0),
            "bf16": {"enabled": str(base.get(("trainer", "precision"))).startswith("bf16")},
            "optimizer": {"type": "AdamW", "params": _optimizer(base, paths)},
            "scheduler": _schedule(base, paths),
            "autotuning": {"enabled": True},
        }
    )


def _optimizer(base: RawConfig, paths: Mapping[str, KeyPath]) -> dict[str, Any]:
    betas = base.get(("model", "optim", "betas")) or [
        base.get(("optim", "config", "adam_beta1"), 0.9),
        base.get(("optim", "config", "adam_beta2"), 0.95),
    ]
    return {
        "lr": float(_needed(base, paths["lr"])),
        "betas": [float(beta) for beta in betas],
        "weight_decay": float(base.get(paths["weight_decay"], 0.0)),
    }


def _schedule(base: RawConfig, paths: Mapping[str, KeyPath]) -> dict[str, Any]:
    """Cosine to the least rate, which the constant steps keep; T5's falls in a line."""
    steps, rate = int(_needed(base, _STEPS)), float(_needed(base, paths["lr"]))
    least = float(_needed(base, paths["min_lr"]))
    ratio = base.get(_WARMUP_RATIO)
    if ratio is not None:
        params: dict[str, Any] = {
            "total_num_steps": steps,
            "warmup_min_lr": least,
            "warmup_max_lr": rate,
            "warmup_num_steps": int(ratio * steps),
            "warmup_type": "linear",
        }
        return {"type": "WarmupDecayLR", "params": params}
    params = {
        "total_num_steps": max(1, steps - int(base.get(paths["constant"], 0))),
        "warmup_num_steps": int(base.get(paths["warmup"], 0)),
        "warmup_type": "linear",
        "cos_min_ratio": least / rate,
    }
    return {"type": "WarmupCosineLR", "params": params}


def _needed(base: RawConfig, path: KeyPath) -> Any:
    value = base.get(path)
    if value is None:
        raise ConfigError(f"The base configuration lacks {'.'.join(path)}.")
    return value
