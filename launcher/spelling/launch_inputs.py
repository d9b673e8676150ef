"""The inputs of a launch, as one immutable value with edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from autoconf_launch.core import KeyPath, RawConfig, dotted_name

TRUE_WORDS = ("true", "yes", "y", "t", "1", "on")
FALSE_WORDS = ("false", "no", "n", "f", "0", "off", "none")
_EMPTY = RawConfig({})


class ArgumentForm(Enum):
    """Written form of an argument."""

    SPACED = "--x 1"
    JOINED = "--x=1"
    WORD = "x=1"
    STUCK = "-x1"
    BARE = "--x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An argument as written; ``value`` is empty for a bare one."""

    index: int
    form: ArgumentForm
    value: str


def find_argument(
    arguments: tuple[str, ...], names: tuple[str, ...], *, switch: bool = False
) -> Given | None:
    """The last of these arguments; None if none is given.

    Args:
        arguments: of the script.
        names: ``--long``, ``-s``, or ``key`` without dashes for ``key=1`` only.
        switch: it needs no value; only a truth value after it is taken as one.
    """
    wanted = {_plain(name) for name in names}
    found = None
    for index, argument in enumerate(arguments):
        written, equals, value = argument.partition("=")
        if _is_stuck(argument, wanted):
            found = Given(index=index, form=ArgumentForm.STUCK, value=argument[2:])
            continue
        if _plain(written) not in wanted or (not equals and not written.startswith("-")):
            continue
        if equals:
            form = ArgumentForm.JOINED if written.startswith("-") else ArgumentForm.WORD
            found = Given(index=index, form=form, value=value)
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        spaced = _is_value(following, switch)
        found = Given(
            index=index,
            form=ArgumentForm.SPACED if spaced else ArgumentForm.BARE,
            value=str(following) if spaced else "",
        )
    return found


def put_argument(
    arguments: tuple[str, ...],
    given: Given | None,
    name: str,
    value: str | None,
    *,
    joined: bool = False,
) -> tuple[str, ...]:
    """Set a value in the form it was given in, or append it; None: bare.

    An appended one has an equals sign if ``joined``, or if all others have one.
    """
    if given is None:
        return (*arguments, *_argument_words(name, value, joined=joined or _are_joined(arguments)))
    before, after = arguments[: given.index], arguments[given.index + 1 :]
    written = arguments[given.index].partition("=")[0]
    if given.form is ArgumentForm.SPACED:
        rest = after[1:]
        return (*before, written, *(() if value is None else (value,)), *rest)
    if given.form is ArgumentForm.STUCK:
        return (*before, f"{written[:2]}{value or ''}", *after)
    if given.form is ArgumentForm.BARE:
        return (*before, written, *(() if value is None else (value,)), *after)
    return (*before, written if value is None else f"{written}={value}", *after)


def set_argument(arguments: tuple[str, ...], name: str, value: str) -> tuple[str, ...]:
    """The arguments with a value for a name, in the form it was given in."""
    return put_argument(arguments, find_argument(arguments, (name,)), name, value)


def drop_argument(arguments: tuple[str, ...], given: Given | None) -> tuple[str, ...]:
    """The arguments without this one and its value."""
    if given is None:
        return arguments
    end = given.index + (2 if given.form is ArgumentForm.SPACED else 1)
    return (*arguments[: given.index], *arguments[end:])


