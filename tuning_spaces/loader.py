"""Reads tuning spaces: pieces of a configuration whose lists are searched.

A space holds ``native`` and ``deepspeed`` sections, or is such a section itself. A section is
one piece or a list of pieces, each with ``zero_optimization`` and in it the ``stage`` or stages
that it is for (none: all).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

import hjson

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
        origin: where they stand, for people.
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
        origin: where the values stand, for people.
    """

    name: str
    values: tuple[Any, ...]
    degrees: tuple[str, ...]
    origin: str


_TOP_LEVEL = tuple(knob.key for knob in RUNTIME_KNOBS.values() if len(knob.path) == 1)
DEFAULT_ORIGIN = "default"
"""Origin of values that come with the program."""


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
        ConfigError: it lists what is not a knob of a space.
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
