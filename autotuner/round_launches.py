"""The launches of a round, and what they say of it once they came back. Not: who is in it.

A launch names the one that its round has next, so that a journal tells a round that was torn from
one that somebody had left, whatever the time and the budget were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .arms import Arm
from .noise import FINAL_SUFFIX, Noise
from .pace import steps_apart, steps_in_turn, steps_together
from .trial import Record, Trial, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Timed steps of each launch: the same in all rounds.

    Attributes:
        in_turn: where the launches of a round live side by side.
        turn: of them, those of one turn.
        apart: where they follow each other.
    """

    in_turn: int
    turn: int
    apart: int


def lengths(records: Sequence[Record], noise: Noise, time_s: float) -> Lengths:
    """For rounds of these configurations, of which a few must fit in ``time_s`` seconds."""
    return Lengths(
        in_turn=steps_in_turn(records, noise, time_s),
        turn=steps_together(records),
        apart=steps_apart(records, noise, time_s),
    )


def final_name(arm: Arm) -> str:
    """Of its launches in the rounds."""
    return f"{arm.name}{FINAL_SUFFIX}"


def in_turn(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """All at once: each hands the turn to the next, the last to the first, which begins."""
    after = [final_name(arm) for arm in (*due[1:], due[0])]
    return tuple(
        replace(
            _final(arm, number, then),
            turn=Turn(next_name=then, is_first=place == 0, steps=steps.in_turn, length=steps.turn),
        )
        for place, (arm, then) in enumerate(zip(due, after, strict=True))
    )


def alone(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """The first of them; the others follow it."""
    then = final_name(due[1]) if len(due) > 1 else ""
    return (replace(_final(due[0], number, then), timed_steps=steps.apart),)


def says_over(launches: Sequence[Record]) -> bool | None:
    """Whether these are all of their round; None where one of before names nobody.

    A round of one is none. A failure may be the last of them: who comes in its place begins with
    the next round.
    """
    if sum(launch.failure is None for launch in launches) < 2:
        return False
    named = {launch.trial.then for launch in launches}
    if named - {launch.trial.name for launch in launches} - {"", None}:
        return False
    return None if None in named else True


def _final(arm: Arm, number: int, then: str) -> Trial:
    name = final_name(arm)
    return replace(arm.searched.trial, name=name, attempt=number, final=True, then=then)
