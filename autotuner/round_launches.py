"""The launches of a round, and what they say of it once they came back. Not: who is in it.

A launch names the one that its round has next, so that a journal tells a round that was torn from
one that somebody had left, whatever the time and the budget were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .arms import Arm
from .noise import FINAL_SUFFIX, Noise
from .pace import steps_apart, steps_of_turn, time_apart_s, turn_time_s, turns_of_round
from .trial import Record, Trial, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the timed steps of each launch take: the same time for all, in all rounds.

    Attributes:
        turns: of each, where the launches of a round live side by side.
        turn_s: seconds of one turn.
        apart_s: of all timed steps, where launches follow each other.
    """

    turns: int
    turn_s: float
    apart_s: float


def lengths(records: Sequence[Record], noise: Noise, time_s: float) -> Lengths:
    """For rounds of these configurations, of which a few must fit in ``time_s`` seconds."""
    return Lengths(
        turns=turns_of_round(records, noise, time_s),
        turn_s=turn_time_s(records),
        apart_s=time_apart_s(records, noise, time_s),
    )


def steps_s(arm: Arm, lengths: Lengths, *, together: bool) -> float:
    """Seconds of all steps of a launch of a round, those that do not count with them."""
    measured = arm.searched.measurement
    if measured is None:
        return 0.0
    in_turn = lengths.turns * steps_of_turn(arm.searched, lengths.turn_s)
    timed = in_turn if together else steps_apart(arm.searched, lengths.apart_s)
    return ((measured.first_step or 1) - 1 + timed) * measured.mean_step_s


def final_name(arm: Arm) -> str:
    """Of its launches in the rounds."""
    return f"{arm.name}{FINAL_SUFFIX}"


def in_turn(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """All at once: each hands the turn to the next, the last to the first, which begins."""
    after = [final_name(arm) for arm in (*due[1:], due[0])]
    each = [steps_of_turn(arm.searched, steps.turn_s) for arm in due]
    return tuple(
        replace(
            _final(arm, number, then),
            turn=Turn(
                next_name=then, is_first=arm is due[0], steps=steps.turns * length, length=length
            ),
        )
        for arm, then, length in zip(due, after, each, strict=True)
    )


def alone(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """The first of them; the others follow it."""
    then = final_name(due[1]) if len(due) > 1 else ""
    timed = steps_apart(due[0].searched, steps.apart_s)
    return (replace(_final(due[0], number, then), timed_steps=timed),)


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
