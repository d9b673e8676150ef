"""The configuration keys that this project reads, and checks of their names.

The names are DeepSpeed's (its configuration JSON documentation), so that a file serves both.

They stand under ``zero_optimization`` in the document and are extras of a candidate.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from .errors import ConfigError, nearest_known, still_open
from .layout import KnobValue
from .raw_config import KeyPath, RawConfig, dotted_name

ZERO: KeyPath = ("zero_optimization",)
FIRST_FSDP_STAGE = 2
"""From this stage of ZeRO on FSDP2 trains; before it DDP, where all parallelism is of data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroKnob:
    """A knob of ``zero_optimization``.

    Attributes:
        name: its key under ``zero_optimization``.
        meaning: what it decides.
        stages: ZeRO stages that have it.
        default: what omitting it means.
        least: smallest whole number that it takes; None: it takes none.
        flags: truth values that it takes.
        needs_ranks: it has nothing to act on where one rank trains alone.
    """

    name: str
    meaning: str
    stages: tuple[int, ...]
    default: KnobValue
    least: int | None = None
    flags: tuple[bool, ...] = ()
    needs_ranks: bool = False

    def read(self, value: object) -> KnobValue:
        """A value of the document as this knob has it.

        Raises:
            ConfigError: the knob cannot have this value.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool):
            if value in self.flags:
                return value
        elif isinstance(value, int) and self.least is not None and value >= self.least:
            return value
        raise ConfigError(f"{self.path} is {value!r}, but must be {self._domain()}.")

    @property
    def needs_replicas(self) -> bool:
        """True if the knob belongs to DDP or its sharded optimizer, which need whole copies."""
        return max(self.stages) < FIRST_FSDP_STAGE

    def obstacle(
        self,
        *,
        zero_stage: int,
        data_parallel: int,
        value: KnobValue = None,
        model_ranks: int | None = None,
    ) -> str | None:
        """Why it cannot be applied there, as a phrase; None where it can.

        ``model_ranks`` have a part of the weights each; None: not known yet.
        """
        if zero_stage not in self.stages:
            has = " and ".join(map(str, self.stages))
            plural = "s" if len(self.stages) > 1 else ""
            return f"only ZeRO stage{plural} {has} can apply it, not stage {zero_stage}"
        if self.needs_replicas and (model_ranks or 1) > 1:
            return "DDP, which has it, does not train a model that several ranks share"
        if self.needs_ranks and data_parallel == 1:
            return "one data-parallel rank has no gradients to average"
        if self in (SHARD_RANKS, RESHARD_AFTER_FORWARD) and type(value) is int:
            if zero_stage < FIRST_FSDP_STAGE and model_ranks == 1:
                return "ZeRO 1 of whole copies shards the optimizer over all ranks"
            return _no_divisor(value, data_parallel)
        return None

    @property
    def path(self) -> str:
        """``zero_optimization.name`` for messages."""
        return dotted_name((*ZERO, self.name))

    def _domain(self) -> str:
        parts = [str(flag).lower() for flag in self.flags]
        if self.least is not None:
            parts.append(f"a whole number of at least {self.least}")
        return " or ".join(parts)


def _no_divisor(ranks: int, data_parallel: int) -> str | None:
    if 1 < ranks < data_parallel and data_parallel % ranks == 0:
        return None
    all_ranks = f"the {data_parallel} data-parallel ranks that shard"
    return f"{ranks} must divide {all_ranks} and be less than them"


_BOTH = (True, False)
SHARD_RANKS = ZeroKnob(
    name="shard_ranks",
    meaning="weights are sharded over all ranks, or over so many and copied over the others",
    stages=(1, 2, 3),
    default=True,
    least=2,
    flags=(True,),
)
RESHARD_AFTER_FORWARD = ZeroKnob(
    name="reshard_after_forward",
    meaning="after its forward pass a unit's weights return to shards over all ranks, or so many",
    stages=(3,),
    default=True,
    least=2,
    flags=(True,),
)
_ROWS = (
    ZeroKnob(
        name="bucket_cap_mb",
        meaning="MiB of gradients that DDP averages at once",
        stages=(0, 1),
        default=25,
        least=1,
        needs_ranks=True,
    ),
    ZeroKnob(
        name="gradient_as_bucket_view",
        meaning="gradients live in DDP's buckets",
        stages=(0, 1),
        default=True,
        flags=_BOTH,
        needs_ranks=True,
    ),
    ZeroKnob(
        name="parameters_as_bucket_view",
        meaning="ZeroRedundancyOptimizer sends weights by buckets",
        stages=(1,),
        default=False,
        flags=_BOTH,
    ),
    ZeroKnob(
        name="blocks_per_unit",
        meaning="repeated blocks that FSDP2 gathers at once",
        stages=(2, 3),
        default=1,
        least=1,
    ),
    ZeroKnob(
        name="forward_prefetch",
        meaning="units that FSDP2 gathers ahead in the forward pass",
        stages=(2, 3),
        default=0,
        least=0,
    ),
    SHARD_RANKS,
    RESHARD_AFTER_FORWARD,
    ZeroKnob(
        name="reshard_root",
        meaning="weights outside of blocks return to shards after the forward pass",
        stages=(3,),
        default=True,
        flags=_BOTH,
    ),
)
ZERO_KNOBS = {knob.name: knob for knob in _ROWS}
"""In the order in which names and tables have them."""


def read_zero_knobs(
    raw: RawConfig, *, zero_stage: int, data_parallel: int, model_ranks: int = 1
) -> tuple[tuple[str, KnobValue], ...]:
    """The knobs that a document names, with their values; see :meth:`ZeroKnob.obstacle`.

    Raises:
        ConfigError: a value is wrong, still a list, or cannot be applied at this stage.
    """
    found = []
    shards = data_parallel
    for name, knob in ZERO_KNOBS.items():
        given = raw.get((*ZERO, name))
        if given is None:
            continue
        if isinstance(given, list) or given == "auto":
            raise ConfigError(still_open(knob.path, given))
        value = knob.read(given)
        why = knob.obstacle(
            zero_stage=zero_stage,
            data_parallel=shards if knob is RESHARD_AFTER_FORWARD else data_parallel,
            value=value,
            model_ranks=model_ranks,
        )
        if why:
            raise ConfigError(f"{knob.path} is {given!r}, but {why}; remove it.")
        if knob is SHARD_RANKS and type(value) is int:
            shards = value
        found.append((name, value))
    return tuple(found)


MICRO_BATCH: KeyPath = ("train_micro_batch_size_per_gpu",)
ACCUMULATION: KeyPath = ("gradient_accumulation_steps",)
TRAIN_BATCH_SIZE: KeyPath = ("train_batch_size",)
ZERO_STAGE: KeyPath = ("zero_optimization", "stage")
BF16: KeyPath = ("bf16", "enabled")
FP16: KeyPath = ("fp16", "enabled")
LOSS_SCALE: KeyPath = ("fp16", "loss_scale")
CLIPPING: KeyPath = ("gradient_clipping",)
OPTIMIZER: KeyPath = ("optimizer",)
SCHEDULER: KeyPath = ("scheduler",)
RECOMPUTE: KeyPath = ("activation_checkpointing", "mode")
RECOMPUTED: KeyPath = ("activation_checkpointing", "layers")
PARALLELISM: KeyPath = ("parallelism",)
DATA: KeyPath = ("parallelism", "data")
TENSOR: KeyPath = ("parallelism", "tensor")
PIPELINE: KeyPath = ("parallelism", "pipeline")
VIRTUAL_PIPELINE: KeyPath = ("parallelism", "virtual_pipeline")
PIPELINE_SCHEDULE: KeyPath = ("parallelism", "pipeline_schedule")
PIPELINE_SPLIT: KeyPath = ("parallelism", "pipeline_split")
MICRO_BATCH_SPLIT: KeyPath = ("parallelism", "micro_batch_split")
CONTEXT: KeyPath = ("parallelism", "context")
EXPERT: KeyPath = ("parallelism", "expert")
SEQUENCE_PARALLELISM: KeyPath = ("parallelism", "sequence_parallel")
AUTOTUNING: KeyPath = ("autotuning",)
SCHEMA_KEY = "$schema"
"""Names a JSON Schema for editors; it says nothing of a training."""
MAPPINGS: tuple[KeyPath, ...] = (("arg_mappings",), ("args_mapping",))
"""A section of ``autotuning`` that DeepSpeed's documentation also shows at the top level."""

