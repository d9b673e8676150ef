"""The rule for what is best: intervals on machines whose noise is known, and the choice."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import PRIOR, CostRatio, estimate_noise
from autoconf_launch.autotuner.playoff import (
    PlayoffBudget,
    Rounds,
    TuneVerdict,
    rounds_of,
)
from autoconf_launch.autotuner.playoff.rule import (
    ALPHA,
    LAUNCH,
    MOST_ROUNDS,
    Contender,
    Ruling,
    estimate_difference,
)
from autoconf_launch.autotuner.space import OBJECTIVES, Record, Turn
from autoconf_launch.core import Layout

from ..builders import launch as launch_of
from ..builders import measurement, trial_of
from .played import CRASH, playoff_of, run, runs_of, truth

THROUGHPUT = OBJECTIVES["throughput"]
ROUNDS = 6
RUNS = 200
TURN = Turn(next_name="other", is_first=True)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Standard deviations of the logarithm: of a step, of a launch, of the minute it is in."""

    step: float
    launch: float
    minute: float = 0.1
    steps: int = 5


def record(steps: Sequence[float], turn: Turn | None) -> Record:
    return launch_of(replace(trial_of(), final=True, turn=turn), measurement(*steps))


def compare(slower: Contender, faster: Contender) -> CostRatio:
    return Rounds((), THROUGHPUT, PRIOR).compare(slower, faster)


def rounds(machine: Machine, ratio: float, seed: int) -> Iterator[tuple[Contender, Contender]]:
    """A slower and a faster one after each round in which their steps took turns."""
    chance = random.Random(seed)
    slower, faster = Contender(record([1.0], None)), Contender(record([1.0], None))
    for number in range(1, ROUNDS + 1):
        turns = [chance.gauss(0.0, machine.minute) for _ in range(machine.steps)]
        for contender, factor in ((slower, ratio), (faster, 1.0)):
            launch = chance.gauss(math.log(factor), machine.launch)
            logs = [launch + turn + chance.gauss(0.0, machine.step) for turn in turns]
            contender.rounds[number] = record([math.exp(log) for log in logs], TURN)
        yield slower, faster


def find(machine: Machine, ratio: float, seed: int, after: int = ROUNDS) -> CostRatio:
    for _, (slower, faster) in zip(range(after), rounds(machine, ratio, seed), strict=False):
        last = compare(slower, faster)
    return last


def ever_wrong(machine: Machine, ratio: float, seed: int) -> bool:
    """Whether the interval after any round leaves out the truth."""
    truth = math.log(ratio)
    intervals = (compare(*pair) for pair in rounds(machine, ratio, seed))
    return any(abs(one.mean - truth) > one.width for one in intervals)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.002, 0.1), st.floats(0.0, LAUNCH), st.sampled_from([1.0, 1.5]))
def test_intervals_hold_the_truth_in_all_rounds_at_once(
    step: float, launch: float, ratio: float
) -> None:
    machine = Machine(step=step, launch=launch)
    assert sum(ever_wrong(machine, ratio, run) for run in range(RUNS)) <= 0.07 * RUNS


def test_launches_that_differ_twice_as_much_as_was_ever_seen_are_mostly_covered_too() -> None:
    machine = Machine(step=0.01, launch=0.02)
    assert sum(ever_wrong(machine, 1.2, run) for run in range(RUNS)) <= 0.2 * RUNS


def test_a_quiet_machine_needs_three_rounds_to_find_five_percent() -> None:
    machine = Machine(step=0.02, launch=0.005)
    assert sum(find(machine, 1.05, seed, 3).differs for seed in range(200)) >= 175


def test_a_configuration_is_not_forgiven_its_stalls() -> None:
    steady, stalling = Contender(record([1.0], None)), Contender(record([1.0], None))
    for number in range(1, 9):
        steady.rounds[number] = record([1.25] * 30, TURN)
        stalling.rounds[number] = record(([1.0] * 9 + [4.0]) * 3, TURN)
    assert compare(stalling, steady).mean == pytest.approx(math.log(1.3 / 1.25))


