"""The core of questions: a parameter is declared once, and asked by a flag or a keyword.

A question is a class of parameters::

    @question
    class PlanQuestion(VerbQuestion):
        tokens: int | None = parameter("ranking", "to train on", TOKENS, default=None)

Its flags come from ``parser`` and :func:`read_flags`, its Python function from ``answers``.
"""

from __future__ import annotations

import inspect
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import reduce, wraps
from inspect import formatannotation
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, get_type_hints

from autoconf_launch.core import ConfigError, nearest_known

from .units import ValueUnit
from .verb_parser import VerbParser, unknown_flag

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

_Q = TypeVar("_Q", bound="VerbQuestion")
_T = TypeVar("_T")
_P = ParamSpec("_P")
_A = TypeVar("_A")
_FLAG = re.compile(r"--[A-Za-z][\w-]*")
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    group: str
    about: str
    unit: ValueUnit
    flag: str
    parts: Mapping[str, tuple[Any, ...]]


def parameter(
    group: str,
    about: str,
    unit: ValueUnit,
    *,
    default: Any = MISSING,
    flag: str = "",
    parts: Mapping[str, tuple[Any, ...]] = _NONE,
) -> Any:
    """A parameter of a question.

    Args:
        group: title of its flags in the help; empty: next to ``--help``.
        about: its line in the help and in Python's docstring.
        unit: how its values are written.
        default: without one it is required.
        flag: words of the command line; empty: its own name with dashes, ``_``: as it is.
        parts: keys of a mapping that are flags, each with its unit and line, and its group if it
            has another one.
    """
    asked = _Asked(group=group, about=about, unit=unit, flag=flag, parts=parts)
    return field(default=default, metadata={"asked": asked})


def asked_part(*, default: _T) -> _T:
    """A field whose value has its own parameters."""
    part: _T = field(default=default, metadata={"part": type(default)})
    return part


