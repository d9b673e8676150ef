"""The dialect ``deepspeed``: DeepSpeed's own scripts and configuration file. Not: our runtime.

The file is named by ``--deepspeed_config FILE`` or ``--deepspeed FILE``. A trial gets a real file;
only where the user's own argument holds the document itself, in base64, a trial's does, too.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace

from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Layout,
    RawConfig,
    batch_split,
    data_parallel_degree,
)
from autoconf_launch.core import config_keys as keys

from ..script import ScriptSource
from ..spelling import (
    Rendered,
    TrialNeeds,
    UserSettings,
    check_version,
    fixed_accumulation,
    on_varying_batch,
    open_document,
    path_argument,
    silent,
    with_own_asides,
    with_path_argument,
)
from .builtin import is_deepspeeds, with_mapped_arguments
from .deepspeed_file import (
    DEEPSPEED_VERSIONS,
    batch_rule,
    document_facts,
    further_choices,
    micro_batch_choice,
    on_open_batch,
    stage_choice,
    usual_values,
    with_further,
    without_monitors,
    zero_stage,
)

_CHECKED = ("zero_stage", "micro_batch", "accumulation")
_PACKAGE = "deepspeed"
_WANT_ZERO = ("transformers", "accelerate")
"""What refuses a file without a section of ZeRO."""


class DeepSpeedDialect:
    """Scripts that call ``deepspeed.initialize`` with a configuration file."""

    name = "deepspeed"
    is_external, reads_document = True, True

    def detects(self, source: ScriptSource) -> bool:
        """Its arguments name a document, and it imports deepspeed or lets a module do so."""
        if is_deepspeeds(source):
            return True
        return source.config_argument is not None and source.facts.imports(_PACKAGE)

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        """See :class:`Dialect`."""
        if source.config_argument is None:
            raise ConfigError(
                "The script's arguments name no DeepSpeed configuration; give one with "
                "--deepspeed_config FILE among them."
            )
        listed, settings, document = open_document(source, fills_auto=False)
        data = data_parallel_degree(world_size, tensor=settings.mp_size)
        micro, accumulation = batch_split(document, data_parallel=data)
        stages = stage_choice(listed.config)
        further = further_choices(listed, settings, stages)
        layout = Layout(
            data_parallel=data,
            tensor_parallel=settings.mp_size,
            zero_stage=zero_stage(document),
            micro_batch=micro,
            accumulation=accumulation,
        )
        today = layout.global_batch
        rule = batch_rule(listed, settings, today)
        fixed = fixed_accumulation(listed.config, document.get(keys.ACCUMULATION), rule)
        return UserSettings(
            baseline=Candidate(layout=layout, extras=usual_values(further, layout.zero_stage)),
            choices=(stages, micro_batch_choice(listed.config, micro), *fixed, *further),
            batch_rule=rule,
            facts=document_facts(document),
            settings=settings,
            warnings=(
                *source.warnings,
                *check_version(source, DEEPSPEED_VERSIONS),
                *on_varying_batch(fixed),
                *on_open_batch(listed, rule, today),
            ),
        )

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """See :class:`Dialect`."""
        listed, settings, document = open_document(source, fills_auto=False)
        layout = candidate.layout
        wants_section = source.facts.imports(*_WANT_ZERO)
        for path, value, absent in (
            (keys.ZERO_STAGE, layout.zero_stage, None if wants_section else 0),
            (keys.MICRO_BATCH, layout.micro_batch, None),
            (keys.ACCUMULATION, layout.accumulation, None),
        ):
            if document.get(path, absent) != value:
                document = document.with_value(path, value)
        if keys.TRAIN_BATCH_SIZE in document:
            document = document.with_value(keys.TRAIN_BATCH_SIZE, layout.global_batch)
        document = with_further(document, listed.config, candidate.extras)
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
        document = without_monitors(rendered.config)
        environment = (*rendered.environment, *silent(needs.folder))
        silenced = replace(rendered, config=document, environment=environment)
        return with_own_asides(silenced, source, needs)


def out_of_reach(source: ScriptSource) -> str | None:
    """Say that a script gives DeepSpeed its own configuration; None where it does not."""
    facts = source.facts
    calls = facts.imports(_PACKAGE) and "initialize" in facts.called
    if not calls or source.config_argument is not None:
        return None
    return (
        "The script calls deepspeed.initialize, but its arguments name no configuration file: "
        "settings in its own code cannot be tuned. Let it read the file given by "
        "--deepspeed_config FILE (deepspeed.add_config_arguments declares the argument)."
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
