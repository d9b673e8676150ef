"""What a DeepSpeed configuration file asks to search, and a candidate's values in it.

Not: how a script gets the file (deepspeed, hf_trainer), nor what its arguments say.

Checked against ``runtime/zero/config.py`` of deepspeed 0.19.8 (PyPI); those behind ``stage3_``
are its aliases there.
"""

from __future__ import annotations

from typing import Any

from autoconf_launch.autotuner.cost import TrainingFacts
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
)
from autoconf_launch.core import ConfigError, KeyPath, KnobValue, Precision, RawConfig, dotted
from autoconf_launch.core import config_keys as keys
from autoconf_launch.tuning_spaces import (
    EXTERNAL_RULES,
    Section,
    ZeroSearch,
    default_space,
    given_knobs,
    parse_space,
    zero_choices,
)

from ..script import ScriptSource
from ..spelling import Known, lists_micro_batches

DEEPSPEED_VERSIONS = Known(package="deepspeed", oldest=(0, 0), newest=(0, 19))
"""The names below were checked in the newest; no older version is refused."""

ZERO_KEYS = (
    "contiguous_gradients",
    "reduce_scatter",
    "reduce_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "allgather_partitions",
    "allgather_bucket_size",
    "overlap_comm",
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "offload_param",
    "offload_optimizer",
    "sub_group_size",
    "ignore_unused_parameters",
    "round_robin_gradients",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_gradients",
    "memory_efficient_linear",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_module_granularity_threshold",
)


_CHECKPOINTING = keys.RECOMPUTE[0]
_STAGES = (0, 1, 2, 3)
_MONITORS = ("wandb", "tensorboard", "csv_monitor", "comet")


def zero_stage(document: RawConfig) -> int:
    """The stage of a document that has one value for it.

    Raises:
        ConfigError: ZeRO does not have this stage.
    """
    stage = document.get(keys.ZERO_STAGE, 0)
    if stage not in _STAGES or isinstance(stage, bool):
        raise ConfigError(f"zero_optimization.stage is {stage!r}, but ZeRO has stages 0 to 3.")
    return int(stage)


def stage_choice(config: RawConfig) -> KnobChoice:
    """All stages, unless the file names one or lists some."""
    given = config.get(keys.ZERO_STAGE)
    if given in (None, "all", "auto"):
        return KnobChoice("zero_stage", _STAGES, ChoiceKind.FREE, origin="default")
    values = given if isinstance(given, list) else [given]
    stages = tuple(zero_stage(RawConfig({}).with_value(keys.ZERO_STAGE, v)) for v in values)
    kind = ChoiceKind.LISTED if isinstance(given, list) else ChoiceKind.PINNED
    return KnobChoice("zero_stage", stages, kind)


def micro_batch_choice(config: RawConfig, micro: int) -> KnobChoice:
    """The listed micro-batches, or from ``micro`` up."""
    given = config.get(keys.MICRO_BATCH)
    if isinstance(given, list):
        return KnobChoice("micro_batch", tuple(given), ChoiceKind.LISTED)
    return KnobChoice("micro_batch", (micro,), ChoiceKind.MINIMUM)


def batch_rule(source: ScriptSource, settings: AutotuningSettings, today: int) -> GlobalBatchRule:
    """As DeepSpeed's Autotuner has it, but that a batch which the file states stays.

    Without ``train_batch_size``, and with an accumulation that is "auto" or left out, it looks
    for the largest micro-batch that runs; ``max_train_batch_size`` bounds the global batch.

    Source:
        DeepSpeed Autotuning documentation, "Configuring Train Micro-Batch Size".
    """
    config, maximum = source.config, settings.max_train_batch_size
    stated = isinstance(config.get(keys.TRAIN_BATCH_SIZE), int)
    accumulates = config.get(keys.ACCUMULATION) not in (None, "auto")
    opens = maximum is not None or not accumulates or lists_micro_batches(config)
    allowed = source.words.allow_global_batch_change
    if source.words.keep_global_batch or not (allowed or (opens and not stated)):
        return GlobalBatchRule(pinned=today)
    return GlobalBatchRule(maximum=maximum)


def on_open_batch(source: ScriptSource, rule: GlobalBatchRule, today: int) -> tuple[str, ...]:
    """What is said where the file alone lets the global batch grow without a bound."""
    listed = isinstance(source.config.get(keys.MICRO_BATCH), list)
    if rule != GlobalBatchRule() or listed or source.words.allow_global_batch_change:
        return ()
    return (
        f"The DeepSpeed configuration states no global batch, so batches larger than today's "
        f"{today} are tried, as DeepSpeed's Autotuner does; --keep-global-batch pins it.",
    )


def further_choices(
    source: ScriptSource, settings: AutotuningSettings, stages: KnobChoice
) -> tuple[KnobChoice, ...]:
    """Keys of ZeRO for each stage, and lists among the keys of activation checkpointing."""
    file = source.space
    zero = zero_choices(
        ZeroSearch(
            stages=tuple(int(stage or 0) for stage in stages.values),
            given=given_knobs(source.config),
            file=parse_space(file.document, Section.DEEPSPEED, file.name) if file else (),
            default=() if settings.fast else default_space(Section.DEEPSPEED),
        ),
        EXTERNAL_RULES,
    )
    return (*zero, *_checkpointing(source.config))


def usual_values(choices: tuple[KnobChoice, ...], stage: int) -> tuple[tuple[str, KnobValue], ...]:
    """What the file says of a stage's further knobs."""
    return tuple((c.knob, c.usual) for c in choices if c.usual is not None and c.is_for(stage))


def with_further(
    document: RawConfig, config: RawConfig, extras: tuple[tuple[str, KnobValue], ...]
) -> RawConfig:
    """The document with exactly these further knobs of those that ``config`` gives."""
    given = {name for name, _ in given_knobs(config)}
    for name in sorted(given - {name for name, _ in extras}):
        document = document.without((*keys.ZERO, *name.split(".")))
    for name, value in extras:
        path: KeyPath = tuple(name.split("."))
        path = path if path[0] == _CHECKPOINTING else (*keys.ZERO, *path)
        if document.get(path) != value:
            document = document.with_value(path, value)
    return document


def without_monitors(document: RawConfig) -> RawConfig:
    """The document with the trackers off that it turns on."""
    for name in _MONITORS:
        if document.get((name, "enabled")):
            document = document.with_value((name, "enabled"), value=False)
    return document


def document_facts(document: RawConfig) -> TrainingFacts:
    """Precision and optimizer, where the document says them."""
    kinds = {keys.BF16: Precision.BF16, keys.FP16: Precision.FP16}
    on = [kind for path, kind in kinds.items() if document.get(path) is True]
    optimizer: Any = document.get((*keys.OPTIMIZER, "type"))
    return TrainingFacts(
        optimizer=optimizer if isinstance(optimizer, str) else None,
        precision=on[0] if on else Precision.FP32,
    )


def _checkpointing(config: RawConfig) -> tuple[KnobChoice, ...]:
    section = config.get((_CHECKPOINTING,))
    found = []
    for path, value in RawConfig(section if isinstance(section, dict) else {}).leaves():
        if path and isinstance(value, list):
            name = dotted((_CHECKPOINTING, *path))
            found.append(KnobChoice(name, tuple(value), ChoiceKind.LISTED))
    return tuple(found)
