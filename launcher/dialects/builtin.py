"""The dialect of our own runtime: DeepSpeed's key names in one document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.cost import configured_workload
from autoconf_launch.autotuner.space import (
    LAYOUT_KNOBS,
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
)
from autoconf_launch.core import (
    PIPELINE_SCHEDULES,
    SPELLED,
    Candidate,
    ConfigError,
    KeyPath,
    Knob,
    Naming,
    RawConfig,
    Recompute,
    divisors,
    resolve,
)
from autoconf_launch.core import config_keys as keys
from autoconf_launch.tuning_spaces import (
    DEFAULT_ORIGIN,
    BuiltinRules,
    Section,
    ZeroSearch,
    default_families,
    default_space,
    parse_families,
    parse_space,
    zero_choices,
)

from ..script import ScriptSource
from ..spelling import (
    DEGREES,
    SPLITS,
    FrameworkFacts,
    OpenDocument,
    Rendered,
    TrialNeeds,
    UserSettings,
    fixed_accumulation,
    is_listed,
    lists_micro_batches,
    move_asides,
    on_unfilled,
    on_varying_batch,
    open_document,
    path_argument,
    set_argument,
    silent_variables,
    with_path_argument,
    with_runtime_knobs,
)

_DEEPSPEEDS = "--deepspeed_config"
_BATCH = ("micro_batch", "accumulation")
"""Knobs that a trial's document always has."""
_FOLLOW = ("data_parallel", "accumulation")
_COMMAND_LINE = "command line"
_INITIALIZE = "initialize"
_USUAL_SCHEDULE = PIPELINE_SCHEDULES[1]
"""Meaning of a missing key if each rank has one stage."""


def document_of(document: RawConfig, candidate: Candidate) -> RawConfig:
    """The document with all knobs of a candidate, and nothing else changed."""
    extras = dict(candidate.extras)
    for knob in SPELLED.values():
        if knob.naming is not Naming.NEVER:
            value = getattr(candidate.layout, knob.name, extras.get(knob.name))
            document = _with_knob(document, knob, value)
    return with_runtime_knobs(document, candidate.extras)


class BuiltinDialect:
    """Scripts that call ``autoconf_launch.runtime.initialize`` with a configuration file."""

    name, framework = "native", FrameworkFacts()
    is_external, reads_document = False, True

    def detects(self, source: ScriptSource) -> bool:
        """True for a document with our keys or without any."""
        named = keys.is_ours(source.config) or source.config_argument is not None
        return named and not is_deepspeeds(source)

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        opened = open_document(source)
        problems = (*on_unfilled(opened.unfilled), *_on_no_optimizer(opened.source))
        try:
            settings = _read(opened, world_size)
        except ConfigError as error:
            raise ConfigError(" ".join((*problems, str(error)))) from error
        if problems:
            raise ConfigError(" ".join(problems))
        return settings

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        source, settings, document, _ = open_document(source)
        document = document_of(document, candidate)
        if keys.TRAIN_BATCH_SIZE in document:
            document = document.with_value(keys.TRAIN_BATCH_SIZE, candidate.layout.global_batch)
        arguments = with_mapped_arguments(source.script_args, document, settings)
        for path in (keys.AUTOTUNING, *keys.MAPPINGS):
            document = document.without(path)
        return Rendered(
            config=document,
            script_args=with_path_argument(arguments, source.config_argument, config_path),
        )

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        quiet = replace(
            rendered, environment=(*rendered.environment, *silent_variables(needs.folder))
        )
        return move_asides(quiet, source, needs)


def is_deepspeeds(source: ScriptSource) -> bool:
    """True if a readable script takes its document by DeepSpeed's own argument."""
    position = source.config_argument
    if position is None or not source.text or source.facts.imports("autoconf_launch"):
        return False
    words = source.script_args[max(0, position - 1) : position + 1]
    return any(word.partition("=")[0] == _DEEPSPEEDS for word in words)


def _read(opened: OpenDocument, world_size: int) -> UserSettings:
    source, settings, document = opened.source, opened.settings, opened.decided
    warnings = keys.check_keys(source.config)
    document = _without_idle(_with_tensor_pinned(document, settings), source.config)
    choices = tuple(_choices(opened, document, world_size))
    knobs = _zero_choices(source, settings, choices[0], world_size)
    document = with_runtime_knobs(document, _usual(knobs, document.get(keys.ZERO_STAGE, 0)))
    resolved = resolve(document, world_size=world_size)
    today = resolved.layout.global_batch
    rule = _batch_rule(source, settings, today)
    fixed = fixed_accumulation(source.config, document.get(keys.ACCUMULATION), rule)
    return UserSettings(
        baseline=Candidate(layout=resolved.layout, extras=resolved.extras),
        choices=(*choices, *fixed, *knobs),
        batch_rule=rule,
        workload=configured_workload(resolved),
        settings=settings,
        warnings=(*source.warnings, *warnings),
        notes=on_varying_batch(fixed),
    )


