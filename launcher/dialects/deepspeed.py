"""The dialect ``deepspeed``: DeepSpeed's own scripts and configuration file. Not: our runtime.

The file is named by ``--deepspeed_config FILE`` or ``--deepspeed FILE``. A trial gets a real file;
only where the user's own argument holds the document itself, in base64, a trial's does, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.batches import GlobalBatchRule
from autoconf_launch.autotuner.choices import ChoiceKind, KnobChoice
from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    KnobValue,
    Layout,
    Path,
    Precision,
    RawConfig,
    batch_split,
    data_parallel_degree,
    dotted,
)
from autoconf_launch.core import config_keys as keys
from autoconf_launch.tuning_spaces import (
    FOREIGN,
    Section,
    ZeroSearch,
    default_space,
    given_knobs,
    parse_space,
    zero_choices,
)

from .arguments import path_argument, with_path_argument
from .base import Rendered, ScriptSource, TrialNeeds, UserSettings
from .listed_keys import with_listed
from .native import is_deepspeeds, with_mapped_arguments
from .open_document import decided, settings_for
from .own_asides import with_own_asides
from .script_facts import facts_of
from .spellings.deepspeed import KNOWN
from .trackers import silent
from .versions import check_version

_CHECKPOINTING = keys.RECOMPUTE[0]
_STAGES = (0, 1, 2, 3)
_CHECKED = ("zero_stage", "micro_batch", "accumulation")
_PACKAGE = "deepspeed"


class DeepSpeedDialect:
    """Scripts that call ``deepspeed.initialize`` with a configuration file."""

    name = "deepspeed"

    def detects(self, source: ScriptSource) -> bool:
        """Its arguments name a document, and it imports deepspeed or lets a module do so."""
        if is_deepspeeds(source):
            return True
        return source.config_argument is not None and facts_of(source.text).imports(_PACKAGE)

    def read(
        self,
        source: ScriptSource,
        *,
        world_size: int,
        overrides: tuple[tuple[str, str], ...] = (),
        allow_global_batch_change: bool = False,
    ) -> UserSettings:
        """See :class:`Dialect`."""
        if source.config_argument is None:
            raise ConfigError(
                "The script's arguments name no DeepSpeed configuration; give one with "
                "--deepspeed_config FILE among them."
            )
        listed = with_listed(source)
        settings = settings_for(listed, overrides)
        document = decided(listed, settings)
        data = data_parallel_degree(world_size, tensor=settings.mp_size)
        micro, accumulation = batch_split(document, data_parallel=data)
        stages = _stage_choice(listed.config)
        further = _further(listed, settings, stages)
        stage = stages.values[0] if stages.how is not ChoiceKind.FREE else _stage(document)
        layout = Layout(
            data_parallel=data,
            tensor_parallel=settings.mp_size,
            zero_stage=int(stage or 0),
            micro_batch=micro,
            accumulation=accumulation,
        )
        return UserSettings(
            baseline=Candidate(layout=layout, extras=_usual(further, layout.zero_stage)),
            choices=(stages, _micro_choice(listed.config, micro), *further),
            batch_rule=_rule(listed, settings, layout, allow_global_batch_change),
            facts=_facts(document),
            settings=settings,
            warnings=(*source.warnings, *check_version(source, KNOWN)),
        )

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """See :class:`Dialect`."""
        listed = with_listed(source)
        settings = settings_for(listed)
        document = decided(listed, settings)
        layout = candidate.layout
        for path, value, absent in (
            (keys.ZERO_STAGE, layout.zero_stage, 0),
            (keys.MICRO_BATCH, layout.micro_batch, None),
            (keys.ACCUMULATION, layout.accumulation, None),
        ):
            if document.get(path, absent) != value:
                document = document.with_value(path, value)
        if keys.GLOBAL_BATCH in document:
            document = document.with_value(keys.GLOBAL_BATCH, layout.global_batch)
        document = _with_further(document, source, candidate.extras)
        arguments = with_mapped_arguments(source.script_args, document, settings)
        for path in (keys.AUTOTUNING, *keys.MAPPINGS):
            document = document.without(path)
        there = encoded(document) if _is_encoded(source) else config_path
        return Rendered(
            config=document,
            script_args=with_path_argument(arguments, source.config_argument, there),
            checked=tuple((knob, "the DeepSpeed configuration") for knob in _CHECKED),
        )

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """Trackers that the document turns on are off; files of monitors are not written."""
        document = rendered.config
        for name in ("wandb", "tensorboard", "csv_monitor", "comet"):
            if document.get((name, "enabled")):
                document = document.with_value((name, "enabled"), value=False)
        environment = (*rendered.environment, *silent(needs.folder))
        silenced = replace(rendered, config=document, environment=environment)
        return with_own_asides(silenced, source, needs)


def out_of_reach(source: ScriptSource) -> str | None:
    """That a script gives DeepSpeed a configuration of its own, where it does: a sentence."""
    facts = facts_of(source.text)
    calls = facts.imports(_PACKAGE) and "initialize" in facts.called
    if not calls or source.config_argument is not None:
        return None
    return (
        "The script calls deepspeed.initialize, but its arguments name no configuration file: "
        "what stands in its own code cannot be tuned. Let it read a file that is given by "
        "--deepspeed_config FILE (deepspeed.add_config_arguments declares that)."
    )


def encoded(document: RawConfig) -> str:
    """The document in base64, as DeepSpeed takes it in place of a path."""
    return base64.urlsafe_b64encode(document.to_json().encode()).decode()


def decoded(argument: str) -> RawConfig | None:
    """The document that an argument holds in base64; None where it holds none."""
    try:
        document = json.loads(base64.urlsafe_b64decode(argument.encode()))
    except (ValueError, binascii.Error):
        return None
    return RawConfig(document) if isinstance(document, dict) else None


def _is_encoded(source: ScriptSource) -> bool:
    position = source.config_argument
    held = path_argument(source.script_args, position) if position is not None else ""
    return decoded(held) is not None


def _stage(document: RawConfig) -> int:
    stage = document.get(keys.ZERO_STAGE, 0)
    if stage not in _STAGES or isinstance(stage, bool):
        raise ConfigError(f"zero_optimization.stage is {stage!r}, but ZeRO has stages 0 to 3.")
    return int(stage)


def _stage_choice(config: RawConfig) -> KnobChoice:
    given = config.get(keys.ZERO_STAGE)
    if given in (None, "all", "auto"):
        return KnobChoice("zero_stage", _STAGES, ChoiceKind.FREE, origin="default")
    values = given if isinstance(given, list) else [given]
    stages = tuple(_stage(RawConfig({}).with_value(keys.ZERO_STAGE, value)) for value in values)
    kind = ChoiceKind.LISTED if isinstance(given, list) else ChoiceKind.PINNED
    return KnobChoice("zero_stage", stages, kind)


def _micro_choice(config: RawConfig, micro: int) -> KnobChoice:
    given = config.get(keys.MICRO_BATCH)
    if isinstance(given, list):
        return KnobChoice("micro_batch", tuple(given), ChoiceKind.LISTED)
    return KnobChoice("micro_batch", (micro,), ChoiceKind.MINIMUM)


def _rule(
    source: ScriptSource, settings: AutotuningSettings, layout: Layout, allow_change: bool
) -> GlobalBatchRule:
    stated = isinstance(source.config.get(keys.GLOBAL_BATCH), int)
    maximum = settings.max_train_batch_size
    if allow_change or (maximum is not None and not stated):
        return GlobalBatchRule(maximum=maximum)
    return GlobalBatchRule(pinned=layout.global_batch)


def _further(
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
        FOREIGN,
    )
    return (*zero, *_checkpointing(source.config))


def _checkpointing(config: RawConfig) -> tuple[KnobChoice, ...]:
    section = config.get((_CHECKPOINTING,))
    found = []
    for path, value in RawConfig(section if isinstance(section, dict) else {}).leaves():
        if path and isinstance(value, list):
            name = dotted((_CHECKPOINTING, *path))
            found.append(KnobChoice(name, tuple(value), ChoiceKind.LISTED))
    return tuple(found)


def _usual(choices: tuple[KnobChoice, ...], stage: int) -> tuple[tuple[str, KnobValue], ...]:
    return tuple((c.knob, c.usual) for c in choices if c.usual is not None and c.is_for(stage))


def _with_further(
    document: RawConfig, source: ScriptSource, extras: tuple[tuple[str, KnobValue], ...]
) -> RawConfig:
    given = {name for name, _ in given_knobs(source.config)}
    for name in sorted(given - {name for name, _ in extras}):
        document = document.without((*keys.ZERO, *name.split(".")))
    for name, value in extras:
        path: Path = tuple(name.split("."))
        path = path if path[0] == _CHECKPOINTING else (*keys.ZERO, *path)
        if document.get(path) != value:
            document = document.with_value(path, value)
    return document


def _facts(document: RawConfig) -> TrainingFacts:
    kinds = {keys.BF16: Precision.BF16, keys.FP16: Precision.FP16}
    on = [kind for path, kind in kinds.items() if document.get(path) is True]
    optimizer: Any = document.get((*keys.OPTIMIZER, "type"))
    return TrainingFacts(
        optimizer=optimizer if isinstance(optimizer, str) else None,
        precision=on[0] if on else Precision.FP32,
    )
