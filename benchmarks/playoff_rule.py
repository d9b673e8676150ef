"""The choice of a playoff under recorded noise: its regret and its time; prints a table.

    python benchmarks/playoff_rule.py [--runs 200] [--write]

A study is drawn from a landscape of ``ground_truth``: the user's configuration and eight others,
the three best among them, each measured once as a search does and the user's once more at its end,
then the playoff. Every step is the
configuration's own time multiplied by the next factor of a noise series, and launching takes time,
in which the series goes on, so that launches that follow each other meet another machine.
Regret is how much slower the choice is than the best configuration of the study.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from interval_widths import busy_rounds, quiet_rounds
from recorded_landscapes import read_landscapes

from autoconf_launch.autotuner.measurement import EFFORTS, estimate_noise
from autoconf_launch.autotuner.playoff import (
    Decision,
    Playoff,
    PlayoffBudget,
    choose_contenders,
    decide,
    playoff_s,
)
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    Measurement,
    Record,
    Trial,
)
from autoconf_launch.core import Candidate, Layout, MemoryUse

FOLDER = Path(__file__).parent
RESULT = FOLDER / "results" / "playoff_rule.md"
NOW, APART = "the rule, in turn", "the rule, in sequence"
TABLES = ("vtrain_single_node", "amp_homogeneous_t4", "bigscience_a100", "simumax_b200")
THROUGHPUT = OBJECTIVES["throughput"]
BEST, OTHERS, SAMPLES = 3, 5, 32
MEMORY = MemoryUse(free_before_bytes=100, peak_bytes=10, limit_bytes=100)
FASTEST_S = 0.2
"""Duration of a step on the busy machine when it was idle."""
WARM_UP, TIMED = 2, 6
"""Steps of a launch of the search that do not count, and that do."""
HEADER = (
    "| rule | noise | regret, mean | regret, 95 % | kept the user's | slower than the user's"
    " | in the interval | playoff, median s | rounds |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A machine: factors of steps in the order of time, and what a launch adds.

    Attributes:
        name: for people.
        series: factors of consecutive steps.
        launch: spread of launches of one configuration, as a logarithm.
        step_s: seconds of a step of the best configuration without noise.
        start_s: seconds from a launch to its first step.
        fits: whether all finalists fit in memory side by side.
    """

    name: str
    series: tuple[float, ...]
    launch: float
    step_s: float
    start_s: float
    fits: bool = True


def noises() -> tuple[Noise, ...]:
    """The recorded machines, and two that are drawn with a GPU's times."""
    chance = random.Random(0)
    still = tuple(math.exp(chance.gauss(0.0, 0.01)) for _ in range(2000))
    level, moving = 0.0, []
    for _ in range(2000):
        level = 0.99 * level + chance.gauss(0.0, 0.006)
        moving.append(math.exp(level + chance.gauss(0.0, 0.02)))
    return (
        Noise(
            name="busy",
            series=tuple(step_s / FASTEST_S for step_s in _series(busy_rounds())),
            launch=0.0,
            step_s=FASTEST_S,
            start_s=2.0,
        ),
        Noise(name="quiet", series=_series(quiet_rounds()), launch=0.005, step_s=0.2, start_s=2.0),
        Noise(name="GPU, 1 %", series=still, launch=0.01, step_s=0.5, start_s=15.0, fits=False),
        Noise(
            name="GPU, drifting",
            series=tuple(moving),
            launch=0.02,
            step_s=0.5,
            start_s=15.0,
            fits=False,
        ),
    )


def _series(rounds: list[list[list[float]]]) -> tuple[float, ...]:
    """Steps of launches that took turns, in the order of time."""
    return tuple(
        math.exp(log)
        for launches in rounds
        for together in zip(*launches, strict=False)
        for log in together
    )