def _on_no_optimizer(source: ScriptSource) -> tuple[str, ...]:
    """A sentence if neither the document nor the script has an optimizer.

    None if the call that would take one is not visible, or may be given one.
    """
    calls = [found for found in source.all_facts if _INITIALIZE in found.called]
    gives = any(_INITIALIZE in f.spread or f.keyword(_INITIALIZE, "optimizer") for f in calls)
    may_add = any(f"{q}optimizer{q}" in text for q in "\"'" for text in source.texts)
    if source.config.get(keys.OPTIMIZER) is not None or not calls or gives or may_add:
        return ()
    return (
        f"{_config_name(source)} has no optimizer; add "
        '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}} or pass optimizer= to initialize.',
    )


def _with_tensor_pinned(document: RawConfig, settings: AutotuningSettings) -> RawConfig:
    if settings.mp_size == 1:
        return document
    if document.get(keys.TENSOR, settings.mp_size) != settings.mp_size:
        raise ConfigError(
            f"autotuning.mp_size is {settings.mp_size}, but parallelism.tensor is "
            f"{document.get(keys.TENSOR)}; remove one of them."
        )
    return document.with_value(keys.TENSOR, settings.mp_size)


def _without_idle(document: RawConfig, given: RawConfig) -> RawConfig:
    """The baseline without keys that its own degree leaves idle, if other degrees are searched."""
    opened = opened_degrees(given)
    for knob in SPELLED.values():
        degree = tuple(knob.degree.split("."))
        searched = degree in opened or isinstance(given.get(degree), list)
        if searched and document.get(degree, 1) == 1:
            document = document.without(knob.path)
    is_full = document.get(keys.RECOMPUTE) == Recompute.FULL.value
    listed = isinstance(given.get(keys.RECOMPUTE), list)
    return document.without(keys.RECOMPUTED) if listed and not is_full else document


def _choices(opened: OpenDocument, document: RawConfig, world_size: int) -> Iterator[KnobChoice]:
    source, settings = opened.source, opened.settings
    families = _family_choices(source, settings)
    for knob in SPELLED.values():
        if knob.name in _FOLLOW:
            continue
        choice = _choice(source, document, knob, world_size)
        if not choice.values and knob.path in families:
            choice = families[knob.path]
        if choice.values or knob.name in LAYOUT_KNOBS:
            yield choice


def _choice(source: ScriptSource, document: RawConfig, knob: Knob, world_size: int) -> KnobChoice:
    given = source.config.get(knob.path)
    listed = is_listed(knob.path, given)
    open_ended = given in (None, "auto", "all")
    decided_value = document.get(knob.path)
    if decided_value is None and knob.path in opened_degrees(source.config):
        degrees, origin = divisors(world_size), _config_name(source)
        return KnobChoice(knob.name, degrees, ChoiceKind.FREE, origin=origin)
    origin = _origin(source, given, decided_value)
    if knob.name == "micro_batch" and not listed:
        values = () if decided_value is None else (decided_value,)
        return KnobChoice(knob.name, values, ChoiceKind.MINIMUM, origin=origin)
    if open_ended and knob.searched and not knob.degree:
        return KnobChoice(knob.name, knob.searched, ChoiceKind.FREE, origin=DEFAULT_ORIGIN)
    if open_ended:
        return KnobChoice(knob.name, (), ChoiceKind.PINNED, origin=origin)
    values = tuple(given) if listed else (given,)
    for value in values:
        _check_value(knob, value, world_size)
    return KnobChoice(
        knob.name,
        tuple(_canonical(knob.name, value) for value in values),
        ChoiceKind.LISTED if listed else ChoiceKind.PINNED,
        origin=origin,
    )


def opened_degrees(config: RawConfig) -> tuple[KeyPath, ...]:
    """Degrees that "all" opens."""
    whole = config.get(keys.PARALLELISM)
    return tuple(path for path in DEGREES if "all" in (whole, config.get(path)))


def _family_choices(
    source: ScriptSource, settings: AutotuningSettings
) -> dict[KeyPath, KnobChoice]:
    """Choices for the knob families whose degrees are searched or stated; a file comes first."""
    file, config = source.space, source.config
    own = parse_families(file.document, file.name) if file else ()
    shipped = () if settings.fast else default_families()
    opened = {path[1] for path in opened_degrees(config)}
    used = {path[1] for path in DEGREES if config.get(path) not in (None, 1, "all")} | opened
    found: dict[KeyPath, KnobChoice] = {}
    for knob in (*own, *shipped):
        path = (*keys.PARALLELISM, knob.name)
        if used.issuperset(knob.degrees):
            name = next(row.name for row in SPELLED.values() if row.path == path)
            values = tuple(None if v == _USUAL_SCHEDULE else v for v in knob.values)
            choice = KnobChoice(name, values, ChoiceKind.FREE, origin=knob.origin)
            found.setdefault(path, choice)
    return found


