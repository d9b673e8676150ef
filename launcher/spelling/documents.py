"""Open values of a document, and the document with all of them decided.

A list means "search" and its first value is the baseline's; "auto" is the value of the mapped
argument, else the meaning of a missing key. An omitted batch size may be mapped, too.

In TOML, only edited values change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from autoconf_launch.autotuner.space import (
    ALIASES,
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    parse_settings,
)
from autoconf_launch.core import (
    LIST_VALUED,
    RUNTIME_KNOBS,
    SPELLED,
    ConfigError,
    KeyPath,
    KnobValue,
    Naming,
    RawConfig,
    dotted_name,
)
from autoconf_launch.core import config_keys as keys

from ..script import ScriptSource
from .launch_inputs import find_argument

_MAPPINGS = "arg_mappings"
_SCALARS = (keys.TRAIN_BATCH_SIZE, keys.BF16, keys.FP16, keys.LOSS_SCALE, keys.CLIPPING)
"""Settings with one value, which are not knobs."""
_NO_DEFAULT = (keys.OPTIMIZER[0], keys.SCHEDULER[0])
_ALL_STAGES = (keys.ZERO_STAGE, "all")
DEGREES = (keys.TENSOR, keys.PIPELINE, keys.CONTEXT, keys.EXPERT)
"""Degrees that "all" opens to every number of ranks that machine and model allow."""
SPLITS = (keys.PIPELINE_SPLIT, keys.MICRO_BATCH_SPLIT)
"""Settings whose one value is a list, so that a list of lists is searched."""
SEARCHED = tuple(knob.path for knob in SPELLED.values() if knob.naming is not Naming.NEVER)


def settings_of(source: ScriptSource) -> AutotuningSettings:
    """The ``autotuning`` section with mappings from the top level; flags override it.

    Raises:
        ConfigError: an unknown key or a wrong value.
    """
    config = source.config
    section: dict[str, Any] = config.get(keys.AUTOTUNING, {})
    if not isinstance(section, dict):
        raise ConfigError(f"autotuning is {section!r}, but must be a section ({{…}}).")
    names = {_MAPPINGS, *(alias for alias, name in ALIASES.items() if name == _MAPPINGS)}
    given = [config.get(path) for path in keys.MAPPINGS]
    given += [section[name] for name in names & section.keys()]
    mappings = [mapping for mapping in given if mapping is not None]
    if mappings and all(isinstance(mapping, dict) for mapping in mappings):
        section = {key: value for key, value in section.items() if key not in names}
        section[_MAPPINGS] = {k: v for mapping in mappings for k, v in mapping.items()}
    return parse_settings({**section, **dict(source.words.overrides)})


def settings_for(source: ScriptSource) -> AutotuningSettings:
    """The settings with the mappings of ``--arg``, which override others."""
    settings = settings_of(source)
    mappings = {**(settings.arg_mappings or {}), **dict(source.words.arguments)}
    return settings.model_copy(update={"arg_mappings": mappings or None})


class OpenDocument(NamedTuple):
    """A source with the lists of ``--knob`` in its document, and the decided document.

    ``unfilled`` are the keys whose "auto" has no value and no default.
    """

    source: ScriptSource
    settings: AutotuningSettings
    decided: RawConfig
    unfilled: tuple[KeyPath, ...] = ()


def open_document(source: ScriptSource, *, fills_auto: bool = True) -> OpenDocument:
    """The user's document without lists and "auto"; ZeRO knobs are left as they are.

    If a framework fills "auto" itself (``fills_auto`` is false), only searched keys are decided.

    Raises:
        ConfigError: a list is empty, or asks to search a setting that is not a knob.
    """
    source = with_listed(source)
    settings = settings_for(source)
    document = _without_all(source.config)
    for path in SEARCHED:
        document = first_of_list(document, path)
    for path in (keys.MICRO_BATCH, keys.ACCUMULATION):
        if path not in document and (given := mapped_value(source, settings, path)) is not None:
            document = document.with_value(path, given)
    unfilled = []
    for path, value in tuple(document.leaves()):
        if not (_is_read(path) if fills_auto else path in (*SEARCHED, keys.TRAIN_BATCH_SIZE)):
            continue
        if value == "auto" or (path, value) == _ALL_STAGES:
            filled = mapped_value(source, settings, path)
            unfilled += [path] if filled is None and path[0] in _NO_DEFAULT else []
            changed = document.without(path)
            document = changed if filled is None else document.with_value(path, filled)
    refuse_lists(document)
    decided = _with_single_batch_split(document, source.config)
    return OpenDocument(source, settings, decided, tuple(unfilled))


def on_unfilled(paths: Sequence[KeyPath]) -> tuple[str, ...]:
    """A sentence on all keys whose "auto" has no value."""
    if not paths:
        return ()
    *names, last = map(dotted_name, paths)
    if not names:
        return (
            f'{last} is "auto", but autotuning.arg_mappings maps no given argument to '
            f"{paths[0][-1]}; give it a value.",
        )
    return (
        f'{", ".join(names)} and {last} are "auto", but autotuning.arg_mappings maps no given '
        "argument to them; give each of them a value.",
    )


def _without_all(document: RawConfig) -> RawConfig:
    if document.get(keys.ZERO) == "all":
        document = document.with_value(keys.ZERO, {"stage": 0})
    for path in (keys.PARALLELISM, *DEGREES):
        if document.get(path) == "all":
            document = document.without(path)
    return document


def with_runtime_knobs(
    document: RawConfig, extras: tuple[tuple[str, KnobValue], ...]
) -> RawConfig:
    """The document with exactly these extras of our runtime."""
    values = dict(extras)
    for name, knob in RUNTIME_KNOBS.items():
        if name not in values:
            document = document.without(knob.path)
        elif document.get(knob.path) != values[name]:
            document = document.with_value(knob.path, values[name])
    return document


def lists_micro_batches(config: RawConfig) -> bool:
    """True if a document lists several micro-batches."""
    sizes = config.get(keys.MICRO_BATCH)
    return isinstance(sizes, list) and len(set(map(str, sizes))) > 1


def fixed_accumulation(
    config: RawConfig, accumulation: Any, rule: GlobalBatchRule
) -> tuple[KnobChoice, ...]:
    """The user's accumulation, used with each micro-batch of a list."""
    if accumulation is None or rule.pinned is not None or not lists_micro_batches(config):
        return ()
    return (KnobChoice("accumulation", (int(accumulation),), ChoiceKind.LISTED),)