class Machine:
    """Launches configurations one after the other while its clock and its noise go on."""

    def __init__(self, noise: Noise, costs: Sequence[float], chance: random.Random) -> None:
        self._noise, self._costs, self._chance = noise, costs, chance
        self._at = float(chance.randrange(len(noise.series)))
        self.now_s = 0.0

    def launch(self, trial: Trial, steps: int) -> Record:
        """A launch with this number of timed steps."""
        begun_s = self.now_s
        self._pass(self._noise.start_s)
        factor = self._costs[trial.number] * math.exp(self._chance.gauss(0.0, self._noise.launch))
        step_s = [self._step(factor) for _ in range(WARM_UP + steps)][WARM_UP:]
        return _record(trial, step_s, self.now_s - begun_s)

    def launch_in_turn(self, trials: Sequence[Trial]) -> list[Record]:
        """Launches that live side by side and take their steps in turn."""
        if not any(trial.turn for trial in trials):
            return [self.launch(trial, trial.timed_steps) for trial in trials]
        begun_s, spread = self.now_s, self._noise.launch
        self._pass(len(trials) * self._noise.start_s)
        costs = [self._costs[t.number] * math.exp(self._chance.gauss(0.0, spread)) for t in trials]
        made: list[list[float]] = [[] for _ in trials]
        for _ in range(max(WARM_UP + (t.turn.steps if t.turn else 0) for t in trials)):
            for cost, steps in zip(costs, made, strict=True):
                steps.append(self._step(cost))
        wall_s = self.now_s - begun_s
        return [
            _record(trial, steps[WARM_UP:], wall_s)
            for trial, steps in zip(trials, made, strict=True)
        ]

    def _step(self, factor: float) -> float:
        step_s = factor * self._noise.series[int(self._at)]
        self._at = (self._at + factor / self._noise.step_s) % len(self._noise.series)
        self.now_s += step_s
        return step_s

    def _pass(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self._step(self._noise.step_s)


def play(machine: Machine, playoff: Playoff, slots: int) -> float:
    """Make all rounds; their seconds."""
    begun_s = machine.now_s
    while playoff.stop_reason() is None:
        trials = playoff.ask(slots, machine.now_s)
        for record in machine.launch_in_turn(trials):
            playoff.tell(record)
    return machine.now_s - begun_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision of a study, and the truth."""

    decision: Decision
    costs: tuple[float, ...]
    playoff_s: float

    @property
    def cost(self) -> float:
        """True cost of the choice."""
        assert self.decision.winner is not None
        return self.costs[self.decision.winner.trial.number]

    @property
    def covers(self) -> bool | None:
        """True if the interval of the speed-up holds the true value; None without an interval."""
        seen = self.decision.speed_up
        if seen is None or not self.decision.paired:
            return None
        return seen.low <= self.costs[0] / self.cost <= seen.high


def study(noise: Noise, landscape: Sequence[float], seed: int, *, in_turn: bool) -> Outcome:
    """Draw a study, measure it, and decide."""
    chance, settings = random.Random(seed), AutotuningSettings()
    ranked = sorted(landscape)
    own = chance.choice(landscape)
    rest = [*ranked[:BEST], *chance.sample(ranked[BEST:], min(OTHERS, len(ranked) - BEST))]
    chance.shuffle(rest)
    costs = tuple(
        noise.step_s * cost / ranked[0] for cost in (own, *(c for c in rest if c != own))
    )
    machine, effort = Machine(noise, costs, chance), EFFORTS[settings.effort]
    records = tuple(machine.launch(_trial(number), TIMED) for number in range(len(costs)))
    again = machine.launch(replace(_trial(0), name="t0_again", again=len(records)), TIMED)
    spread = estimate_noise((*records, again))
    budget = PlayoffBudget(time_s=playoff_s(machine.now_s, effort), effort=effort)
    contenders = choose_contenders(records, THROUGHPUT, effort, spread, [again])
    rounds = Playoff(contenders, THROUGHPUT, noise=spread, budget=budget)
    seconds = play(machine, rounds, len(contenders) if in_turn else 1)
    decision = decide(records, rounds.records, (), settings, spread)
    return Outcome(decision=decision, costs=costs, playoff_s=seconds)


def _record(trial: Trial, step_s: Sequence[float], wall_s: float) -> Record:
    made = Measurement(
        step_s=tuple(step_s),
        samples_per_step=SAMPLES,
        world_size=2,
        memory=MEMORY,
        first_step=WARM_UP + 1,
    )
    return Record(trial=trial, outcome=made, wall_s=wall_s)


def _trial(number: int) -> Trial:
    layout = Layout(micro_batch=2**number, accumulation=2 ** (12 - number))
    return Trial(number=number, name=f"t{number}", candidate=Candidate(layout=layout), space="z0")


def landscapes() -> list[list[float]]:
    """Seconds of a sample of each configuration that ran, group by group."""
    files = [
        read_landscapes(FOLDER / "ground_truth" / f"{name}.csv", others=False) for name in TABLES
    ]
    groups = [group for file in files for group in file.groups]
    found = [sorted({float(c) for c in group.cost_s_C if math.isfinite(c)}) for group in groups]
    return [costs for costs in found if len(costs) > BEST]


def rows(name: str, runs: int, *, in_turn: bool) -> list[str]:
    """A row for each machine."""
    drawn = landscapes()
    draws = [(seed, drawn[seed % len(drawn)]) for seed in range(runs)]
    return [
        row(name, noise.name, [study(noise, one, seed, in_turn=in_turn) for seed, one in draws])
        for noise in noises()
        if noise.fits or not in_turn
    ]


def row(name: str, noise: str, found: Sequence[Outcome]) -> str:
    """The mean result of the studies on one machine."""
    regrets = sorted(one.cost / min(one.costs) - 1.0 for one in found)
    kept = [one for one in found if one.decision.winner and one.decision.winner.trial.number == 0]
    slower = sum(one.cost > 1.005 * one.costs[0] for one in found)
    covered = [one.covers for one in found if one.covers is not None]
    cells = (
        f"{fmean(regrets):.1%}",
        f"{regrets[int(0.95 * len(regrets))]:.0%}",
        f"{len(kept) / len(found):.0%}",
        f"{slower / len(found):.1%}",
        f"{fmean(covered):.0%} of {len(covered)}" if covered else "-",
        f"{median(one.playoff_s for one in found):.0f}",
        f"{fmean(one.decision.rounds for one in found):.1f}",
    )
    return f"| {name} | {noise} | {' | '.join(cells).replace('%', ' %')} |"


def main() -> None:
    """Print the table; ``--write`` puts the rows in place of the earlier ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="studies on each machine")
    parser.add_argument("--write", action="store_true", help=f"write them to {RESULT.name}")
    flags = parser.parse_args()
    made = [*rows(NOW, flags.runs, in_turn=True), *rows(APART, flags.runs, in_turn=False)]
    print("\n".join((HEADER, *made)))
    if flags.write:
        kept = RESULT.read_text(encoding="utf-8").splitlines()
        others = [line for line in kept if not line.startswith((f"| {NOW} |", f"| {APART} |"))]
        RESULT.write_text("\n".join((*others, *made, "")), encoding="utf-8")


if __name__ == "__main__":
    main()