def without_arguments(arguments: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without any of these names, however often they are given."""
    while (given := find_argument(arguments, names)) is not None:
        arguments = drop_argument(arguments, given)
    return arguments


def _plain(name: str) -> str:
    """A long name without its dashes; ``-b`` stays, as ``b`` is different."""
    bare = name.lstrip("-+")
    return name if name.startswith("-") and len(bare) == 1 else bare.replace("-", "_")


def _is_stuck(argument: str, wanted: set[str]) -> bool:
    return argument[:2] in wanted and argument[1:2].isalpha() and argument[2:].isdecimal()


def _is_value(following: str | None, switch: bool) -> bool:
    if following is None:
        return False
    if switch:
        return following.lower() in (*TRUE_WORDS, *FALSE_WORDS)
    negative = following[1:].replace(".", "", 1).isdigit()
    return not following.startswith("-") or negative


def _argument_words(name: str, value: str | None, *, joined: bool) -> tuple[str, ...]:
    if value is None:
        return (name,)
    return (f"{name}={value}",) if joined or not name.startswith("-") else (name, value)


def _are_joined(arguments: tuple[str, ...]) -> bool:
    """True if all script arguments have an equals sign: some parsers accept no other."""
    flags = [argument for argument in arguments if argument.startswith("--")]
    return bool(flags) and all("=" in flag for flag in flags)


def path_argument(arguments: tuple[str, ...], position: int) -> str:
    """The path in an argument that is ``PATH`` or ``--flag=PATH``."""
    flag, equals, value = arguments[position].partition("=")
    return value if equals and flag.startswith("-") else arguments[position]


def with_path_argument(
    arguments: tuple[str, ...], position: int | None, path: str
) -> tuple[str, ...]:
    """The arguments with another path at this position; unchanged if it is None."""
    if position is None:
        return arguments
    flag, equals, _ = arguments[position].partition("=")
    joined = equals and flag.startswith("-")
    changed = f"{flag}={path}" if joined else path
    return (*arguments[:position], changed, *arguments[position + 1 :])


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInputs:
    """Arguments, variables and one document of a launch."""

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    document: RawConfig = field(default_factory=lambda: _EMPTY)

    def variable(self, name: str) -> str | None:
        return dict(self.environment).get(name)

    def with_variable(self, name: str, value: str) -> LaunchInputs:
        kept = tuple(pair for pair in self.environment if pair[0] != name)
        return replace(self, environment=(*kept, (name, value)))

    def without_variable(self, name: str) -> LaunchInputs:
        kept = tuple(pair for pair in self.environment if pair[0] != name)
        return replace(self, environment=kept)


class Place(Protocol):
    """A possible place of a setting."""

    @property
    def name(self) -> str:
        """Its name for people: ``--batch_size``, ``FSDP_VERSION``, ``training.steps``."""

    def get(self, inputs: LaunchInputs) -> Any:
        """Text of an argument or variable, a JSON value of a document; None: not present."""

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs: ...

    def drop(self, inputs: LaunchInputs) -> LaunchInputs: ...


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument by any of its names; the first is written.

    Attributes:
        switch: it is present or absent, and takes no value.
        joined: its value needs an equals sign.
        opposites: names that switch it off; the first is written.
    """

    names: tuple[str, ...]
    switch: bool = False
    joined: bool = False
    opposites: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0]

    def get(self, inputs: LaunchInputs) -> Any:
        given = self._find(inputs)
        if given is None:
            return None
        if given.form is not ArgumentForm.BARE:
            return given.value
        off = find_argument(inputs.arguments[given.index :], self.opposites, switch=True)
        return "true" if off is None else "false"

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        given = self._find(inputs)
        if self.opposites:
            name = self.name if text_of(value).lower() in TRUE_WORDS else self.opposites[0]
            arguments = drop_argument(inputs.arguments, given)
            place = len(arguments) if given is None else given.index
            arguments = (*arguments[:place], name, *arguments[place:])
            return replace(inputs, arguments=arguments)
        if self.switch and value is False:
            return self.drop(inputs)
        bare = self.switch and value is True
        text = None if bare else text_of(value)
        arguments = put_argument(inputs.arguments, given, self.name, text, joined=self.joined)
        return replace(inputs, arguments=arguments)

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        return replace(inputs, arguments=drop_argument(inputs.arguments, self._find(inputs)))

    def _find(self, inputs: LaunchInputs) -> Given | None:
        names = (*self.names, *self.opposites)
        return find_argument(inputs.arguments, names, switch=self.switch)


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable."""

    name: str

    def get(self, inputs: LaunchInputs) -> Any:
        return inputs.variable(self.name)

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        return inputs.with_variable(self.name, text_of(value))

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        return inputs.without_variable(self.name)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the document."""

    path: KeyPath

    @property
    def name(self) -> str:
        return dotted_name(self.path)

    def get(self, inputs: LaunchInputs) -> Any:
        return inputs.document.get(self.path)

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        return replace(inputs, document=inputs.document.with_value(self.path, value))

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        return replace(inputs, document=inputs.document.without(self.path))


def held_place(places: Sequence[Place], inputs: LaunchInputs) -> Place:
    """The first place that has the setting, else the first of all."""
    return next((place for place in places if place.get(inputs) is not None), places[0])


def held_value(places: Sequence[Place], inputs: LaunchInputs, default: Any = None) -> Any:
    """The setting in the first place that has it."""
    found = (place.get(inputs) for place in places)
    return next((value for value in found if value is not None), default)


def text_of(value: Any) -> str:
    """A value as text of an argument or a variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def scalar(value: Any) -> Any:
    """A plain value of text: ``2``, ``0.5``, ``true``; other text stays."""
    if not isinstance(value, str):
        return value
    lower = value.strip().lower()
    if lower in ("true", "false"):
        return lower == "true"
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return value