def on_varying_batch(accumulation: tuple[KnobChoice, ...]) -> tuple[str, ...]:
    """A sentence if listed micro-batches have one accumulation."""
    return tuple(
        "train_micro_batch_size_per_gpu is a list and gradient_accumulation_steps is "
        f"{choice.values[0]}, so the global batch varies; state train_batch_size to keep it."
        for choice in accumulation
    )


def is_open(config: RawConfig) -> bool:
    """True if a document must be resolved before a rank can read it."""
    if "all" in (config.get(keys.ZERO), config.get(keys.PARALLELISM)):
        return True
    return any(
        value in ("auto", "all") or (path[-1] not in LIST_VALUED and is_listed(path, value))
        for path, value in config.leaves()
        if _is_read(path)
    )


def is_listed(path: KeyPath, value: Any) -> bool:
    """True if a value is a list to search; a split is a list itself."""
    return isinstance(value, list) and (path not in SPLITS or list in map(type, value))


def _is_read(path: KeyPath) -> bool:
    """True if a launch looks at this key: it is neither the script's nor DeepSpeed's own."""
    if path[:1] == keys.ZERO:
        return path == keys.ZERO_STAGE or path[-1] in RUNTIME_KNOBS
    if path[:1] in (keys.AUTOTUNING, *keys.MAPPINGS):
        return False
    return bool(path) and path[0] in keys.TOP_LEVEL


