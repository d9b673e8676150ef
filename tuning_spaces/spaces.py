"""Tuning spaces: knobs to search besides stage and micro-batch, with their values.

A space is a piece of a configuration whose lists are searched. Its file holds ``native`` and
``deepspeed`` sections, or is such a section itself. A section is one piece or a list of pieces,
each with ``zero_optimization`` and in it the ``stage`` or stages that it is for (none: all).
For each knob and stage the first of these decides: a space's file, the user's own section, the
default space. Not: candidates (autotuner).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import hjson

from autoconf_launch.autotuner.space import ChoiceKind, KnobChoice, extra_order
from autoconf_launch.core import (
    RUNTIME_KNOBS,
    SPELLED,
    ZERO,
    ZERO_STAGES,
    ConfigError,
    KnobValue,
    RawConfig,
    nearest_known,
)
from autoconf_launch.core import config_keys as keys

_TOP_LEVEL = tuple(knob.key for knob in RUNTIME_KNOBS.values() if len(knob.path) == 1)
DEFAULT_ORIGIN = "default"
"""Origin of values that come with the program."""
_LISTS_THEMSELVES = ("leaf_module",)
"""Sections of DeepSpeed whose values are lists, which do not ask to search."""


class Section(str, Enum):
    """The engine whose knobs a section lists."""

    BUILTIN = "native"
    DEEPSPEED = "deepspeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceKnob:
    """A knob of one space with the values to search.

    Attributes:
        name: key under ``zero_optimization``; dots lead into its sections.
        values: in the order of the search.
        stages: ZeRO stages that they are for.
        origin: source of the values, for people.
    """

    name: str
    values: tuple[KnobValue, ...]
    stages: tuple[int, ...]
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyKnob:
    """A key of ``parallelism`` with the values to search.

    Attributes:
        name: the key.
        values: in the order of the search.
        degrees: keys of the family's degrees; it is searched if all of them are.
        origin: source of the values, for people.
    """

    name: str
    values: tuple[Any, ...]
    degrees: tuple[str, ...]
    origin: str


@cache
def default_families() -> tuple[FamilyKnob, ...]:
    """The keys of ``parallelism`` that are searched by default if their degree is searched."""
    return tuple(
        FamilyKnob(
            name=knob.path[1],
            values=knob.searched,
            degrees=(knob.degree.partition(".")[2],),
            origin=DEFAULT_ORIGIN,
        )
        for knob in SPELLED.values()
        if knob.degree and knob.searched
    )


def parse_families(document: RawConfig, origin: str) -> tuple[FamilyKnob, ...]:
    """The ``parallelism`` knobs of a space, without the degrees.

    Raises:
        ConfigError: a key is unknown, a piece has no degree, or a list is empty.
    """
    pieces = _pieces(document, Section.BUILTIN, origin)
    return tuple(
        knob
        for piece in pieces
        for knob in _family_knobs(piece.get(keys.PARALLELISM[0], {}), origin)
    )


def _family_knobs(given: Any, origin: str) -> Iterator[FamilyKnob]:
    if not isinstance(given, dict):
        raise ConfigError(f"{origin}: parallelism is {given!r}, but must be a section ({{…}}).")
    degrees = tuple(name for name, value in given.items() if value == "all")
    for name, values in given.items():
        if name not in keys.PARALLELISM_KEYS:
            raise ConfigError(
                f"{origin}: parallelism.{name} is unknown; "
                f"{nearest_known(name, keys.PARALLELISM_KEYS)}"
            )
        if name in degrees:
            continue
        if not degrees or not isinstance(values, list) or not values:
            raise ConfigError(
                f"{origin}: parallelism.{name} must be a list of values beside the degree that it "
                'is for, such as tensor: "all".'
            )
        yield FamilyKnob(name=name, values=tuple(values), degrees=degrees, origin=origin)


@cache
def default_space(section: Section) -> tuple[SpaceKnob, ...]:
    """The knobs of all stages that are searched by default."""
    if section is Section.BUILTIN:
        return tuple(
            SpaceKnob(name=name, values=knob.searched, stages=knob.stages, origin=DEFAULT_ORIGIN)
            for name, knob in RUNTIME_KNOBS.items()
            if knob.searched
        )
    shipped = [(f"zero_{stage}.hjson", files(__package__)) for stage in ZERO_STAGES]
    texts = [(name, folder.joinpath(name).read_text("utf-8")) for name, folder in shipped]
    return tuple(
        knob
        for name, text in texts
        for knob in parse_space(
            RawConfig(hjson.loads(text, object_pairs_hook=dict)), section, name
        )
    )


def parse_space(document: RawConfig, section: Section, origin: str) -> tuple[SpaceKnob, ...]:
    """The knobs of one section, in its order.

    Raises:
        ConfigError: it lists a name that is not a knob of a space.
    """
    return tuple(
        knob for piece in _pieces(document, section, origin) for knob in _knobs(piece, origin)
    )


def numeral(value: Any) -> Any:
    """Whole numbers as such: 5e7 is a float to a parser and a size to people."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _pieces(document: RawConfig, section: Section, origin: str) -> list[dict[str, Any]]:
    given = document.to_dict()
    names = [kind.value for kind in Section]
    if not {ZERO[0], keys.PARALLELISM[0], *_TOP_LEVEL} & given.keys():
        for key in given:
            if key not in names:
                known = nearest_known(key, (*names, ZERO[0]))
                raise ConfigError(f"{origin}: {key} is not a section of a tuning space; {known}")
        given = given.get(section.value, [])
    pieces = given if isinstance(given, list) else [given]
    for piece in pieces:
        if not isinstance(piece, dict) or not isinstance(piece.get(ZERO[0], {}), dict):
            raise ConfigError(
                f"{origin}: {section.value} must be an object with zero_optimization: {{…}}, or "
                "a list of them."
            )
    return pieces


