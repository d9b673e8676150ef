"""The dialect of our own runtime: DeepSpeed's key names in one document. Not: other frameworks.

A list means "search" for scalar knobs; "auto" is the mapped command-line value, else 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.settings import AutotuningSettings, parse_settings
from autoconf_launch.autotuner.space import ChoiceKind, GlobalBatchRule, KnobChoice
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Path,
    RawConfig,
    Recompute,
    dotted,
    resolve,
)
from autoconf_launch.core import config_keys as keys

from .base import Rendered, ScriptSource, UserSettings


@dataclass(frozen=True, slots=True)
class Spelling:
    """Where a knob stands in the document."""

    knob: str
    path: Path
    free_values: tuple[Any, ...] | None
    """Values that are searched where the user says nothing; None: the default is pinned."""


SPELLINGS = (
    Spelling("zero_stage", keys.ZERO_STAGE, (0, 1, 2, 3)),
    Spelling("micro_batch", keys.MICRO_BATCH, None),
    Spelling("accumulation", keys.ACCUMULATION, None),
    Spelling("recompute", keys.RECOMPUTE, None),
)


class NativeDialect:
    """Scripts that call ``autoconf_launch.runtime.initialize`` with a configuration file."""

    def detects(self, source: ScriptSource) -> bool:
        """A document with at least one of our keys."""
        return keys.is_ours(source.config)

    def read(
        self,
        source: ScriptSource,
        *,
        world_size: int,
        overrides: tuple[tuple[str, str], ...] = (),
        allow_global_batch_change: bool = False,
    ) -> UserSettings:
        """Settings, the baseline and what is open; see :class:`Dialect`."""
        warnings = keys.check_keys(source.config)
        section = source.config.get(keys.AUTOTUNING, {})
        settings = parse_settings({**section, **dict(overrides)})
        document = baseline_document(source, settings)
        resolved = resolve(document, world_size=world_size)
        return UserSettings(
            baseline=Candidate(layout=resolved.layout),
            choices=_choices(source.config, document),
            batch_rule=_batch_rule(
                source.config, settings, resolved.layout.global_batch, allow_global_batch_change
            ),
            facts=TrainingFacts.from_config(resolved),
            settings=settings,
            warnings=warnings,
        )

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """Searched keys alone differ from the user's document."""
        settings = parse_settings(source.config.get(keys.AUTOTUNING, {}))
        document = baseline_document(source, settings)
        for spelling in SPELLINGS:
            document = _with_knob(document, spelling, getattr(candidate.layout, spelling.knob))
        if keys.GLOBAL_BATCH in document:
            document = document.with_value(keys.GLOBAL_BATCH, candidate.layout.global_batch)
        arguments = _with_mapped_arguments(source.script_args, document, settings)
        return Rendered(
            config=document.without(keys.AUTOTUNING),
            script_args=_with_config(arguments, source.config_argument, config_path),
        )


def baseline_document(source: ScriptSource, settings: AutotuningSettings) -> RawConfig:
    """The user's document with the first value of each list and no "auto".

    Raises:
        ConfigError: a list is empty.
    """
    document = source.config
    if document.get(keys.ZERO) == "all":
        document = document.with_value(keys.ZERO, {"stage": 0})
    for spelling in SPELLINGS:
        value = document.get(spelling.path)
        if value in ("auto", "all"):
            value = _mapped_value(source, settings, spelling.path)
        elif isinstance(value, list):
            if not value:
                raise ConfigError(f"{dotted(spelling.path)} is an empty list; list its values.")
            value = value[0]
        else:
            continue
        document = (
            document.without(spelling.path)
            if value is None
            else document.with_value(spelling.path, value)
        )
    if document.get(keys.GLOBAL_BATCH) == "auto":
        document = document.without(keys.GLOBAL_BATCH)
    return _with_single_batch_split(document, source.config)


def _with_single_batch_split(document: RawConfig, original: RawConfig) -> RawConfig:
    """Let a stated global batch decide the split where the user listed micro-batches."""
    if keys.GLOBAL_BATCH in document and isinstance(original.get(keys.MICRO_BATCH), list):
        return document.without(keys.ACCUMULATION)
    return document


