"""Rounds restored from their records equal the rounds."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import PRIOR, estimate_noise
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget, replay_rounds
from autoconf_launch.autotuner.playoff.decision import rank
from autoconf_launch.autotuner.space import Outcome, Record, Trial

from .test_playoff import (
    ALIKE,
    CRASH,
    PREEMPTED,
    THROUGHPUT,
    Answer,
    playoff_of,
    run,
    runs_of,
    steps_of,
    truth,
)

EVEN = (1.0, 1.01, 1.0)
"""The third one leaves before the others where there is no time to tell it from the first."""

ROOM = PlayoffBudget(time_s=40.0)


def told_of(records: Sequence[Record], playoff: Playoff) -> tuple[object, ...]:
    """The parts of the rounds that a summary shows."""
    launched = [contender for contender in playoff.contenders if contender.rounds]
    rank(records, playoff, THROUGHPUT, estimate_noise(records))
    return (
        playoff.rounds,
        [
            record.trial.name
            for record in rank(records, playoff, THROUGHPUT, estimate_noise(records))
        ],
        {contender.name for contender in launched if contender.is_beaten},
        {contender.name: sorted(contender.rounds) for contender in launched},
        playoff.level if playoff.rounds else None,
    )


def read(records: Sequence[Record], playoff: Sequence[Record]) -> tuple[object, ...]:
    return told_of(records, replay_rounds(records, playoff, THROUGHPUT, estimate_noise(records)))


def test_rounds_after_one_was_settled_for_want_of_time_are_read() -> None:
    live = playoff_of(runs_of(*EVEN), budget=ROOM)
    run(live, truth(*EVEN), launch_s=1.0)
    assert min(len(contender.rounds) for contender in live.contenders) < live.rounds
    records = runs_of(*EVEN)
    assert read(records, live.records) == told_of(records, live)


def failing(number: int, *seconds: float) -> Answer:
    return lambda trial: CRASH if trial.number == number else truth(*seconds)(trial)


def test_a_baseline_that_came_after_another_had_failed_is_one_contender() -> None:
    records = runs_of(3.0, 1.0, 1.02)
    live = playoff_of(records)
    (torn,) = live.ask(1, 0.0)
    resumed = playoff_of(records)
    resumed.tell(Record(trial=torn, outcome=CRASH, wall_s=1.0))
    run(resumed, truth(3.0, 1.0, 1.02))
    found = [
        contender.name
        for contender in replay_rounds(records, resumed.records, THROUGHPUT, PRIOR).contenders
    ]
    assert sorted(found) == ["t0", "t1", "t2"]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("torn", [1, 2])
def test_a_last_round_that_was_torn_is_none(slots: int, torn: int) -> None:
    records = runs_of(1.0, 1.0, 1.0, peak=20)
    live = playoff_of(records, budget=PlayoffBudget(rounds=3))
    run(live, lambda trial: steps_of(1.0, 20), slots)
    assert read(records, live.records[: 6 + torn])[0] == 2


def test_a_round_whose_last_one_failed_is_one() -> None:
    records = runs_of(1.0, 1.0, 1.0)
    live = playoff_of(records, budget=PlayoffBudget(rounds=1))
    run(live, failing(2, 1.0, 1.0, 1.0))
    assert live.rounds == 1
    assert read(records, live.records)[0] == 1


def test_who_was_preempted_was_not_launched() -> None:
    records = runs_of(1.0, 1.0, 1.0, peak=20)
    live = playoff_of(records, budget=PlayoffBudget(rounds=1))
    trials = live.ask(3, 0.0)
    answers = (PREEMPTED, PREEMPTED, CRASH)
    launches = [
        Record(trial=t, outcome=a, wall_s=1.0) for t, a in zip(trials, answers, strict=True)
    ]
    assert read(records, launches)[3] == {trials[2].name.removesuffix("_final"): [1]}


def of_before(records: Sequence[Record]) -> list[Record]:
    return [replace(record, trial=replace(record.trial, then=None)) for record in records]


def test_a_journal_of_before_tells_by_who_was_in_later_rounds() -> None:
    live = playoff_of(runs_of(*EVEN), budget=ROOM)
    run(live, truth(*EVEN), launch_s=1.0)
    records = runs_of(*EVEN)
    assert read(records, of_before(live.records)) == told_of(records, live)


def test_a_round_of_before_that_was_torn_is_none() -> None:
    records = runs_of(1.0, 1.0)
    torn = playoff_of(records).ask(1, 0.0)
    resumed = playoff_of(records, budget=PlayoffBudget(rounds=2))
    resumed.tell(Record(trial=torn[0], outcome=steps_of(1.0), wall_s=1.0))
    run(resumed, truth(1.0, 1.0))
    assert read(records, of_before(resumed.records))[0] == resumed.rounds == 2


def test_a_journal_of_before_in_which_somebody_came_later_is_read() -> None:
    rounds = ((2, 1, 0), (1, 0, 2), (1, 3, 0), (3, 0, 1))
    launches = []
    for attempt, numbers in enumerate(rounds, 1):
        names = [f"t{number}_final" for number in numbers]
        for number, name, then in zip(numbers, names, (*names[1:], ""), strict=True):
            trial = replace(ALIKE[number].trial, name=name, attempt=attempt, final=True, then=then)
            outcome = steps_of((3.0, 1.0, 1.4, 0.8)[number])
            launches.append(Record(trial=trial, outcome=outcome, wall_s=1.0))
    found = replay_rounds(ALIKE, launches, THROUGHPUT, PRIOR)
    assert found.rounds == len(rounds)
    assert found.leader is not None
    assert found.leader.name == "t3"


class Chance:
    """Launches that differ, some of which fail."""

    def __init__(self, seed: int, fails: float) -> None:
        self._chance, self._fails = random.Random(seed), fails
        self.searched = runs_of(*(self._seconds(0.04) for _ in range(6)))
        self._truth = [self._seconds(0.03) for _ in range(6)]

    def __call__(self, trial: Trial) -> Outcome:
        if self._chance.random() < self._fails:
            return CRASH
        return steps_of(self._truth[trial.number] * self._seconds(0.01))

    def _seconds(self, spread: float) -> float:
        return math.exp(spread * self._chance.gauss(0.0, 1.0))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    fails=st.sampled_from([0.0, 0.1]),
    time_s=st.sampled_from([30.0, 60.0, 120.0]),
)
def test_rounds_are_read_as_they_were_wherever_they_ended(
    seed: int, fails: float, time_s: float
) -> None:
    answer = Chance(seed, fails)
    live = playoff_of(answer.searched, wanted=2, budget=PlayoffBudget(time_s=time_s))
    clock_s = 0.0
    while live.stop_reason() is None:
        for trial in live.ask(1, clock_s):
            live.tell(Record(trial=trial, outcome=answer(trial), wall_s=2.0))
            clock_s += 2.0
            assert read(answer.searched, live.records) == told_of(answer.searched, live)
