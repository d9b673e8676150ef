"""All that a launch is told, as one immutable value with edits. Not: what any of it means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from autoconf_launch.core import KeyPath, RawConfig, dotted

from .arguments import TRUE_WORDS, ArgumentForm, Given, drop_argument, find_argument, put_argument

_EMPTY = RawConfig({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInputs:
    """Arguments, variables and one document of a launch."""

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    document: RawConfig = field(default_factory=lambda: _EMPTY)

    def variable(self, name: str) -> str | None:
        """The value of a variable; None where it is not set."""
        return dict(self.environment).get(name)

    def with_variable(self, name: str, value: str) -> LaunchInputs:
        """The same with one variable set."""
        kept = tuple(pair for pair in self.environment if pair[0] != name)
        return replace(self, environment=(*kept, (name, value)))

    def without_variable(self, name: str) -> LaunchInputs:
        """The same with one variable not set."""
        kept = tuple(pair for pair in self.environment if pair[0] != name)
        return replace(self, environment=kept)


class Place(Protocol):
    """Where a setting may stand."""

    @property
    def name(self) -> str:
        """How people call it: ``--batch_size``, ``FSDP_VERSION``, ``training.steps``."""

    def get(self, inputs: LaunchInputs) -> Any:
        """Text of an argument or variable, a JSON value of a document; None: not there."""

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        """Set it."""

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        """Leave it out."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument by any of its names, of which the first is written.

    Attributes:
        names: all that mean it.
        switch: it is given or not, and takes no value.
        joined: its value needs an equals sign.
        opposites: names that switch it off, of which the first is written.
    """

    names: tuple[str, ...]
    switch: bool = False
    joined: bool = False
    opposites: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """See :class:`Place`."""
        return self.names[0]

    def get(self, inputs: LaunchInputs) -> Any:
        """See :class:`Place`."""
        given = self._given(inputs)
        if given is None:
            return None
        if given.form is not ArgumentForm.BARE:
            return given.value
        off = find_argument(inputs.arguments[given.index :], self.opposites, switch=True)
        return "true" if off is None else "false"

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        """See :class:`Place`."""
        given = self._given(inputs)
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
        """See :class:`Place`."""
        return replace(inputs, arguments=drop_argument(inputs.arguments, self._given(inputs)))

    def _given(self, inputs: LaunchInputs) -> Given | None:
        names = (*self.names, *self.opposites)
        return find_argument(inputs.arguments, names, switch=self.switch)


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable."""

    name: str

    def get(self, inputs: LaunchInputs) -> Any:
        """See :class:`Place`."""
        return inputs.variable(self.name)

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        """See :class:`Place`."""
        return inputs.with_variable(self.name, text_of(value))

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        """See :class:`Place`; a variable of the user can only be emptied."""
        return inputs.without_variable(self.name)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the document."""

    path: KeyPath

    @property
    def name(self) -> str:
        """See :class:`Place`."""
        return dotted(self.path)

    def get(self, inputs: LaunchInputs) -> Any:
        """See :class:`Place`."""
        return inputs.document.get(self.path)

    def put(self, inputs: LaunchInputs, value: Any) -> LaunchInputs:
        """See :class:`Place`."""
        return replace(inputs, document=inputs.document.with_value(self.path, value))

    def drop(self, inputs: LaunchInputs) -> LaunchInputs:
        """See :class:`Place`."""
        return replace(inputs, document=inputs.document.without(self.path))


def text_of(value: Any) -> str:
    """A value as an argument or a variable has it."""
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