def _mapped_value(source: ScriptSource, settings: AutotuningSettings, path: Path) -> Any:
    flag = (settings.arg_mappings or {}).get(path[-1])
    text = argument_value(source.script_args, flag) if flag else None
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"{flag} is {text!r} on the command line, but must be a number."
        ) from None


def argument_value(arguments: tuple[str, ...], flag: str) -> str | None:
    """The last value of ``--flag VALUE`` or ``--flag=VALUE``; None where it is not given."""
    found = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


def _choices(raw: RawConfig, document: RawConfig) -> tuple[KnobChoice, ...]:
    return tuple(_choice(raw, document, s) for s in SPELLINGS if s.knob != "accumulation")


def _choice(raw: RawConfig, document: RawConfig, spelling: Spelling) -> KnobChoice:
    given = raw.get(spelling.path)
    listed = isinstance(given, list)
    open_ended = given in (None, "auto", "all")
    if spelling.knob == "micro_batch" and not listed:
        least = document.get(spelling.path)
        return KnobChoice(spelling.knob, () if least is None else (least,), ChoiceKind.MINIMUM)
    if open_ended and spelling.free_values is not None:
        return KnobChoice(spelling.knob, spelling.free_values, ChoiceKind.FREE)
    if open_ended:
        return KnobChoice(spelling.knob, (), ChoiceKind.PINNED)
    values = tuple(given) if listed else (given,)
    for value in values:
        _require_valid(raw, spelling, value)
    return KnobChoice(
        spelling.knob,
        tuple(_canonical(spelling.knob, value) for value in values),
        ChoiceKind.LISTED if listed else ChoiceKind.PINNED,
    )


def _require_valid(raw: RawConfig, spelling: Spelling, value: Any) -> None:
    """Each listed value must be valid by itself; the batch equation is checked with the space."""
    alone = RawConfig({}).with_value(spelling.path, value)
    resolve(alone, world_size=1)


def _canonical(knob: str, value: Any) -> Any:
    return Recompute(value) if knob == "recompute" else int(value)


def _batch_rule(
    raw: RawConfig, settings: AutotuningSettings, today: int, allow_change: bool
) -> GlobalBatchRule:
    """Pinned when stated; otherwise today's product unless the user consented to another.

    The flag is the plainest consent: it counts even against a stated batch.
    """
    stated = isinstance(raw.get(keys.GLOBAL_BATCH), int)
    maximum = settings.max_train_batch_size
    if allow_change or (maximum is not None and not stated):
        return GlobalBatchRule(pinned=None, maximum=maximum)
    return GlobalBatchRule(pinned=today, maximum=None)


def _with_knob(document: RawConfig, spelling: Spelling, value: Any) -> RawConfig:
    plain = value.value if isinstance(value, Enum) else value
    default = {"zero_stage": 0, "recompute": "none"}.get(spelling.knob)
    if spelling.path not in document and plain == default:
        return document
    return document.with_value(spelling.path, plain)


def _with_mapped_arguments(
    arguments: tuple[str, ...], document: RawConfig, settings: AutotuningSettings
) -> tuple[str, ...]:
    for key, flag in (settings.arg_mappings or {}).items():
        value = document.get((key,))
        if isinstance(value, (int, float, str)):
            arguments = with_argument(arguments, flag, str(value))
    return arguments


def with_argument(arguments: tuple[str, ...], flag: str, value: str) -> tuple[str, ...]:
    """Replace a flag's value in the form it was given in; add it where it is missing."""
    replaced = list(arguments)
    for index in range(len(replaced) - 1, -1, -1):
        if replaced[index] == flag and index + 1 < len(replaced):
            replaced[index + 1] = value
            return tuple(replaced)
        if replaced[index].startswith(f"{flag}="):
            replaced[index] = f"{flag}={value}"
            return tuple(replaced)
    return (*arguments, flag, value)


def _with_config(
    arguments: tuple[str, ...], position: int | None, config_path: str
) -> tuple[str, ...]:
    if position is None:
        return arguments
    flag, equals, _ = arguments[position].partition("=")
    joined = equals and flag.startswith("-")
    changed = f"{flag}={config_path}" if joined else config_path
    return (*arguments[:position], changed, *arguments[position + 1 :])
