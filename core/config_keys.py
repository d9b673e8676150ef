"""The configuration keys that this project reads, and checks of their names.

The names are the keys of DeepSpeed's configuration JSON, so that one file serves both.
"""

from __future__ import annotations

import difflib

from .errors import ConfigError, nearest_known
from .knobs import RUNTIME_KNOBS, SPELLED
from .raw_config import KeyPath, RawConfig, dotted_name

ZERO: KeyPath = ("zero_optimization",)
MICRO_BATCH: KeyPath = SPELLED["micro_batch"].path
ACCUMULATION: KeyPath = SPELLED["accumulation"].path
TRAIN_BATCH_SIZE: KeyPath = ("train_batch_size",)
ZERO_STAGE: KeyPath = SPELLED["zero_stage"].path
BF16: KeyPath = ("bf16", "enabled")
FP16: KeyPath = ("fp16", "enabled")
LOSS_SCALE: KeyPath = ("fp16", "loss_scale")
CLIPPING: KeyPath = ("gradient_clipping",)
OPTIMIZER: KeyPath = ("optimizer",)
SCHEDULER: KeyPath = ("scheduler",)
RECOMPUTE: KeyPath = SPELLED["recompute"].path
RECOMPUTED: KeyPath = SPELLED["recompute_layers"].path
PARALLELISM: KeyPath = ("parallelism",)
DATA: KeyPath = SPELLED["data_parallel"].path
TENSOR: KeyPath = SPELLED["tensor_parallel"].path
PIPELINE: KeyPath = SPELLED["pipeline_parallel"].path
VIRTUAL_PIPELINE: KeyPath = SPELLED["virtual_pipeline"].path
PIPELINE_SCHEDULE: KeyPath = SPELLED["pipeline_schedule"].path
PIPELINE_SPLIT: KeyPath = SPELLED["pipeline_split"].path
MICRO_BATCH_SPLIT: KeyPath = SPELLED["micro_batch_split"].path
CONTEXT: KeyPath = SPELLED["context_parallel"].path
EXPERT: KeyPath = SPELLED["expert_parallel"].path
SEQUENCE_PARALLELISM: KeyPath = SPELLED["sequence_parallel"].path
AUTOTUNING: KeyPath = ("autotuning",)
SCHEMA_KEY = "$schema"
"""Names a JSON Schema for editors; it says nothing of a training."""
MAPPINGS: tuple[KeyPath, ...] = (("arg_mappings",), ("args_mapping",))
"""A section of ``autotuning`` that DeepSpeed's documentation also shows at the top level."""

TOP_LEVEL = frozenset(
    path[0]
    for path in (
        *(knob.path for knob in (*SPELLED.values(), *RUNTIME_KNOBS.values())),
        *(TRAIN_BATCH_SIZE, BF16, FP16, CLIPPING, OPTIMIZER, SCHEDULER, AUTOTUNING, *MAPPINGS),
    )
)
_UNMISTAKABLE = (MICRO_BATCH, ZERO, AUTOTUNING)
SECTIONS = frozenset({"zero_optimization", "bf16", "fp16", "optimizer", "scheduler"}) | {
    "activation_checkpointing",
    "parallelism",
    "autotuning",
    "arg_mappings",
    "args_mapping",
}
PARALLELISM_KEYS = frozenset(
    knob.path[1] for knob in SPELLED.values() if knob.path[0] == PARALLELISM[0]
)
CHECKPOINTING_KEYS = frozenset(
    {
        "mode",
        "layers",
        "partition_activations",
        "cpu_checkpointing",
        "contiguous_memory_optimization",
        "number_checkpoints",
        "synchronize_checkpoint_boundary",
        "profile",
    }
)
_OPEN = ((ZERO[0], "all"), (PARALLELISM[0], "all"))
"""Sections of which a word says that all of it is searched."""
_SPELT_OTHERWISE = {
    "tensor_parallel": dotted_name(TENSOR),
    "sequence_parallel_size": dotted_name(CONTEXT),
    "data_parallel_size": dotted_name(DATA),
    "bfloat16": BF16[0],
}
"""Keys of DeepSpeed whose meaning has another name here."""
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
    """True if a document has any key that this project reads at its top level."""
    return any((name,) in raw for name in TOP_LEVEL)


def is_surely_ours(raw: RawConfig) -> bool:
    """True if a document is empty or has a key that other tools' files do not have."""
    return raw == RawConfig({}) or any((path[0],) in raw for path in _UNMISTAKABLE)


def is_of_arguments(raw: RawConfig) -> bool:
    """True if a document holds words of a command line: a section's name with a switch or word.

    ``bf16: true`` is an argument of a script, such as transformers' TrainingArguments has;
    DeepSpeed has a section of that name.
    """
    document = raw.to_dict()
    names = (name for name in SECTIONS if name not in dict(_OPEN) and name != ZERO[0])
    held = [document.get(name) for name in names]
    is_word = any(
        isinstance(value, bool) or (isinstance(value, str) and value != "auto") for value in held
    )
    return is_word and not is_surely_ours(raw)


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
        if not isinstance(document[name], dict) and (name, document[name]) not in _OPEN:
            raise ConfigError(f"{name} is {document[name]!r}, but must be a section ({{…}}).")
    for key in () if document.get(PARALLELISM[0]) == "all" else document.get(PARALLELISM[0], ()):
        if key not in PARALLELISM_KEYS:
            raise ConfigError(
                f"parallelism.{key} is unknown; {nearest_known(key, PARALLELISM_KEYS)}"
            )
    near = (_near_miss(key) for key in document if key not in TOP_LEVEL)
    return (*(warning for warning in near if warning), *_external_zero_keys(document))


def _near_miss(key: str) -> str | None:
    if key in _SPELT_OTHERWISE:
        return f"{key} is read by DeepSpeed only; this runtime reads {_SPELT_OTHERWISE[key]}."
    if key in _DEEPSPEED_TOP_LEVEL:
        return None
    close = difflib.get_close_matches(key.strip(), TOP_LEVEL, n=1, cutoff=_NEAR)
    return f"'{key}' is not read; did you mean '{close[0]}'?" if close else None


def _external_zero_keys(document: dict[str, object]) -> tuple[str, ...]:
    """Warnings about DeepSpeed's own ZeRO settings; a listed one would search for nothing."""
    zero = document.get(ZERO[0], {})
    known = {knob.path[1] for knob in RUNTIME_KNOBS.values() if knob.path[0] == ZERO[0]}
    keys = sorted(zero.keys() - {"stage"} - known) if isinstance(zero, dict) else []
    warnings = []
    for key in keys:
        path = dotted_name((*ZERO, key))
        if isinstance(zero, dict) and isinstance(zero[key], list):
            raise ConfigError(
                f"{path} is a list to search, but this runtime has no such knob "
                f"({nearest_known(key, known)}); give it one value or remove it."
            )
        if not key.startswith("offload_"):
            near = difflib.get_close_matches(key, known, n=1, cutoff=_NEAR)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            warnings.append(f"{path} is not supported by this runtime and is ignored{hint}")
    return tuple(warnings)
