"""Reads tuning spaces: pieces of a configuration whose lists are searched. Not: how they combine.

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

from autoconf_launch.core import ZERO, ConfigError, KnobValue, RawConfig, nearest_known

_STAGES = (0, 1, 2, 3)


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


@cache
def default_space(section: Section) -> tuple[SpaceKnob, ...]:
    """The shipped space of all stages."""
    names = [f"zero_{stage}.hjson" for stage in _STAGES]
    texts = ((name, files(__package__).joinpath(name).read_text("utf-8")) for name in names)
    spaces = ((name, RawConfig(hjson.loads(text, object_pairs_hook=dict))) for name, text in texts)
    return tuple(knob for name, space in spaces for knob in parse_space(space, section, name))


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
    if ZERO[0] not in given:
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
        if key != ZERO[0]:
            raise ConfigError(
                f"{origin}: {key} is given in a tuning space, which lists knobs of "
                "zero_optimization only; list it in your configuration."
            )
    zero = RawConfig(piece.get(ZERO[0], {}))
    stages = _stages(zero.get(("stage",)), origin)
    for path, given in zero.without(("stage",)).leaves():
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
        return _STAGES
    stages = tuple(given) if isinstance(given, list) else (given,)
    if not stages or any(stage not in _STAGES or isinstance(stage, bool) for stage in stages):
        raise ConfigError(f"{origin}: stage is {given!r}, but ZeRO has stages 0 to 3.")
    return stages
