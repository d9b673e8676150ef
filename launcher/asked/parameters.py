"""The core of questions: a parameter is declared once, and asked by a flag or a keyword.

A question is a class of parameters::

    @question
    class PlanQuestion(VerbQuestion):
        tokens: int | None = parameter("ranking", "to train on", TOKENS, default=None)

Its flags come from ``parser`` and :func:`read_flags`, its Python function from ``answers``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from autoconf_launch.core import ConfigError, nearest_known

from ..flags import VerbParser, unknown_flag
from .units import ValueUnit

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

_Q = TypeVar("_Q", bound="VerbQuestion")
_T = TypeVar("_T")
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    group: str
    about: str
    unit: ValueUnit
    flag: str
    parts: Mapping[str, tuple[ValueUnit, str]]


def parameter(
    group: str,
    about: str,
    unit: ValueUnit,
    *,
    default: Any = MISSING,
    flag: str = "",
    parts: Mapping[str, tuple[ValueUnit, str]] = _NONE,
) -> Any:
    """A parameter of a question.

    Args:
        group: title of its flags in the help; empty: beside ``--help``.
        about: its line in the help and in Python's docstring.
        unit: how its values are written.
        default: without one it is required.
        flag: words of the command line; empty: its own name.
        parts: keys of a mapping that are flags, each with its unit and line.
    """
    asked = _Asked(group=group, about=about, unit=unit, flag=flag, parts=parts)
    return field(default=default, metadata={"asked": asked})


if TYPE_CHECKING:

    @dataclass_transform(
        kw_only_default=True, frozen_default=True, field_specifiers=(parameter, field)
    )
    def question(cls: type[_T]) -> type[_T]:
        """Make a class of parameters a value."""
else:
    question = dataclass(frozen=True, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The frame of a verb's help; ``groups`` are in the order in which they are printed."""

    verb: str
    usage: str
    description: str
    examples: tuple[str, ...]
    groups: tuple[str, ...]


@question
class VerbQuestion:
    """Parameters of a verb.

    Attributes:
        given: flags that say more than the defaults, however they were given.
    """

    given: frozenset[str] = field(default=frozenset(), init=False)
    header: ClassVar[Header]

    def contradictions(self) -> Iterator[str]:
        """Sentences on parameters that do not go together, by their flags."""
        yield from ()

    @classmethod
    def parser(cls, stand_in: Mapping[str, Any] = _NONE) -> VerbParser:
        """Flags of a question; ``stand_in`` has values for required ones that are not given."""
        header = cls.header
        parser = VerbParser(
            prog=f"autoconf-launch {header.verb}",
            usage=header.usage,
            description=header.description,
            examples=header.examples,
        )
        for title in ("", *header.groups):
            group = parser.add_argument_group(title) if title else parser
            for one, asked in _fields_of(cls):
                if asked.group != title:
                    continue
                for name, (unit, about) in asked.parts.items():
                    options = {"help": about, "dest": name, **_options(unit)}
                    group.add_argument(f"--{_dashes(name)}", **options)
                if not asked.parts:
                    default = stand_in.get(one.name, one.default)
                    options = {"required": True} if default is MISSING else {"default": default}
                    if asked.unit.action == "append":
                        options["default"] = None
                    options |= {"help": asked.about, "dest": one.name, **_options(asked.unit)}
                    group.add_argument(*_words(one, asked), **options)
        return parser


def _fields_of(kind: type) -> Iterator[tuple[Field[Any], _Asked]]:
    for one in fields(kind):
        if "asked" in one.metadata:
            yield one, one.metadata["asked"]


def _words(one: Field[Any], asked: _Asked) -> list[str]:
    return asked.flag.split() or [f"--{_dashes(one.name)}"]


def _dashes(name: str) -> str:
    return name.replace("_", "-")


def _options(unit: ValueUnit) -> dict[str, Any]:
    takes_word = unit.action in ("store", "append")
    return {"action": unit.action} | (
        {"type": unit.read, "metavar": unit.metavar} if takes_word else {}
    )


def with_dashes(parser: VerbParser, arguments: Sequence[str]) -> list[str]:
    """Arguments with ``-`` for ``_`` in flag names.

    Raises:
        ConfigError: a flag is unknown; the message has the nearest one.
    """
    known = parser._option_string_actions
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if re.match(r"--[A-Za-z]", argument):
            name = _dashes(name)
            if name not in known:
                raise unknown_flag(name, known, f"{parser.prog} --help")
        found.append(f"{name}{equals}{value}")
    return found


def read_flags(
    kind: type[_Q], arguments: Sequence[str], stand_in: Mapping[str, Any] = _NONE
) -> _Q:
    """A command line as a question.

    Raises:
        ConfigError: an unknown flag or value, a number out of range, or flags that contradict.
    """
    parser = kind.parser(stand_in)
    words = with_dashes(parser, arguments)
    flags = vars(parser.parse_args(words))
    values: dict[str, Any] = {}
    for one, asked in _fields_of(kind):
        if asked.parts:
            parts = {name: flags[name] for name in asked.parts if flags[name] is not None}
            values[one.name] = parts or None
        elif asked.unit.action == "append":
            values[one.name] = tuple(dict.fromkeys(flags[one.name] or ()))
        else:
            values[one.name] = flags[one.name]
    given = frozenset(word.partition("=")[0] for word in words if word.startswith("--"))
    found = _build(kind, values, given)
    for wrong in found.contradictions():
        parser.error(wrong)
    return found


def read_keywords(verb: str, kind: type[_Q], given: Mapping[str, Any]) -> _Q:
    """Keyword arguments of Python as a question; messages have flags, see ``keyword_of``.

    Raises:
        ConfigError: an unknown or missing keyword, a wrong value, or some that contradict.
    """
    known = {one.name: (one, asked) for one, asked in _fields_of(kind)}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{verb} has no keyword {name}; {nearest_known(name, known)}")
        one, asked = known[name]
        is_open = value is None and "None" in str(one.type)
        if not is_open and (why := asked.unit.refuse(value)):
            raise ConfigError(f"{name} is {value!r}; {why}{'' if why.endswith('?') else '.'}")
    required = {name for name, (one, _) in known.items() if one.default is MISSING}
    if missing := sorted(required - given.keys()):
        raise ConfigError(f"{verb} needs {', '.join(missing)}.")
    flags = (_words(*known[name])[-1] for name, v in given.items() if v != known[name][0].default)
    found = _build(kind, given, frozenset(flags))
    for wrong in found.contradictions():
        raise ConfigError(f"{wrong}.")
    return found


def keyword_of(kind: type[VerbQuestion], flag: str) -> str | None:
    """The keyword with the meaning of a flag; None if there is not one."""
    for one, asked in _fields_of(kind):
        if asked.parts and _dashes(flag).removeprefix("--") in map(_dashes, asked.parts):
            return f"{one.name}[{flag.removeprefix('--').replace('-', '_')!r}]"
        if flag in _words(one, asked):
            return one.name
    return None


def asked_fields(kind: type[VerbQuestion]) -> Iterator[tuple[str, Any, str]]:
    """Name, default and description of each parameter; required ones first."""
    every = sorted(_fields_of(kind), key=lambda pair: pair[0].default is not MISSING)
    yield from ((one.name, one.default, asked.about) for one, asked in every)


def _build(kind: type[_Q], values: Mapping[str, Any], given: frozenset[str]) -> _Q:
    found = kind(**values)
    object.__setattr__(found, "given", given)
    return found
