"""The dialect ``deepspeed``: DeepSpeed's own scripts and configuration file.

The file is named by ``--deepspeed_config FILE`` or ``--deepspeed FILE``. A trial gets a file, or a
document in base64 if the user's own argument is one.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
)
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    KeyPath,
    KnobValue,
    Layout,
    Optimizer,
    Precision,
    RawConfig,
    Workload,
    batch_split,
    dotted_name,
    external_data_parallel_degree,
    integer_value,
)
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

from ..script import LIGHTNING_PACKAGES, ScriptSource
from ..spelling import (
    FrameworkFacts,
    Rendered,
    TrialNeeds,
    UserSettings,
    check_version,
    fixed_accumulation,
    lists_micro_batches,
    move_asides,
    on_varying_batch,
    open_document,
    path_argument,
    silent_variables,
    with_path_argument,
)
from .builtin import is_deepspeeds, with_mapped_arguments
from .deepspeed_keys import (
    DEEPSPEED_KEYS,
    DEEPSPEED_MONITORS,
    has_tensor_ranks,
    is_on,
    key_notes,
    key_warnings,
    model_ranks,
    precision_section,
    with_counted_batch,
    with_current_keys,
)

ZERO_KEYS = tuple(name for name, _ in DEEPSPEED_KEYS[keys.ZERO].treatments())
_CHECKPOINTING = keys.RECOMPUTE[0]
_STAGES = (0, 1, 2, 3)
_CHECKED = ("zero_stage", "micro_batch", "accumulation")
_PACKAGE = "deepspeed"
_FILL_AUTO = ("transformers", "accelerate", *LIGHTNING_PACKAGES)
_WITHOUT_DEFAULT = (keys.OPTIMIZER, keys.SCHEDULER, keys.CLIPPING)
"""Sections in which DeepSpeed does not skip "auto"."""
_AUTO = re.compile("[\"']auto[\"']")
_WANT_ZERO = ("transformers", "accelerate")
"""Packages that refuse a file without a ZeRO section."""


def zero_stage(document: RawConfig) -> int:
    """The ZeRO stage of a document that has one value for it.

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


def micro_batch_choice(config: RawConfig, micro: int | None) -> KnobChoice:
    """The listed micro-batches, or from ``micro`` up; None: from 1."""
    given = config.get(keys.MICRO_BATCH)
    if isinstance(given, list):
        sizes = tuple(_micro_batch(value) for value in given)
        return KnobChoice("micro_batch", sizes, ChoiceKind.LISTED)
    least = () if micro is None else (micro,)
    return KnobChoice("micro_batch", least, ChoiceKind.MINIMUM)


def _micro_batch(value: Any) -> Any:
    one = RawConfig({}).with_value(keys.MICRO_BATCH, value)
    return integer_value(one, keys.MICRO_BATCH, value)


def batch_rule(source: ScriptSource, settings: AutotuningSettings, today: int) -> GlobalBatchRule:
    """The global batch as DeepSpeed's Autotuner treats it, except that a stated one stays.

    Without ``train_batch_size``, and with an accumulation that is "auto" or omitted, it looks for
    the largest micro-batch that runs; ``max_train_batch_size`` bounds the global batch.

    Source:
        DeepSpeed Autotuning documentation, "Configuring Train Micro-Batch Size".
    """
    config, maximum = source.config, settings.max_train_batch_size
    stated = isinstance(config.get(keys.TRAIN_BATCH_SIZE), int)
    opens = maximum is not None or not _accumulates(config) or lists_micro_batches(config)
    allowed = source.words.allow_global_batch_change
    if source.words.keep_global_batch or not (allowed or (opens and not stated)):
        return GlobalBatchRule(pinned=today)
    return GlobalBatchRule(maximum=maximum)