def first_of_list(document: RawConfig, path: KeyPath) -> RawConfig:
    """The document with the first value of a list at this path.

    Raises:
        ConfigError: the list is empty, or the setting is not searched.
    """
    value = document.get(path)
    if not is_listed(path, value):
        return document
    if not value:
        raise ConfigError(f"{dotted_name(path)} is an empty list; list its values.")
    if None in value:
        raise ConfigError(f"{dotted_name(path)} lists null, which is not a value; remove it.")
    if path == keys.ACCUMULATION and len(value) > 1:
        raise ConfigError(
            f"{dotted_name(path)} is {value!r}, but is not searched by itself: it follows from "
            "the micro-batch and the global batch. Give it one value, and consent to other global "
            "batches by autotuning.max_train_batch_size."
        )
    return document.with_value(path, value[0])


def mapped_value(source: ScriptSource, settings: AutotuningSettings, path: KeyPath) -> Any:
    """The value that the script's arguments give a key; None if they give none."""
    flag = (settings.arg_mappings or {}).get(path[-1])
    given = find_argument(source.script_args, (flag,)) if flag else None
    if given is None or not given.value:
        return None
    text = given.value
    try:
        value = json.loads(text.lower())
    except (ValueError, RecursionError):
        value = text
    if path in (keys.MICRO_BATCH, keys.ACCUMULATION) and type(value) is not int:
        raise ConfigError(f"{flag} is {text!r} on the command line, but must be a number.")
    return value


def refuse_lists(document: RawConfig) -> None:
    """Raise a ConfigError if a setting that is never searched is a list."""
    for path in _SCALARS:
        value = document.get(path)
        if not isinstance(value, list):
            continue
        instead = (
            "list train_micro_batch_size_per_gpu, or give autotuning.max_train_batch_size"
            if path == keys.TRAIN_BATCH_SIZE
            else "give it one value"
        )
        raise ConfigError(f"{dotted_name(path)} is {value!r}, but is never searched; {instead}.")


def _with_single_batch_split(document: RawConfig, original: RawConfig) -> RawConfig:
    """Let a stated global batch decide the split if the user listed micro-batches."""
    if keys.TRAIN_BATCH_SIZE in document and isinstance(original.get(keys.MICRO_BATCH), list):
        return document.without(keys.ACCUMULATION)
    return document


def with_listed(source: ScriptSource) -> ScriptSource:
    """The source as if the user had written these lists into the document.

    Raises:
        ConfigError: a knob is an argument, which a document does not have.
    """
    config = source.config
    for knob in source.words.knobs:
        config = config.with_value(_path(knob.name), list(knob.values))
    return replace(source, config=config) if source.words.knobs else source


def _path(name: str) -> KeyPath:
    if name.startswith("-"):
        raise ConfigError(
            f"--knob {name} is an argument, but this script is tuned by its configuration file; "
            "name a key of it, or take --dialect arguments."
        )
    knob = SPELLED.get(name) or RUNTIME_KNOBS.get(name)
    return knob.path if knob and name != "data_parallel" else tuple(name.split("."))


def parse_toml(text: str) -> RawConfig:
    """The document of a text, with dates and times as text.

    Raises:
        ConfigError: it is not TOML.
    """
    import tomlkit  # only TOML files need it

    try:
        return RawConfig(_plain(tomlkit.parse(text).unwrap()))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The script's TOML file cannot be read: {error}; correct it."
        ) from error


def edit_toml(text: str, edits: Iterable[tuple[KeyPath, Any]]) -> str:
    """The text with other values; None removes a key, a new one goes to the end of its table."""
    import tomlkit

    document: Any = tomlkit.parse(text)
    for path, value in edits:
        section = document
        for key in path[:-1]:
            if not isinstance(section, list) and key not in section:
                section[key] = tomlkit.table()
            section = section[int(key) if isinstance(section, list) else key]
        if isinstance(section, list):
            section[int(path[-1])] = value
        elif value is not None:
            section[path[-1]] = value
        elif path[-1] in section:
            del section[path[-1]]
    edited: str = tomlkit.dumps(document)
    return edited


def toml_of(document: RawConfig) -> str:
    """A document of tables as text."""
    import tomlkit

    text: str = tomlkit.dumps(document.to_dict())
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    return value if isinstance(value, (bool, int, float, str)) else str(value)
