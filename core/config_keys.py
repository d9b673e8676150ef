"""The configuration keys that this project reads, and checks of their names. Not: their values.

The names are DeepSpeed's (its configuration JSON documentation), so that a file serves both.
"""

from __future__ import annotations

import difflib

from .errors import ConfigError, nearest_known
from .raw_config import KeyPath, RawConfig, dotted
from .zero_knobs import ZERO as ZERO
from .zero_knobs import ZERO_KNOBS

MICRO_BATCH: KeyPath = ("train_micro_batch_size_per_gpu",)
ACCUMULATION: KeyPath = ("gradient_accumulation_steps",)
GLOBAL_BATCH: KeyPath = ("train_batch_size",)
ZERO_STAGE: KeyPath = ("zero_optimization", "stage")
BF16: KeyPath = ("bf16", "enabled")
FP16: KeyPath = ("fp16", "enabled")
LOSS_SCALE: KeyPath = ("fp16", "loss_scale")
CLIPPING: KeyPath = ("gradient_clipping",)
OPTIMIZER: KeyPath = ("optimizer",)
SCHEDULER: KeyPath = ("scheduler",)
RECOMPUTE: KeyPath = ("activation_checkpointing", "mode")
PARALLELISM: KeyPath = ("parallelism",)
AUTOTUNING: KeyPath = ("autotuning",)
MAPPINGS: tuple[KeyPath, ...] = (("arg_mappings",), ("args_mapping",))
"""A section of ``autotuning`` that DeepSpeed's documentation also shows at the top level."""

TOP_LEVEL = frozenset(
    path[0]
    for path in (
        MICRO_BATCH,
        ACCUMULATION,
        GLOBAL_BATCH,
        ZERO,
        BF16,
        FP16,
        CLIPPING,
        OPTIMIZER,
        SCHEDULER,
        RECOMPUTE,
        PARALLELISM,
        AUTOTUNING,
        *MAPPINGS,
    )
)
SECTIONS = frozenset({"zero_optimization", "bf16", "fp16", "optimizer", "scheduler"}) | {
    "activation_checkpointing",
    "parallelism",
    "autotuning",
    "arg_mappings",
    "args_mapping",
}
PARALLELISM_KEYS = frozenset(
    {"data", "tensor", "pipeline", "virtual_pipeline", "context", "expert", "sequence_parallel"}
)
CHECKPOINTING_KEYS = frozenset(
    {
        "mode",
        "partition_activations",
        "cpu_checkpointing",
        "contiguous_memory_optimization",
        "number_checkpoints",
        "synchronize_checkpoint_boundary",
        "profile",
    }
)
_NEAR = 0.85
_DEEPSPEED_TOP_LEVEL = frozenset(
    {
        "steps_per_print",
        "wall_clock_breakdown",
        "zero_allow_untested_optimizer",
        "prescale_gradients",
    }
    | {"gradient_predivide_factor", "sparse_gradients", "dump_state", "communication_data_type"}
    | {"memory_breakdown", "flops_profiler", "tensorboard", "wandb", "csv_monitor", "comms_logger"}
    | {"amp", "aio", "data_types", "torch_autocast", "checkpoint", "seed"}
)


def is_ours(raw: RawConfig) -> bool:
    """Whether a document has any key that this project reads at its top level."""
    return any((name,) in raw for name in TOP_LEVEL)


def check_keys(raw: RawConfig) -> tuple[str, ...]:
    """Check names of keys; a script's own sections pass untouched.

    Returns:
        Warnings: near misses of a known name, and DeepSpeed settings without effect here.

    Raises:
        ConfigError: a section is not an object, ``parallelism`` has an unknown key, or a list asks
            to search a knob of ZeRO that this runtime does not have.
    """
    document = raw.to_dict()
    for name in sorted(SECTIONS & document.keys()):
        if not isinstance(document[name], dict) and (name, document[name]) != (ZERO[0], "all"):
            raise ConfigError(f"{name} is {document[name]!r}, but must be a section ({{…}}).")
    for key in document.get(PARALLELISM[0], {}):
        if key not in PARALLELISM_KEYS:
            raise ConfigError(
                f"parallelism.{key} is unknown; {nearest_known(key, PARALLELISM_KEYS)}"
            )
    near = (_near_miss(key) for key in document if key not in TOP_LEVEL)
    return (*(warning for warning in near if warning), *_foreign_zero_keys(document))


def _near_miss(key: str) -> str | None:
    if key in _DEEPSPEED_TOP_LEVEL:
        return None
    close = difflib.get_close_matches(key.strip(), TOP_LEVEL, n=1, cutoff=_NEAR)
    return f"'{key}' is not read; did you mean '{close[0]}'?" if close else None


def _foreign_zero_keys(document: dict[str, object]) -> tuple[str, ...]:
    """Warnings of DeepSpeed's own ZeRO settings; one that is listed would search for nothing."""
    zero = document.get(ZERO[0], {})
    keys = sorted(zero.keys() - {"stage"} - ZERO_KNOBS.keys()) if isinstance(zero, dict) else []
    warnings = []
    for key in keys:
        path = dotted((*ZERO, key))
        if isinstance(zero, dict) and isinstance(zero[key], list):
            raise ConfigError(
                f"{path} is a list to search, but this runtime has no such knob "
                f"({nearest_known(key, ZERO_KNOBS)}); give it one value or remove it."
            )
        if not key.startswith("offload_"):
            near = difflib.get_close_matches(key, ZERO_KNOBS, n=1, cutoff=_NEAR)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            warnings.append(f"{path} is not a knob of this runtime and has no effect in it{hint}")
    return tuple(warnings)