def on_open_batch(source: ScriptSource, rule: GlobalBatchRule, today: int) -> tuple[str, ...]:
    """A sentence if only the file lets the global batch vary; see on_varying_batch."""
    config = source.config
    listed = isinstance(config.get(keys.MICRO_BATCH), list)
    if rule != GlobalBatchRule() or source.words.allow_global_batch_change:
        return ()
    if listed and (_accumulates(config) or not lists_micro_batches(config)):
        return ()
    if listed:
        return (
            "The DeepSpeed configuration lists micro-batches and states no global batch, so the "
            f"global batch varies (today {today}); --keep-global-batch pins it.",
        )
    return (
        f"The DeepSpeed configuration states no global batch, so batches larger than today's "
        f"{today} are tried, as DeepSpeed's Autotuner does; --keep-global-batch pins it.",
    )


def _accumulates(config: RawConfig) -> bool:
    return config.get(keys.ACCUMULATION) not in (None, "auto")


def further_choices(
    source: ScriptSource, settings: AutotuningSettings, stages: KnobChoice
) -> tuple[KnobChoice, ...]:
    """ZeRO keys for each stage, and lists among the keys of activation checkpointing."""
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
    """The file's values for a stage's ZeRO knobs."""
    return tuple((c.knob, c.usual) for c in choices if c.usual is not None and c.is_for(stage))


def with_further(
    document: RawConfig, config: RawConfig, extras: tuple[tuple[str, KnobValue], ...]
) -> RawConfig:
    """The document with exactly these ZeRO knobs among the knobs that ``config`` sets."""
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
    """The document with its trackers turned off."""
    for name in DEEPSPEED_MONITORS:
        if document.get((name, "enabled")):
            document = document.with_value((name, "enabled"), value=False)
    return document


def document_workload(document: RawConfig) -> Workload:
    """Precision and optimizer, if the document states them."""
    kinds = {
        (precision_section(document), "enabled"): Precision.BF16,
        keys.FP16: Precision.FP16,
    }
    on = [kind for path, kind in kinds.items() if is_on(document, path)]
    optimizer: Any = document.get((*keys.OPTIMIZER, "type"))
    return Workload(
        optimizer=Optimizer.from_name(optimizer if isinstance(optimizer, str) else None),
        precision=on[0] if on else Precision.FP32,
    )


def _checkpointing(config: RawConfig) -> tuple[KnobChoice, ...]:
    section = config.get((_CHECKPOINTING,))
    found = []
    for path, value in RawConfig(section if isinstance(section, dict) else {}).leaves():
        if path and isinstance(value, list):
            name = dotted_name((_CHECKPOINTING, *path))
            if not value or not all(type(x) in (bool, int, float, str) for x in value):
                raise ConfigError(
                    f"{name} is {value!r}, but must list numbers, words, true or false."
                )
            found.append(KnobChoice(name, tuple(value), ChoiceKind.LISTED))
    return tuple(found)


