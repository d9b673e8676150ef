"""Knobs to search besides stage and micro-batch: file, user's section, default space.

The first of these that names a knob for a stage decides. Not: candidates (autotuner).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autoconf_launch.autotuner.space import ChoiceKind, KnobChoice, extra_order
from autoconf_launch.core import RUNTIME_KNOBS, ZERO, ConfigError, KnobValue, RawConfig

from .loader import SpaceKnob, numeral


class KnobRules(Protocol):
    """A framework's rules for its own knobs."""

    def read(self, name: str, value: Any) -> KnobValue:
        """The value as the knob has it.

        Raises:
            ConfigError: there is no such knob, or it cannot have this value.
        """

    def obstacle(self, name: str, value: KnobValue, zero_stage: int) -> str | None:
        """Why the value cannot be applied at a stage, as a phrase; None where it can."""

    def default(self, name: str) -> KnobValue:
        """The value that leaving the knob out means; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSearch:
    """Sources of the values to search.

    Attributes:
        stages: ZeRO stages that are searched.
        given: what the user's ``zero_optimization`` says beside the stage, by dotted name;
            a list asks to search.
        origin: of ``given``, for people.
        file: a space that the user named for this run; weighs more than ``given``.
        default: the shipped space; empty in fast mode.
    """

    stages: tuple[int, ...]
    given: tuple[tuple[str, Any], ...] = ()
    origin: str = "configuration"
    file: tuple[SpaceKnob, ...] = ()
    default: tuple[SpaceKnob, ...] = ()


_LISTS_THEMSELVES = ("leaf_module",)
"""Sections of DeepSpeed whose values are lists, which do not ask to search."""


def given_knobs(config: RawConfig) -> tuple[tuple[str, Any], ...]:
    """Knobs that a configuration's ``zero_optimization`` sets besides the stage."""
    section = config.get(ZERO)
    if not isinstance(section, dict):
        return ()
    leaves = RawConfig(section).without(("stage",)).leaves()
    return _named_values(
        (".".join(path), value)
        for path, value in leaves
        if path and path[0] not in _LISTS_THEMSELVES
    )


def _named_values(values: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    said = tuple((name, value) for name, value in values if value not in (None, "auto", {}))
    for name, value in said:
        if value == []:
            raise ConfigError(f"{_key(name)} lists nothing; list values or remove it.")
    return said


def _key(name: str) -> str:
    return RUNTIME_KNOBS[name].key if name in RUNTIME_KNOBS else f"{ZERO[0]}.{name}"


def zero_choices(search: ZeroSearch, rules: KnobRules) -> tuple[KnobChoice, ...]:
    """A choice for each stage and knob, without values that the stage cannot apply.

    Raises:
        ConfigError: a value that the user named cannot be applied at any searched stage.
    """
    choices = []
    for stage in search.stages:
        for name in _names(search, stage):
            asked = _choice_of(search, name, stage, rules)
            values = tuple(v for v in asked.values if not rules.obstacle(name, v, stage))
            if asked.how is ChoiceKind.FREE:
                values = tuple(None if v == rules.default(name) else v for v in values)
            values = tuple(dict.fromkeys(values))
            if values and values != (None,):
                choices.append(KnobChoice(name, values, asked.how, (stage,), asked.origin))
    _refuse_what_no_stage_applies(search, rules)
    return tuple(choices)


def _names(search: ZeroSearch, stage: int) -> list[str]:
    spaces = (*search.file, *search.default)
    names = {knob.name for knob in spaces if stage in knob.stages}
    return sorted({*names, *dict(search.given)}, key=extra_order)


def _choice_of(search: ZeroSearch, name: str, stage: int, rules: KnobRules) -> KnobChoice:
    given = dict(search.given).get(name)
    own = () if given is None else tuple(given) if isinstance(given, list) else (given,)
    from_file = _last(search.file, name, stage)
    how = ChoiceKind.LISTED
    if from_file is not None:
        values, origin = (*own[:1], *from_file.values), from_file.origin
        how = ChoiceKind.LISTED if own else ChoiceKind.FREE
    elif own:
        values, origin = own, search.origin
        how = ChoiceKind.LISTED if isinstance(given, list) else ChoiceKind.PINNED
    else:
        default = _last(search.default, name, stage)
        assert default is not None
        values, origin, how = default.values, default.origin, ChoiceKind.FREE
    return KnobChoice(name, tuple(rules.read(name, v) for v in values), how, (stage,), origin)


def _last(space: Sequence[SpaceKnob], name: str, stage: int) -> SpaceKnob | None:
    found = [knob for knob in space if knob.name == name and stage in knob.stages]
    return found[-1] if found else None


def _refuse_what_no_stage_applies(search: ZeroSearch, rules: KnobRules) -> None:
    for name, value, stages, origin in _values_of_user(search):
        plain = rules.read(name, value)
        reasons = [rules.obstacle(name, plain, stage) for stage in stages]
        if reasons and all(reasons):
            raise ConfigError(
                f"{_key(name)} is {value!r} in {origin}, but {reasons[-1]}; remove it."
            )


def _values_of_user(
    search: ZeroSearch,
) -> Iterator[tuple[str, Any, tuple[int, ...], str]]:
    for name, given in search.given:
        for value in given if isinstance(given, list) else [given]:
            yield name, value, search.stages, search.origin
    for knob in search.file:
        stages = tuple(stage for stage in search.stages if stage in knob.stages)
        for value in knob.values:
            yield knob.name, value, stages, knob.origin


class BuiltinRules:
    """Our runtime's knobs, for so many data-parallel ranks."""

    def __init__(self, data_parallel: int) -> None:
        self._data_parallel = data_parallel

    def values_of(self, config: RawConfig) -> tuple[tuple[str, Any], ...]:
        """Knobs of our runtime that a configuration sets, wherever their keys are."""
        return _named_values((name, config.get(knob.path)) for name, knob in RUNTIME_KNOBS.items())

    def read(self, name: str, value: Any) -> KnobValue:
        if name not in RUNTIME_KNOBS:
            raise ConfigError(
                f"{_key(name)} cannot be searched: it is not a knob of this runtime, "
                f"which has {', '.join(RUNTIME_KNOBS)}."
            )
        return RUNTIME_KNOBS[name].read(value)

    def obstacle(self, name: str, value: KnobValue, zero_stage: int) -> str | None:
        return RUNTIME_KNOBS[name].obstacle(
            zero_stage=zero_stage, data_parallel=self._data_parallel, value=value
        )

    def default(self, name: str) -> KnobValue:
        default: KnobValue = RUNTIME_KNOBS[name].default
        return default


class _ExternalRules:
    """Knobs of a framework that checks them itself."""

    def read(self, name: str, value: Any) -> KnobValue:
        if isinstance(value, (dict, list)):
            raise ConfigError(
                f"zero_optimization.{name} lists {value!r}, but must list numbers, words, true or "
                "false."
            )
        plain: KnobValue = numeral(value)
        return plain

    def obstacle(self, name: str, value: KnobValue, zero_stage: int) -> str | None:
        return None

    def default(self, name: str) -> KnobValue:
        return None


EXTERNAL_RULES: KnobRules = _ExternalRules()
