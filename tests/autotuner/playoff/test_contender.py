"""Intervals of rounds, on machines whose noise is known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import PRIOR, PairedEstimate
from autoconf_launch.autotuner.measurement.sequential_test import LAUNCH
from autoconf_launch.autotuner.playoff.contender import Contender, compare
from autoconf_launch.autotuner.space import OBJECTIVES, Measurement, Record, Trial, Turn
from autoconf_launch.core import Candidate, Layout

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
    trial = Trial(
        number=1, name="t", candidate=Candidate(layout=Layout()), space="z0", final=True, turn=turn
    )
    outcome = Measurement(step_s=tuple(steps), samples_per_step=1, world_size=1)
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


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


def find(machine: Machine, ratio: float, seed: int, after: int = ROUNDS) -> PairedEstimate:
    for _, (slower, faster) in zip(range(after), rounds(machine, ratio, seed), strict=False):
        last = compare(slower, faster, THROUGHPUT)
    return last


def ever_wrong(machine: Machine, ratio: float, seed: int) -> bool:
    """True if the interval after any round leaves out the truth."""
    truth = math.log(ratio)
    intervals = (compare(*pair, THROUGHPUT) for pair in rounds(machine, ratio, seed))
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
    assert sum(ever_wrong(machine, 1.2, run) for run in range(RUNS)) <= 0.15 * RUNS


def test_a_quiet_machine_needs_two_rounds_for_five_percent() -> None:
    widths = [find(Machine(step=0.01, launch=0.005), 1.5, seed, 2).width for seed in range(20)]
    assert median(widths) < 0.05


def test_a_quiet_machine_needs_three_rounds_to_find_five_percent() -> None:
    machine = Machine(step=0.02, launch=0.005)
    assert sum(find(machine, 1.05, seed, 3).differs for seed in range(200)) >= 180


def test_what_it_takes_to_wake_up_for_a_turn_is_no_time_of_a_step() -> None:
    long = Turn(next_name="other", is_first=True, length=3)
    slower, faster = Contender(record([1.0], None)), Contender(record([1.0], None))
    slower.rounds[1] = record([4.8, 4.0, 4.0] * 5, long)
    faster.rounds[1] = record([1.8, 1.0, 1.0] * 5, long)
    assert compare(slower, faster, THROUGHPUT).mean == pytest.approx(math.log(4.0))


def test_a_configuration_is_not_forgiven_its_stalls() -> None:
    steady, stalling = Contender(record([1.0], None)), Contender(record([1.0], None))
    for number in range(1, 9):
        steady.rounds[number] = record([1.25] * 30, TURN)
        stalling.rounds[number] = record(([1.0] * 9 + [4.0]) * 3, TURN)
    assert compare(stalling, steady, THROUGHPUT).mean == pytest.approx(math.log(1.3 / 1.25))


def test_what_the_minute_does_to_both_is_no_noise() -> None:
    calm = find(Machine(step=0.01, launch=0.0, minute=0.0), 1.5, 1)
    busy = find(Machine(step=0.01, launch=0.0, minute=1.0), 1.5, 1)
    assert busy.width < 1.5 * calm.width


def test_noisier_steps_make_it_wider() -> None:
    quiet, loud = (find(Machine(step=step, launch=0.0), 1.5, 1).width for step in (0.01, 0.1))
    assert loud > 3 * quiet


def apart(contender: Contender) -> Contender:
    """The same launches, one after the other."""
    made = {n: r.measurement for n, r in contender.rounds.items()}
    again = {n: record(m.step_s, None) for n, m in made.items() if m}
    return Contender(contender.searched, again)


def test_launches_one_after_the_other_say_less_than_the_same_in_turn() -> None:
    *_, (slower, faster) = rounds(Machine(step=PRIOR.within, launch=0.0, minute=0.0), 1.5, 1)
    together = compare(slower, faster, THROUGHPUT)
    assert compare(apart(slower), apart(faster), THROUGHPUT).width > 1.3 * together.width


def test_only_rounds_that_both_were_in_count() -> None:
    *_, (slower, faster) = rounds(Machine(step=0.01, launch=0.0), 1.5, 1)
    del faster.rounds[2]
    assert compare(slower, faster, THROUGHPUT).count == ROUNDS - 1


@pytest.mark.parametrize("steps", [1, 2])
def test_turns_of_few_steps_have_an_interval_all_the_same(steps: int) -> None:
    one = find(Machine(step=0.01, launch=0.0, steps=steps), 1.5, 1)
    assert 0.0 < one.width < 1.0


def test_steps_of_one_turn_are_one_observation() -> None:
    long = Turn(next_name="other", is_first=True, length=3)
    ours, theirs = [1.2, 1.1, 1.3, 1.15, 1.25, 1.2, 1.21, 1.19, 1.2], [1.0] * 9
    slower, faster = Contender(record([1.0], None)), Contender(record([1.0], None))
    slower.rounds[1], faster.rounds[1] = record(ours, long), record(theirs, long)
    by_turns = compare(slower, faster, THROUGHPUT)
    means = [fmean(ours[at + 1 : at + 3]) for at in (0, 3, 6)]  # it wakes up at the first
    slower.rounds[1], faster.rounds[1] = record(means, TURN), record([1.0] * 3, TURN)
    assert by_turns.width == pytest.approx(compare(slower, faster, THROUGHPUT).width)