def test_only_what_differs_between_the_two_makes_it_wider() -> None:
    calm, busy, loud = (
        find(Machine(step=step, launch=0.0, minute=minute), 1.5, 1).width
        for step, minute in ((0.01, 0.0), (0.01, 1.0), (0.1, 0.0))
    )
    assert busy < 1.5 * calm < 3 * calm < loud


def apart(contender: Contender) -> Contender:
    """The same launches, one after the other."""
    made = {n: r.measurement for n, r in contender.rounds.items()}
    again = {n: record(m.step_s, None) for n, m in made.items() if m}
    return Contender(contender.searched, again)


def test_launches_one_after_the_other_say_less_than_the_same_in_turn() -> None:
    *_, (slower, faster) = rounds(Machine(step=PRIOR.within, launch=0.0, minute=0.0), 1.5, 1)
    together = compare(slower, faster)
    assert compare(apart(slower), apart(faster)).width > 1.3 * together.width


def test_only_rounds_that_both_were_in_count() -> None:
    *_, (slower, faster) = rounds(Machine(step=0.01, launch=0.0), 1.5, 1)
    del faster.rounds[2]
    assert compare(slower, faster).rounds == ROUNDS - 1


@pytest.mark.parametrize(("steps", "most"), [(1, 1.0), (2, 0.15), (3, 0.12)])
def test_the_noise_of_the_search_lets_one_round_of_few_turns_say_something(
    steps: int, most: float
) -> None:
    found = find(Machine(step=0.01, launch=0.0, steps=steps), 1.5, 1, after=1)
    assert 0.0 < found.width < most


def test_steps_of_one_turn_are_one_observation() -> None:
    long = Turn(next_name="other", is_first=True, length=3)
    ours, theirs = [1.2, 1.1, 1.3, 1.15, 1.25, 1.2, 1.21, 1.19, 1.2], [1.0] * 9
    slower, faster = Contender(record([1.0], None)), Contender(record([1.0], None))
    slower.rounds[1], faster.rounds[1] = record(ours, long), record(theirs, long)
    by_turns = compare(slower, faster)
    means = [fmean(ours[at : at + 3]) for at in (0, 3, 6)]
    slower.rounds[1], faster.rounds[1] = record(means, TURN), record([1.0] * 3, TURN)
    assert by_turns.width == pytest.approx(compare(slower, faster).width)


SPREAD, FREEDOM = 0.05, 3.0


def ever_differs(spread: float, freedom: float, seed: int) -> bool:
    """Whether the interval ever excludes zero without cause, looked at after each round."""
    chance, seen = random.Random(seed), list[float]()
    for _ in range(MOST_ROUNDS):
        seen.append(chance.gauss(0.0, spread))
        if estimate_difference(seen, SPREAD, freedom).differs:
            return True
    return False


def test_all_rounds_together_are_wrong_as_often_as_promised() -> None:
    share = sum(ever_differs(SPREAD, 1e9, seed) for seed in range(1000)) / 1000
    assert share == pytest.approx(ALPHA, abs=3 * math.sqrt(ALPHA * (1 - ALPHA) / 1000))


@pytest.mark.parametrize("spread", [0.005, 0.035, 0.08])
def test_looking_after_every_round_finds_no_difference_if_there_is_none(spread: float) -> None:
    assert sum(ever_differs(spread, FREEDOM, seed) for seed in range(200)) <= 0.07 * 200


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20))
def test_turned_around_it_says_the_same(differences: list[float]) -> None:
    one = estimate_difference(differences, SPREAD, FREEDOM)
    two = estimate_difference([-d for d in differences], SPREAD, FREEDOM)
    assert one.mean == pytest.approx(-two.mean, abs=1e-12)
    assert one.width == pytest.approx(two.width)


def test_without_a_round_nothing_is_known() -> None:
    assert estimate_difference([], SPREAD, FREEDOM).width == math.inf


def launch(number: int, step_s: float, *, micro: int, accumulation: int = 1) -> Record:
    """A trial with its own split of a global batch; trial 0 is micro-batch 4 of 8."""
    layout = Layout(micro_batch=micro, accumulation=accumulation)
    steps = (step_s, step_s * 1.01, step_s * 0.99)
    outcome = measurement(*steps, samples=layout.global_batch)
    return launch_of(trial_of(number, layout), outcome)