if TYPE_CHECKING:

    @dataclass_transform(
        kw_only_default=True, frozen_default=True, field_specifiers=(parameter, asked_part, field)
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
    groups: tuple[str, ...] = ()


@question
class VerbQuestion:
    """Parameters of a verb.

    Attributes:
        given: flags that say more than the defaults, however they were given.
        exclusive: pairs of flags of which one may be given.
    """

    given: frozenset[str] = field(default=frozenset(), init=False, compare=False)
    header: ClassVar[Header]
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = ()

    def contradictions(self) -> Iterator[str]:
        """Sentences on parameters that do not go together, by their flags."""
        for first, second in self.exclusive:
            if self._says(first) and self._says(second):
                yield f"{first} and {second} cannot be given together; give one of them"

    def _says(self, flag: str) -> bool:
        for one in asked_parameters(type(self)):
            value, name = one.value_in(self), flag.rpartition("--")[2]
            if name in one.asked.parts:
                return name in (value or ())
            if f"--{name}" in one.flags:
                return bool(value != one.default)
        return False

    @classmethod
    def parser(cls, stand_in: Mapping[str, Any] = _NONE) -> VerbParser:
        header = cls.header
        parser = VerbParser(
            prog=f"autoconf-launch {header.verb}",
            usage=header.usage,
            description=header.description,
            examples=header.examples,
        )
        for title in ("", *header.groups):
            group = parser.add_argument_group(title) if title else parser
            for one in asked_parameters(cls):
                for part in one.parts:
                    if part.asked.group == title:
                        _add(group, part, stand_in)
        return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A declared parameter.

    Attributes:
        path: the field, below the fields that it is a part of.
        asked: its declaration.
        default: MISSING if it is required.
        is_open: it may be None.
        flags: its words on the command line.
    """

    path: tuple[str, ...]
    asked: _Asked
    default: Any
    is_open: bool
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its keyword in Python."""
        return self.path[-1]

    @property
    def dest(self) -> str:
        """Its name among parsed flags."""
        return ".".join(self.path)

    @property
    def long_flag(self) -> str:
        """The first of its long flags; empty if it has none."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")

    @property
    def parts(self) -> Iterator[Parameter]:
        """Keys of a mapping that are flags; else the parameter itself."""
        for name, (unit, about, *own) in self.asked.parts.items():
            group = own[0] if own else self.asked.group
            asked = _Asked(group=group, about=about, unit=unit, flag="", parts=_NONE)
            flags = _words(name, self.asked.flag)
            yield Parameter(path=(name,), asked=asked, default=None, is_open=True, flags=flags)
        if not self.asked.parts:
            yield self

    def value_in(self, asked: object) -> Any:
        """Its value in a question."""
        return reduce(getattr, self.path, asked)

    def keyword_value(self, value: Any) -> Any:
        """A keyword's value; text is read as a flag's word: ``2T``, ``10%``.

        Raises:
            ConfigError: it is wrong.
        """
        unit, is_listed = self.asked.unit, self.asked.unit.action == "append"
        if value is None and self.is_open:
            return None
        if self.asked.parts:
            return self._mapping_value(value)
        try:
            if isinstance(value, str) and unit.takes_word:
                word = unit.read(value)
                return (word,) if is_listed and word != value else word
            if is_listed and isinstance(value, (list, tuple)):
                value = tuple(_read_text(unit, one) for one in value)
        except ArgumentTypeError as error:
            said = str(error)  # which may begin with its flag
            text = said if said.startswith("--") else f"{self.name} {said}"
            raise ConfigError(_sentence(text)) from None
        if why := unit.refuse(value):
            raise ConfigError(_sentence(f"{self.name} is {value!r}; {why}"))
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return unit.read(str(value)) if unit.reads_whole and is_whole else value

    def _mapping_value(self, value: Any) -> Any:
        if why := self.asked.unit.refuse(value):
            raise ConfigError(_sentence(f"{self.name} is {value!r}; {why}"))
        rows = self.asked.parts
        found = {}
        for key, one in value.items():
            if key in rows:
                asked = replace(self.asked, unit=rows[key][0], parts=_NONE)
                path = (f"{self.name}[{key!r}]",)
                one = replace(self, path=path, asked=asked, is_open=True).keyword_value(one)
            found[key] = one
        return found


def _read_text(unit: ValueUnit, value: Any) -> Any:
    return unit.read(value) if isinstance(value, str) else value


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


_PARAMETERS = dict[type, tuple[Parameter, ...]]()
"""Parameters of each question, read once."""


def asked_parameters(kind: type) -> tuple[Parameter, ...]:
    """All parameters of a question; parameters of its parts are in their place."""
    if kind not in _PARAMETERS:
        _PARAMETERS[kind] = tuple(_read_parameters(kind, ()))
    return _PARAMETERS[kind]


def _read_parameters(kind: type, path: tuple[str, ...]) -> Iterator[Parameter]:
    for one in fields(kind):
        if "part" in one.metadata:
            yield from _read_parameters(one.metadata["part"], (*path, one.name))
        elif "asked" in one.metadata:
            asked = one.metadata["asked"]
            yield Parameter(
                path=(*path, one.name),
                asked=asked,
                default=one.default,
                is_open="None" in str(one.type),
                flags=() if asked.unit.place or asked.parts else _words(one.name, asked.flag),
            )


def _words(name: str, flag: str) -> tuple[str, ...]:
    own = {"": f"--{_dashes(name)}", "_": f"--{name}"}
    return tuple(own.get(flag, flag).split())


def _dashes(name: str) -> str:
    """A flag as it is known by: two dashes, and dashes between its words."""
    return name.replace("_", "-")


def _add(group: Any, one: Parameter, stand_in: Mapping[str, Any]) -> None:
    unit, about = one.asked.unit, one.asked.about.replace("%", "%%")
    options = {"help": about, **unit.options}
    if unit.place:
        group.add_argument(one.dest, **options)
        return
    default = stand_in.get(one.name, one.default)
    options |= {"required": True} if default is MISSING else {"default": default}
    if unit.action == "append":
        options["default"] = None
    group.add_argument(*one.flags, dest=one.dest, **options)


def with_known_flags(parser: VerbParser, arguments: Sequence[str]) -> list[str]:
    """Arguments with flags as they are declared, in which ``-`` and ``_`` are equal.

    Raises:
        ConfigError: a flag is unknown; the message has the nearest one.
    """
    known = {_dashes(flag): flag for flag in parser._option_string_actions}
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if re.fullmatch(r"--[A-Za-z]\S*", name):
            if _dashes(name) not in known:
                raise unknown_flag(_dashes(name), known, f"{parser.prog} --help")
            name = known[_dashes(name)]
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
    words = with_known_flags(parser, arguments)
    rest = next((one for one in asked_parameters(kind) if one.asked.unit.place == "*"), None)
    if rest is None:
        flags = parser.parse_args(words)
    else:  # argparse takes one run of them
        flags, others = parser.parse_known_args(words)
        for word in (one for one in others if one.startswith("-")):
            raise unknown_flag(word, parser._option_string_actions, f"{parser.prog} --help")
        setattr(flags, rest.dest, [*getattr(flags, rest.dest), *others])
    given = frozenset(word.partition("=")[0] for word in words if word.startswith("--"))
    found = build_question(kind, flags, given)
    for wrong in found.contradictions():
        parser.error(wrong)
    return found


def build_question(
    kind: type[_Q], flags: Namespace, given: frozenset[str] = frozenset(), **others: Any
) -> _Q:
    """Parsed flags as a question, with values of its fields that have no flags."""
    said = vars(flags)
    values: dict[str, Any] = {}
    for one in asked_parameters(kind):
        if one.asked.parts:
            parts = {name: said[name] for name in one.asked.parts if said[name] is not None}
            value: Any = parts or None
        elif one.asked.unit.action == "append":
            value = tuple(dict.fromkeys(said[one.dest] or ()))
        else:
            value = tuple(said[one.dest]) if one.asked.unit.place in ("+", "*") else said[one.dest]
        values[one.dest] = value
    parts_of = {one.name: one.metadata["part"] for one in fields(kind) if "part" in one.metadata}
    for name, part in parts_of.items():
        own = {one.name: values.pop(f"{name}.{one.name}") for one in asked_parameters(part)}
        values[name] = part(**own)
    return _build(kind, {**values, **others}, given)


def flag_words(asked: VerbQuestion, groups: Collection[str]) -> Iterator[str]:
    """Flags for the values of some groups that differ from their defaults."""
    for one in asked_parameters(type(asked)):
        value = one.value_in(asked)
        if one.asked.group in groups and value != one.default:
            yield one.long_flag
            if one.asked.unit.takes_word:
                yield one.asked.unit.write(value)


def read_keywords(verb: str, kind: type[_Q], given: Mapping[str, Any]) -> _Q:
    """Keyword arguments of Python as a question; messages have flags, see ``keyword_of``.

    Raises:
        ConfigError: an unknown or missing keyword, a wrong value, or some that contradict.
    """
    known = {one.name: one for one in asked_parameters(kind)}
    for name in (name for name in given if name not in known):
        raise ConfigError(f"{verb} has no keyword {name}; {nearest_known(name, known)}")
    values = {name: known[name].keyword_value(value) for name, value in given.items()}
    required = {name for name, one in known.items() if one.default is MISSING}
    if missing := sorted(required - values.keys()):
        raise ConfigError(f"{verb} needs {', '.join(missing)}.")
    flags = (known[name].long_flag for name, v in values.items() if v != known[name].default)
    found = _build(kind, values, frozenset(flags))
    for wrong in found.contradictions():
        raise ConfigError(f"{wrong}.")
    return found


def keyword_of(kind: type[VerbQuestion], flag: str) -> str | None:
    """The keyword with the meaning of a flag; None if there is not one."""
    for one in asked_parameters(kind):
        for part in one.parts:
            if _dashes(flag) in map(_dashes, part.flags):
                return one.name if part is one else f"{one.name}[{part.name!r}]"
    return None


def asked_fields(kind: type[VerbQuestion]) -> Iterator[Parameter]:
    """Each parameter; required ones first."""
    yield from sorted(asked_parameters(kind), key=lambda one: one.default is not MISSING)


def _build(kind: type[_Q], values: Mapping[str, Any], given: frozenset[str]) -> _Q:
    found = kind(**values)
    object.__setattr__(found, "given", given)
    return found


def answers(
    kind: Callable[_P, _Q], **types: type
) -> Callable[[Callable[..., _A]], Callable[_P, _A]]:
    """Turn a function of a question into a function of the question's parameters.

    Other arguments of the function stay in front of them.

    Args:
        kind: the class of the question.
        types: named in its annotations, and imported for type checkers only.
    """
    assert isinstance(kind, type)
    question: type[_Q] = kind

    def decorate(answer: Callable[..., _A]) -> Callable[_P, _A]:
        said = get_type_hints(answer, localns=types)
        own = [
            one.replace(annotation=said[one.name])
            for one in list(inspect.signature(answer).parameters.values())[1:]
        ]

        @wraps(answer)
        def verb(*args: _P.args, **given: _P.kwargs) -> _A:
            if len(args) > len(own):
                taken = f"{args[len(own)]!r}"
                raise ConfigError(f"{answer.__name__} takes keywords only, got {taken}.")
            first = {one.name: value for one, value in zip(own, args, strict=False)}
            first |= {one.name: given.pop(one.name) for one in own if one.name in given}
            with keyword_errors(lambda flag: keyword_of(question, flag)):
                return answer(read_keywords(answer.__name__, question, given), **first)

        hints = get_type_hints(question, localns=types)
        parameters = [_parameter(one, hints[one.name]) for one in asked_fields(question)]
        signature = inspect.Signature([*own, *parameters], return_annotation=said.get("return"))
        verb.__signature__ = signature  # type: ignore[attr-defined]
        lines = (
            f"    {one.name} ({formatannotation(hints[one.name])}): {one.asked.about}."
            for one in asked_fields(question)
        )
        verb.__doc__ = "\n".join((inspect.getdoc(answer) or "", "", "Args:", *lines))
        return verb

    return decorate


def _parameter(one: Parameter, hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, kind, default=default, annotation=hint)


@contextmanager
def keyword_errors(keyword: Callable[[str], str | None]) -> Iterator[None]:
    """Name keywords instead of flags in the errors of a block."""
    try:
        yield
    except ConfigError as error:
        text = _FLAG.sub(lambda found: keyword(found[0]) or found[0], str(error))
        raise ConfigError(text) from error
