"""Measures choices again by plain launches in turns: first the whole space, then a few arms."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .blocks import in_turn, ratio
from .choice import Choice, whole_space
from .running import training
from .tools import Tool

FINALISTS = 3
GROUP = 6
"""Configurations of the space that are alive at a time, beside the reference."""
LEAST_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Arm:
    """A choice on a runtime."""

    tool: Tool
    choice: Choice

    @property
    def name(self) -> str:
        """The name for people and for JSON."""
        return f"{self.choice.name} on {self.tool.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Where launches keep their files, how many steps a turn has, and who hears of them."""

    folder: Path
    steps: int
    say: Callable[[str], None]

    def interleave(
        self, arms: Sequence[Arm], goes_on: Callable[[int], bool]
    ) -> dict[Arm, list[float]]:
        """Samples/s of each arm in each block; ``goes_on`` says whether block n is to be."""
        speeds: dict[Arm, list[float]] = {arm: [] for arm in arms}
        with contextlib.ExitStack() as stack:
            alive = {
                arm: stack.enter_context(training(arm.tool, arm.choice, self._new_folder(arm)))
                for arm in speeds
            }
            block = 0
            while goes_on(block):
                for arm in in_turn(tuple(alive), block):
                    speeds[arm].append(alive[arm].speed(self.steps))
                block += 1
        for arm, found in speeds.items():
            self.say(f"  {arm.name:34} {statistics.median(found):8.1f} samples/s")
        return speeds

    def _new_folder(self, arm: Arm) -> Path:
        number = len(list(self.folder.iterdir()))
        return self.folder / f"{number:04}_{arm.tool.name}_{arm.choice.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """The whole space on one runtime.

    Attributes:
        relative: how fast each choice is beside the reference, the median over blocks.
        blocks: of each group of choices.
        wall_s: how long it took.
    """

    reference: Choice
    relative: dict[Choice, float]
    blocks: tuple[int, ...]
    wall_s: float

    @property
    def finalists(self) -> tuple[Choice, ...]:
        """The fastest, the first of them first."""
        return tuple(sorted(self.relative, key=lambda one: -self.relative[one])[:FINALISTS])


def explore(reference: Arm, runner: Runner, budget_s: float) -> Explored:
    """Measure every configuration in groups, each interleaved with the reference.

    A group goes on until its part of the budget is used, for at least two blocks. The order is
    mixed, so that no stage has all of a bad minute.
    """
    started_s = time.monotonic()
    groups = _groups(reference.choice)
    relative, blocks = {reference.choice: 1.0}, []
    for number, group in enumerate(groups, start=1):
        runner.say(f"exhaustive, group {number} of {len(groups)}   load {os.getloadavg()[0]:.1f}")
        limit_s = started_s + budget_s * number / len(groups)
        arms = [reference, *(Arm(reference.tool, choice) for choice in group)]
        speeds = runner.interleave(arms, _until(limit_s))
        for arm in arms[1:]:
            relative[arm.choice] = ratio(speeds[arm], speeds[reference]).median
        blocks.append(len(speeds[reference]))
    wall_s = time.monotonic() - started_s
    return Explored(
        reference=reference.choice, relative=relative, blocks=tuple(blocks), wall_s=wall_s
    )


def _until(limit_s: float) -> Callable[[int], bool]:
    return lambda block: block < LEAST_BLOCKS or time.monotonic() < limit_s


def _groups(reference: Choice) -> list[list[Choice]]:
    others = [choice for choice in whole_space() if choice != reference]
    random.Random(0).shuffle(others)
    return [others[start : start + GROUP] for start in range(0, len(others), GROUP)]
