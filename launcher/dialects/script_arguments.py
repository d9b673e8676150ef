"""All by which a script can be told something: arguments, words, variables. Not: what counts.

Arguments are those that it declares, also in its own modules, those that it is given, names of an
executed module, keys of a configuration that it composes, and variables that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.core import KnobValue

from .arguments import find_argument
from .own_words import bare
from .script_facts import Declared, declared_in, facts_of
from .script_source_facts import ScriptSource
from .sheet import Argument, Place, Sheet, Variable

_SHORT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One of them, with what leaving it out means; None where that is not known."""

    names: tuple[str, ...]
    default: KnobValue
    joined: bool = False
    is_variable: bool = False

    @property
    def place(self) -> Place:
        """Where it stands."""
        if self.is_variable:
            return Variable(self.names[0])
        return Argument(self.names, joined=self.joined)

    def has_value(self, source: ScriptSource) -> bool:
        """Whether it is given, or its default is known."""
        sheet = Sheet(arguments=source.script_args, environment=source.environment)
        return type(self.default) is int or self.place.get(sheet) is not None


def told_of(source: ScriptSource) -> Iterator[Told]:
    """All of them; what is said first weighs more where two are called alike."""
    executed = is_executed(source)
    known: set[str] = set()
    for told in (*_declared(source), *_given(source), *_composed(source), *_assigned(source)):
        names = {bare(name) for name in told.names}
        if not names & known:
            known |= names
            yield replace(told, joined=executed)
    for name, default in facts_of(source.text).variables:
        yield Told(names=(name,), default=default, is_variable=True)


def is_executed(source: ScriptSource) -> bool:
    """Whether the script executes text, as those do whose arguments are ``--NAME=VALUE`` alone."""
    facts = facts_of(source.text)
    return "exec" in facts.called and not facts.declared


def _declared(source: ScriptSource) -> Iterator[Told]:
    declared = declared_in((source.text, *source.modules))
    every = {name for argument in declared for name in argument.names}
    for argument in declared:
        long_first = sorted(argument.names, key=lambda name: len(name) <= _SHORT)
        short = _abbreviations(argument, source, every)
        yield Told(names=(*long_first, *short), default=argument.default)


def _abbreviations(argument: Declared, source: ScriptSource, every: set[str]) -> tuple[str, ...]:
    """What the user gives for it where the beginning of its name is enough, as argparse has it."""
    words = {word.partition("=")[0] for word in source.script_args if word.startswith("--")}
    found = []
    for word in sorted(words - every - {"--"}):
        meant = {name for name in every if name.startswith(word)}
        if meant and meant <= {*argument.names}:
            found.append(word)
    return tuple(found)


def _given(source: ScriptSource) -> Iterator[Told]:
    constants = dict(facts_of(source.text).constants)
    for word in source.script_args:
        name = word.partition("=")[0]
        is_word = "=" in word and not word.startswith("-")
        if is_word or word.startswith("--"):
            written = name.lstrip("+") if is_word else name
            yield Told(names=(written,), default=constants.get(bare(name)))


def _composed(source: ScriptSource) -> Iterator[Told]:
    for name, value in source.composed:
        if find_argument(source.script_args, (name,)) is None:
            yield Told(names=(name,), default=value)


def _assigned(source: ScriptSource) -> Iterator[Told]:
    """Module-level names of the script, overridden by the Python files that its arguments name."""
    if not is_executed(source):
        return
    values = dict(facts_of(source.text).constants)
    for file in source.files:
        if file.path.endswith(".py"):
            values |= dict(facts_of(file.text).constants)
    yield from (Told(names=(f"--{name}",), default=value) for name, value in values.items())
