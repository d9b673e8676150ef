"""Widths of the rounds' intervals, and how often they contain the truth; prints a table.

Rounds of two equal configurations are drawn from recordings (``tests/data/step_noise.json``, and
the rounds in ``landscapes/real_cpu.jsonl`` less what each configuration differs from the others)
and from normal noise of known spread. An interval counts as true only if the intervals after all
rounds before it are, too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.playoff.rule import Rounds
from autoconf_launch.autotuner.space.settings import OBJECTIVES
from autoconf_launch.autotuner.space.trial import Measurement, Record, Trial, Turn
from autoconf_launch.core import Candidate, Layout

ROOT = Path(__file__).parents[1]
BUSY = ROOT / "tests" / "data" / "step_noise.json"
QUIET = ROOT / "benchmarks" / "landscapes" / "real_cpu.jsonl"
ROUNDS = (1, 2, 3, 4, 6, 10)
STEPS = 6
"""Number of steps of a launch with artificial noise."""
MADE = ((0.003, 0.003), (0.01, 0.005), (0.03, 0.01), (0.06, 0.01), (0.1, 0.02))
"""Spread of a step and of a launch."""

Steps = Sequence[float]
Draw = Callable[[random.Random], tuple[Steps, Steps]]


def busy_rounds() -> list[list[list[float]]]:
    """Logarithms of the steps of each launch in each round."""
    rounds = json.loads(BUSY.read_text())["rounds"]
    return [[[math.log(s) for s in launch] for launch in part["step_s"]] for part in rounds]


def quiet_rounds() -> list[list[list[float]]]:
    """Recorded rounds of a quiet machine, each configuration's mean over its study taken out."""
    found: list[list[list[float]]] = []
    study: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for line in (*QUIET.read_text().splitlines(), "{}"):
        final = json.loads(line).get("final")
        if final:
            steps = [math.log(step_s) for step_s in final["measurement"]["step_s"]]
            study[final["name"]][final["attempt"]] = steps
        elif study:
            found += _remove_levels(study)
            study = defaultdict(dict)
    return found


def _remove_levels(study: dict[str, dict[int, list[float]]]) -> list[list[list[float]]]:
    common = set.intersection(*(set(rounds) for rounds in study.values()))
    levels = {name: fmean(fmean(r[n]) for n in common) for name, r in study.items()}
    return [
        [[value - levels[name] for value in rounds[number]] for name, rounds in study.items()]
        for number in sorted(common)
    ]


def draw_rounds(rounds: list[list[list[float]]]) -> Draw:
    """A draw of two launches of a random round."""

    def draw(chance: random.Random) -> tuple[Steps, Steps]:
        one, other = chance.sample(chance.choice(rounds), 2)
        return one, other

    return draw


def draw_launches(step: float, launch: float) -> Draw:
    """Two launches with such noise."""

    def one(chance: random.Random) -> Steps:
        level = chance.gauss(0.0, launch)
        return [level + chance.gauss(0.0, step) for _ in range(STEPS)]

    return lambda chance: (one(chance), one(chance))


def study(draw: Draw, seed: int) -> list[tuple[bool, float]]:
    """After each round, whether every interval so far was true, and half the width of the last."""
    chance, found, true = random.Random(seed), [], True
    rounds = Rounds([_record([0.0], 0)] * 2, OBJECTIVES["throughput"], PRIOR)
    for number in range(1, max(ROUNDS) + 1):
        for contender, steps in zip(rounds.contenders, draw(chance), strict=True):
            contender.rounds[number] = _record(steps, number)
        last = rounds.compare(*rounds.contenders)
        true = true and not last.differs
        found.append((true, last.width))
    return found


def _record(logs: Steps, number: int) -> Record:
    trial = Trial(
        number=1,
        name="one",
        candidate=Candidate(layout=Layout()),
        space="z0",
        attempt=max(1, number),
        turn=Turn(next_name="other", is_first=True),
    )
    steps = tuple(math.exp(log) for log in logs)
    outcome = Measurement(step_s=steps, samples_per_step=1, world_size=1)
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def row(name: str, draw: Draw, runs: int) -> str:
    """Half widths after each of ``ROUNDS``, and the share of studies that were never wrong."""
    studies = [study(draw, seed) for seed in range(runs)]
    widths = [median(one[count - 1][1] for one in studies) for count in ROUNDS]
    cells = [f"{100 * math.expm1(width):.1f} %" for width in widths]
    right = fmean(one[-1][0] for one in studies)
    return f"| {name} | {' | '.join(cells)} | {100 * right:.1f} % |"


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="studies of each kind")
    runs = parser.parse_args().runs
    counts = " | ".join(f"{count} round{'s'[: count - 1]}" for count in ROUNDS)
    print(f"| noise | {counts} | never wrong in {max(ROUNDS)} |")
    print(f"|---|{'---|' * (len(ROUNDS) + 1)}")
    print(row("recorded, busy", draw_rounds(busy_rounds()), runs))
    print(row("recorded, quiet", draw_rounds(quiet_rounds()), runs))
    for step, launch in MADE:
        print(row(f"step {step:.1%}, launch {launch:.1%}", draw_launches(step, launch), runs))


if __name__ == "__main__":
    main()
