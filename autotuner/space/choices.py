"""How the user left each knob, as values. Not: the candidates that follow (space)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from .knobs import LAYOUT_KNOBS, parse_value


class ChoiceKind(str, Enum):
    """How the user left a knob."""

    PINNED = "pinned"
    """One value, or none named: the baseline's."""
    LISTED = "listed"
    """The values of a list, taken as they are."""
    MINIMUM = "minimum"
    """Micro-batch only: search from this value up (below it only if it does not fit)."""
    FREE = "free"
    """Nothing said: our own values."""


@dataclass(frozen=True, slots=True)
class KnobChoice:
    """The values of one canonical knob that may be searched; a knob without one is pinned.

    An extra may have a choice for each stage. Its usual value, with which micro-batches are
    searched first, is the first of a pinned or listed one; a free one is usually skipped.

    Attributes:
        knob: field of ``Layout``, or name of an extra.
        values: as the knob has them, in the order of the search; None omits an extra.
        how: how the user left it.
        stages: ZeRO stages that an extra's choice is for; None: all. Elsewhere it is skipped.
        origin: where the values come from, for people.
    """

    knob: str
    values: tuple[Any, ...]
    how: ChoiceKind
    stages: tuple[int, ...] | None = None
    origin: str = field(default="", compare=False)

    def is_for(self, zero_stage: int) -> bool:
        """Whether it says something of this stage."""
        return self.stages is None or zero_stage in self.stages

    @property
    def usual(self) -> Any:
        """The value of an extra while only micro-batches are searched; None: skipped."""
        return None if self.how is ChoiceKind.FREE or not self.values else self.values[0]


KnobChoices: TypeAlias = Mapping[str, KnobChoice]


def extras_of(choices: Sequence[KnobChoice]) -> tuple[KnobChoice, ...]:
    """Choices of knobs that do not belong to a layout."""
    return tuple(choice for choice in choices if choice.knob not in LAYOUT_KNOBS)


def parse_choice(choice: KnobChoice) -> KnobChoice:
    """A choice with each value as its knob has it.

    Raises:
        ConfigError: the knob cannot have a value.
    """
    values = tuple(parse_value(choice.knob, value) for value in choice.values)
    return replace(choice, values=values)