def _check_value(knob: Knob, value: Any, world_size: int) -> None:
    """Check one value, with the smallest other settings that it needs."""
    path, ranks = knob.path, world_size
    document = RawConfig({})
    if path == keys.SEQUENCE_PARALLELISM:
        ranks, document = 2, document.with_value(keys.TENSOR, 2)
    elif path in (keys.VIRTUAL_PIPELINE, keys.PIPELINE_SCHEDULE):
        chunks = 1 + (value == PIPELINE_SCHEDULES[-1])
        ranks, document = 2, document.with_value(keys.VIRTUAL_PIPELINE, chunks)
        document = document.with_value(keys.PIPELINE, 2)
    elif path == keys.RECOMPUTED:
        document = document.with_value(keys.RECOMPUTE, Recompute.FULL.value)
    elif path in SPLITS:
        ranks = len(value) if isinstance(value, list) and value else 1
        if path == keys.PIPELINE_SPLIT:
            document = document.with_value(keys.PIPELINE, ranks)
    document = document.with_value(keys.ACCUMULATION, ranks)
    resolve(document.with_value(path, value), world_size=ranks)


def _origin(source: ScriptSource, given: Any, decided_value: Any) -> str:
    if given in (None, "auto") and decided_value is not None:
        return _COMMAND_LINE
    return DEFAULT_ORIGIN if given in (None, "auto", "all") else _config_name(source)


def _config_name(source: ScriptSource) -> str:
    if source.config_argument is None:
        return "configuration"
    return path_argument(source.script_args, source.config_argument)


def _canonical(knob: str, value: Any) -> Any:
    if isinstance(value, (bool, list)):
        return tuple(value) if isinstance(value, list) else value
    if knob == "recompute":
        return Recompute(value)
    return value if isinstance(value, str) else int(value)


def _zero_choices(
    source: ScriptSource, settings: AutotuningSettings, stages: KnobChoice, ranks: int
) -> tuple[KnobChoice, ...]:
    rules, file = BuiltinRules(ranks), source.space
    return zero_choices(
        ZeroSearch(
            stages=tuple(int(stage or 0) for stage in stages.values),
            given=rules.values_of(source.config),
            origin=_config_name(source),
            file=parse_space(file.document, Section.BUILTIN, file.name) if file else (),
            default=() if settings.fast else default_space(Section.BUILTIN),
        ),
        rules,
    )


def _usual(knobs: tuple[KnobChoice, ...], stage: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((c.knob, c.usual) for c in knobs if c.usual is not None and c.is_for(stage))


def _batch_rule(source: ScriptSource, settings: AutotuningSettings, today: int) -> GlobalBatchRule:
    """Pinned if stated; otherwise pinned to the current product unless the user consented.

    The flag is the plainest consent: it overrides even a stated batch. Several listed
    micro-batches are consent if a stated accumulation leaves the batch no single value.
    """
    raw, maximum = source.config, settings.max_train_batch_size
    stated = isinstance(raw.get(keys.TRAIN_BATCH_SIZE), int)
    varies = lists_micro_batches(raw) and isinstance(raw.get(keys.ACCUMULATION), int)
    if source.words.keep_global_batch:
        return GlobalBatchRule(pinned=today)
    allowed = source.words.allow_global_batch_change
    if allowed or ((maximum is not None or varies) and not stated):
        return GlobalBatchRule(pinned=None, maximum=maximum)
    return GlobalBatchRule(pinned=today, maximum=None)


def _with_knob(document: RawConfig, knob: Knob, value: Any) -> RawConfig:
    plain = value.value if isinstance(value, Enum) else value
    plain = list(plain) if isinstance(plain, tuple) else plain
    if plain is None:
        return document.without(knob.path)
    is_default = plain == knob.default and knob.name not in _BATCH
    if is_default and knob.path not in document:
        return document
    return document.with_value(knob.path, plain)


def with_mapped_arguments(
    arguments: tuple[str, ...], document: RawConfig, settings: AutotuningSettings
) -> tuple[str, ...]:
    """The script's arguments with the document's values for the mapped ones."""
    for key, flag in (settings.arg_mappings or {}).items():
        value = document.get((key,))
        if isinstance(value, (int, float, str)):
            arguments = set_argument(arguments, flag, str(value))
    return arguments