def _knobs(piece: dict[str, Any], origin: str) -> Iterator[SpaceKnob]:
    for key in piece:
        if key not in (ZERO[0], keys.PARALLELISM[0], *_TOP_LEVEL):
            raise ConfigError(
                f"{origin}: {key} is given in a tuning space, which lists knobs of "
                f"{', '.join((ZERO[0], *_TOP_LEVEL))} and parallelism only; list it in your "
                "configuration."
            )
    zero = RawConfig(piece.get(ZERO[0], {}))
    stages = _stages(zero.get(("stage",)), origin)
    listed = [((key,), piece[key]) for key in _TOP_LEVEL if key in piece]
    for path, given in (*zero.without(("stage",)).leaves(), *listed):
        if not path:
            continue
        values = given if isinstance(given, list) else [given]
        if not values or any(isinstance(value, (list, dict)) for value in values):
            raise ConfigError(f"{origin}: {'.'.join(path)} must be a value or a list of values.")
        yield SpaceKnob(
            name=".".join(path),
            values=tuple(numeral(value) for value in values),
            stages=stages,
            origin=origin,
        )


def _stages(given: Any, origin: str) -> tuple[int, ...]:
    if given is None or given == "all":
        return ZERO_STAGES
    stages = tuple(given) if isinstance(given, list) else (given,)
    if not stages or any(stage not in ZERO_STAGES or isinstance(stage, bool) for stage in stages):
        raise ConfigError(f"{origin}: stage is {given!r}, but ZeRO has stages 0 to 3.")
    return stages


class KnobRules(Protocol):
    """A framework's rules for its own knobs."""

    def read(self, name: str, value: Any) -> KnobValue:
        """The value as the knob has it.

        Raises:
            ConfigError: there is no such knob, or it cannot have this value.
        """

    def obstacle(self, name: str, value: KnobValue, zero_stage: int) -> str | None:
        """The reason why a stage cannot apply the value, as a phrase; None if it can."""

    def default(self, name: str) -> KnobValue:
        """The value that an omitted knob has; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSearch:
    """Sources of the values to search.

    Attributes:
        stages: ZeRO stages that are searched.
        given: the user's ``zero_optimization`` besides the stage, by dotted name;
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
    """Our runtime's knobs, for a number of data-parallel ranks."""

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