class DeepSpeedDialect:
    """Scripts that call ``deepspeed.initialize`` with a configuration file."""

    name = "deepspeed"
    framework = FrameworkFacts(package="deepspeed", newest=(0, 19), readers=("deepspeed",))
    is_external, reads_document = True, True

    def detects(self, source: ScriptSource) -> bool:
        if is_deepspeeds(source):
            return True
        return source.config_argument is not None and source.facts.imports(_PACKAGE)

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        if source.config_argument is None:
            raise ConfigError(
                "The script's arguments name no DeepSpeed configuration; give one with "
                "--deepspeed_config FILE among them."
            )
        source = with_current_keys(source)
        listed, settings, document, _ = open_document(source, fills_auto=False)
        _refuse_unfilled(listed, document)
        tensor, context = model_ranks(document, world_size=world_size, mp_size=settings.mp_size)
        data = external_data_parallel_degree(world_size, tensor * context)
        document = with_counted_batch(document, data)
        micro, accumulation = batch_split(document, data_parallel=data)
        stages = stage_choice(listed.config)
        further = further_choices(listed, settings, stages)
        layout = Layout(
            data_parallel=data,
            tensor_parallel=tensor,
            context_parallel=context,
            zero_stage=zero_stage(document),
            micro_batch=micro,
            accumulation=accumulation,
        )
        today = layout.global_batch
        least = micro if keys.MICRO_BATCH in document else None
        rule = batch_rule(listed, settings, today)
        fixed = fixed_accumulation(listed.config, document.get(keys.ACCUMULATION), rule)
        return UserSettings(
            baseline=Candidate(layout=layout, extras=usual_values(further, layout.zero_stage)),
            choices=(stages, micro_batch_choice(listed.config, least), *fixed, *further),
            batch_rule=rule,
            workload=document_workload(document),
            settings=settings,
            warnings=(
                *source.warnings,
                *check_version(source, self.framework),
                *key_warnings(source),
            ),
            notes=(
                *on_varying_batch(fixed),
                *on_open_batch(listed, rule, today),
                *key_notes(source.config),
            ),
        )

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        source = with_current_keys(source)
        listed, settings, document, _ = open_document(source, fills_auto=False)
        layout = candidate.layout
        wants_section = source.facts.imports(*_WANT_ZERO)
        for path, value, absent in (
            (keys.ZERO_STAGE, layout.zero_stage, None if wants_section else 0),
            (keys.MICRO_BATCH, layout.micro_batch, None),
            (keys.ACCUMULATION, layout.accumulation, None),
        ):
            if document.get(path, absent) != value:
                document = document.with_value(path, value)
        if has_tensor_ranks(document):
            document = document.without(keys.TRAIN_BATCH_SIZE)
        elif keys.TRAIN_BATCH_SIZE in document:
            document = document.with_value(keys.TRAIN_BATCH_SIZE, layout.global_batch)
        document = with_further(document, listed.config, candidate.extras)
        arguments = with_mapped_arguments(source.script_args, document, settings)
        for path in (keys.AUTOTUNING, *keys.MAPPINGS):
            document = document.without(path)
        there = encode_document(document) if _is_encoded(source) else config_path
        return Rendered(
            config=document,
            script_args=with_path_argument(arguments, source.config_argument, there),
            checked=tuple((knob, "the DeepSpeed configuration") for knob in _CHECKED),
        )

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        document = without_monitors(rendered.config)
        environment = (*rendered.environment, *silent_variables(needs.folder))
        silenced = replace(rendered, config=document, environment=environment)
        return move_asides(silenced, source, needs)


def _refuse_unfilled(source: ScriptSource, document: RawConfig) -> None:
    fills = any(facts.imports(*_FILL_AUTO) for facts in source.all_facts)
    if fills or any(map(_AUTO.search, source.texts)) or not source.text:
        return
    left = [p for p, value in document.leaves() if value == "auto" and p[:1] in _WITHOUT_DEFAULT]
    if left:
        *names, last = map(dotted_name, left)
        several = f"{', '.join(names)} and {last} are" if names else f"{last} is"
        raise ConfigError(
            f'{several} "auto", which the Hugging Face Trainer and Accelerate fill, but this '
            "script uses neither; give values."
        )


def on_configuration_in_source(source: ScriptSource) -> str | None:
    """A sentence if a script passes DeepSpeed a configuration from its own code; else None."""
    facts = source.facts
    calls = facts.imports(_PACKAGE) and "initialize" in facts.called
    if not calls or source.config_argument is not None:
        return None
    return (
        "The script calls deepspeed.initialize, but its arguments name no configuration file: "
        "settings in its own code cannot be tuned. Let it read the file given by "
        "--deepspeed_config FILE (deepspeed.add_config_arguments declares the argument)."
    )


def encode_document(document: RawConfig) -> str:
    """The document in base64, which DeepSpeed accepts instead of a path."""
    return base64.urlsafe_b64encode(document.to_json().encode()).decode()


def decode_document(argument: str) -> RawConfig | None:
    """The document that an argument holds in base64; None if it holds none."""
    try:
        document = json.loads(base64.urlsafe_b64decode(argument.encode()))
    except (ValueError, RecursionError):
        return None
    return RawConfig(document) if isinstance(document, dict) else None


def _is_encoded(source: ScriptSource) -> bool:
    position = source.config_argument
    held = path_argument(source.script_args, position) if position is not None else ""
    return decode_document(held) is not None