TOP_LEVEL = frozenset(
    path[0]
    for path in (
        MICRO_BATCH,
        ACCUMULATION,
        TRAIN_BATCH_SIZE,
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
_UNMISTAKABLE = (MICRO_BATCH, ZERO, AUTOTUNING)
SECTIONS = frozenset({"zero_optimization", "bf16", "fp16", "optimizer", "scheduler"}) | {
    "activation_checkpointing",
    "parallelism",
    "autotuning",
    "arg_mappings",
    "args_mapping",
}
PARALLELISM_KEYS = frozenset(
    path[1]
    for path in (
        *(DATA, TENSOR, PIPELINE, VIRTUAL_PIPELINE, CONTEXT, EXPERT, SEQUENCE_PARALLELISM),
        *(PIPELINE_SCHEDULE, PIPELINE_SPLIT, MICRO_BATCH_SPLIT),
    )
)
APPLIED_PARALLELISM = frozenset(
    path[1]
    for path in (
        *(DATA, TENSOR, CONTEXT, EXPERT, SEQUENCE_PARALLELISM, PIPELINE),
        *(VIRTUAL_PIPELINE, PIPELINE_SCHEDULE, PIPELINE_SPLIT, MICRO_BATCH_SPLIT),
    )
)
"""Knobs that our runtime applies."""
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
    """Warnings of DeepSpeed's own ZeRO settings; one that is listed would search for nothing."""
    zero = document.get(ZERO[0], {})
    keys = sorted(zero.keys() - {"stage"} - ZERO_KNOBS.keys()) if isinstance(zero, dict) else []
    warnings = []
    for key in keys:
        path = dotted_name((*ZERO, key))
        if isinstance(zero, dict) and isinstance(zero[key], list):
            raise ConfigError(
                f"{path} is a list to search, but this runtime has no such knob "
                f"({nearest_known(key, ZERO_KNOBS)}); give it one value or remove it."
            )
        if not key.startswith("offload_"):
            near = difflib.get_close_matches(key, ZERO_KNOBS, n=1, cutoff=_NEAR)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            warnings.append(f"{path} is not supported by this runtime and is ignored{hint}")
    return tuple(warnings)