def ruling(records: tuple[Record, ...], count: int, *factors: float) -> Ruling:
    """The rule after so many rounds, in which each takes its factor of its time in the search."""
    noise = estimate_noise(records)
    seen = Rounds(records, THROUGHPUT, noise)
    for one, factor in zip(seen.contenders, factors, strict=False):
        for number in range(1, count + 1):
            made = one.searched.measurement
            assert made is not None
            step_s = made.mean_step_s * factor * (1 + 0.001 * (number % 2))
            outcome = replace(made, step_s=(step_s,) * 3)
            one.rounds[number] = Record(trial=one.searched.trial, outcome=outcome, wall_s=1.0)
    return Ruling(records, seen)


def choose(records: tuple[Record, ...], count: int, *factors: float) -> str:
    return ruling(records, count, *factors).order[0].trial.name


OWN = launch(0, 0.8, micro=4, accumulation=2)


LARGER = launch(1, 25.6, micro=512)
SPLIT = launch(1, 0.4, micro=8)


@pytest.mark.parametrize(
    ("others", "rounds", "factors", "chosen"),
    [
        pytest.param([launch(1, 50.2, micro=512)], 0, (), "t0", id="no gain in trials"),
        pytest.param([launch(1, 50.2, micro=512)], 1, (1.0, 0.98), "t0", id="no gain in rounds"),
        pytest.param([LARGER], 6, (1.0, 1.0), "t1", id="a gain changes the batch"),
        pytest.param(
            [LARGER, launch(2, 0.402, micro=8)], 6, (1.0,) * 3, "t2", id="the smallest change"
        ),
        pytest.param(
            [LARGER, launch(2, 0.5, micro=8)], 6, (1.0,) * 3, "t1", id="unless it is slower"
        ),
        pytest.param(
            [SPLIT, launch(2, 0.5, micro=2, accumulation=4)],
            5,
            (1.0, 1.5, 0.8),
            "t2",
            id="rounds decide and not the search",
        ),
        pytest.param([SPLIT], 0, (), "t1", id="single trials show a large gain"),
    ],
)
def test_the_choice(
    others: list[Record], rounds: int, factors: tuple[float, ...], chosen: str
) -> None:
    assert choose((OWN, *others), rounds, *factors) == chosen


def test_if_the_users_own_cannot_run_the_fastest_is_chosen() -> None:
    crashed = Record(trial=OWN.trial, outcome=CRASH, wall_s=1.0)
    fast, slow = launch(1, 0.4, micro=8), launch(2, 0.41, micro=2, accumulation=4)
    assert choose((crashed, slow, fast), 0) == "t1"


@pytest.mark.parametrize(
    ("factor", "count", "verdict"),
    [
        (0.5, 5, TuneVerdict.WINNER),
        (1.0, 6, TuneVerdict.TIE),
        (0.98, 1, TuneVerdict.INCONCLUSIVE),
        (2.0, 5, TuneVerdict.WINNER),
    ],
)
def test_the_outcome_is_a_winner_a_tie_or_inconclusive(
    factor: float, count: int, verdict: TuneVerdict
) -> None:
    found = ruling((OWN, launch(1, 0.8, micro=8)), count, 1.0, factor)
    assert found.verdict(found.order[0]) is verdict


def test_a_live_playoff_and_a_reader_of_its_launches_rule_alike() -> None:
    records = runs_of(3.0, 1.0, 1.02)
    live = playoff_of(records, budget=PlayoffBudget(rounds=3))
    run(live, truth(3.0, 1.3, 1.0))
    noise = estimate_noise(records)
    read = rounds_of(records, live.records, THROUGHPUT, noise)
    assert read.count() == live.rounds
    names = [[r.trial.name for r in Ruling(records, seen).order] for seen in (read, live.seen)]
    assert names == [["t2", "t0", "t1"]] * 2 or names == [["t2", "t1", "t0"]] * 2
