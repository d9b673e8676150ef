"""The rows of a table of spellings: a knob with its places and words.

``--train_batch_size 32`` with ``--gradient_accumulation_steps 4`` are micro-batches of 8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.space import LAYOUT_KNOBS, LayoutValue, parse_value
from autoconf_launch.core import AppliedStrategy, ConfigError, ForeignWords, Knob, Recompute

from .base import CANONICAL, GLOBAL_BATCH, MEASURED
from .launch_inputs import (
    FALSE_WORDS,
    TRUE_WORDS,
    LaunchInputs,
    Place,
    Variable,
    held_place,
    held_value,
    scalar,
)

_WHOLE = ("micro_batch", "accumulation", GLOBAL_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled(ABC):
    """Reads one knob from a launch's inputs, and writes it there.

    Attributes:
        knob: field of ``Layout``, an extra, or ``GLOBAL_BATCH``.
        called: its names in the framework, for people.
        places: its possible places, which are shown as the configuration.
        default: meaning of its absence; None: unknown.
        free: values that are searched if the user sets none and leaves it open.
        factor: written number per unit of the knob's value.
    """

    knob: str
    called: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    default: LayoutValue = None
    free: tuple[LayoutValue, ...] = ()
    factor: int = 1

    def names(self) -> tuple[str, ...]:
        """Its names for people, the framework's first."""
        return (*self.called, self.knob)

    @abstractmethod
    def read(self, inputs: LaunchInputs) -> LayoutValue:
        """The knob's value; None if neither the inputs nor a default give it.

        Raises:
            ConfigError: the text in its place cannot be its value.
        """

    @abstractmethod
    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The inputs with another value."""

    @abstractmethod
    def value_of(self, word: Any) -> LayoutValue:
        """The meaning of a word in the user's list of values.

        Raises:
            ConfigError: it has no meaning here.
        """

    def write(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The inputs with a value; unchanged if they have it already."""
        return inputs if self.read(inputs) == value else self.put(inputs, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling(Spelled):
    """A knob in one place: the first place that holds it decides, else the first is written.

    Attributes:
        words: written words and their meanings; the first word of a meaning is written, None
            omits the setting. Empty: plain values.
        overrides: the first place overrides the others, and only there is written.
    """

    words: tuple[tuple[Any, LayoutValue], ...] = ()
    overrides: bool = False

    def names(self) -> tuple[str, ...]:
        places = (getattr(place, "names", (place.name,)) for place in self.places)
        return (*(name for names in places for name in names), self.knob)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        place = self._held_place(inputs)
        return self.default if place is None else self._parse_value(place.get(inputs), place.name)

    def value_of(self, word: Any) -> LayoutValue:
        """The meaning of a word; the configuration file's words are accepted, too."""
        for _, meaning in self.words:
            own = meaning.value if isinstance(meaning, Enum) else meaning
            if type(own) is type(word) and own == word:
                return meaning
        return self._parse_value(word, self.places[0].name)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        place = (None if self.overrides else self._held_place(inputs)) or self.places[0]
        word = self._word(value)
        inputs = place.drop(inputs) if word is None else place.put(inputs, word)
        if word is False and self.read(inputs) not in (value, None):  # skipped, it is on
            inputs = place.put(inputs, "false")
        return inputs

    def _word(self, value: LayoutValue) -> Any:
        if self.words:
            return next((word for word, meaning in self.words if meaning == value), None)
        plain = value.value if isinstance(value, Enum) else value
        return plain * self.factor if self.factor > 1 else plain  # type: ignore[operator]

    def _parse_value(self, given: Any, name: str) -> LayoutValue:
        if self.words:
            return self._meaning(given, name)
        value = scalar(given)
        if self.knob in _WHOLE or self.knob in LAYOUT_KNOBS:
            return self._whole(value, name)
        return value  # type: ignore[no-any-return]

    def _held_place(self, inputs: LaunchInputs) -> Place | None:
        return next(
            (place for place in self.places if (place.get(inputs) not in (None, "auto"))), None
        )

    def _meaning(self, given: Any, name: str) -> LayoutValue:
        for word, meaning in self.words:
            if _same(word, given):
                return meaning
        known = ", ".join(str(word) for word, _ in self.words if word is not None)
        raise ConfigError(f"{name} is {given!r}, which is not known here; known: {known}.")

    def _whole(self, value: Any, name: str) -> LayoutValue:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if self.knob in LAYOUT_KNOBS and LAYOUT_KNOBS[self.knob].values is not None:
            return parse_value(self.knob, number)
        number = whole_number(number, name)
        if number % self.factor:
            raise ConfigError(f"{name} is {number}, which does not divide by {self.factor} ranks.")
        return number // self.factor


def _same(word: Any, given: Any) -> bool:
    if isinstance(word, bool):
        said = str(given).strip().lower()
        return said in TRUE_WORDS if word else said in (*FALSE_WORDS, "")
    return str(word).lower() == str(given).strip().lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSpelling(Spelled):
    """An extra of ours as a framework spells it, as its row says; ``switch``: places of it."""

    extra: Knob
    words: ForeignWords
    switch: tuple[Place, ...] = ()

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        value, switch = held_value(self.places, inputs), held_value(self.switch, inputs)
        is_off = value is None if switch is None else _same(self.words.words[0], switch)
        if is_off:
            return self.extra.default  # type: ignore[no-any-return]
        return self.words.on if value is None else self.value_of(scalar(value))

    def value_of(self, word: Any) -> LayoutValue:
        value = self.extra.read(word)
        if not self.places and value not in (self.extra.default, self.words.on):
            raise ConfigError(
                f"{self.knob} is {value!r}, but {self.words.switch} can only say "
                f"{self.extra.default} or {self.words.on}."
            )
        return value

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        off, on = self.words.words
        if self.switch and value == self.extra.default:
            for place in self.places:
                inputs = place.drop(inputs)
            place = held_place(self.switch, inputs)
            return inputs if place.get(inputs) is None else place.put(inputs, off)
        if self.places:
            inputs = held_place(self.places, inputs).put(inputs, value)
        return held_place(self.switch, inputs).put(inputs, on) if self.switch else inputs


def whole_number(value: Any, name: str) -> int:
    """A whole number of at least 1.

    Raises:
        ConfigError: it is not.
    """
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1.")
    return value


def find_row(table: Sequence[Spelled], knob: str) -> Spelled | None:
    """The row of a knob; None if the framework has no word for it."""
    return next((row for row in table if row.knob == knob), None)


def find_spelling(table: Sequence[Spelled], name: str) -> Spelled | None:
    """The row that people call ``name``."""
    wanted = CANONICAL.get(name, name).lstrip("-").replace("-", "_")
    for row in table:
        if wanted in {known.lstrip("-").replace("-", "_") for known in row.names()}:
            return row
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBatch(Spelled):
    """The argument, as the global batch of ``ranks``."""

    argument: Spelling
    ranks: int
    knob: str = GLOBAL_BATCH

    def names(self) -> tuple[str, ...]:
        return (*self.argument.names()[:-1], self.knob)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        held: Any = self.argument.read(inputs)
        return None if held is None else int(held) * self.ranks

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        whole: Any = value
        return self.argument.write(inputs, int(whole) // self.ranks)

    def value_of(self, word: Any) -> LayoutValue:
        return self.argument.value_of(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMicroBatch(Spelled):
    """The micro-batch that follows from the argument and the accumulation."""

    argument: Spelling
    accumulation: Spelling
    knob: str = "micro_batch"

    def names(self) -> tuple[str, ...]:
        return self.argument.names()

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        held: Any = self.argument.read(inputs)
        steps: Any = self.accumulation.read(inputs)
        return None if held is None else max(1, int(held) // int(steps or 1))

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The global batch and the accumulation say it."""
        return inputs

    def value_of(self, word: Any) -> LayoutValue:
        return self.argument.value_of(word)


def applied_value(applied: AppliedStrategy | None, knob: str) -> LayoutValue:
    """The value that ran; None without a profile run, or if it could not see the knob."""
    if applied is None or knob not in MEASURED:
        return None
    value: LayoutValue = getattr(applied, knob)
    return None if knob == "micro_batch" and not value else value


def with_applied(
    table: Sequence[Spelled], inputs: LaunchInputs, applied: AppliedStrategy
) -> tuple[Spelled, ...]:
    """The table with the values that ran as defaults of rows that hold no value.

    A row whose words mean something else while it holds no value cannot change what the script
    does by itself; it is skipped, so that the knob stays as it ran.
    """
    rows = (_with_default(row, inputs, applied_value(applied, row.knob)) for row in table)
    return tuple(row for row in rows if row is not None)


def _with_default(row: Spelled, inputs: LaunchInputs, value: LayoutValue) -> Spelled | None:
    if value is None or row.read(inputs) == value or _is_given(row, inputs):
        return row
    if isinstance(row, Spelling):
        return replace(row, default=_as_words_have_it(row, value))
    return None if row.knob == "zero_stage" else row


def _is_given(row: Spelled, inputs: LaunchInputs) -> bool:
    places = row.places or tuple(map(Variable, row.names()))
    return any(place.get(inputs) not in (None, "auto") for place in places)


def _as_words_have_it(row: Spelling, value: LayoutValue) -> LayoutValue:
    """A switch turns all recomputation on, however little of it a probe sees run again."""
    meanings = [meaning for _, meaning in row.words]
    is_other = bool(meanings) and value not in meanings
    return Recompute.FULL if is_other and row.knob == "recompute" else value
