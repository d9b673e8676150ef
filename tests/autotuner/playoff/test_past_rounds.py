"""What is made of the records of rounds is what the rounds were."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.playoff.contenders import FinalsBudget
from autoconf_launch.autotuner.playoff.past_rounds import replayed
from autoconf_launch.autotuner.playoff.playoff import Finals
from autoconf_launch.autotuner.playoff.winner import safe_order
from autoconf_launch.autotuner.space.trial import Outcome, Record, Trial

from .test_playoff import (
    ALIKE,
    CRASH,
    PREEMPTED,
    THROUGHPUT,
    Answer,
    made,
    run,
    searched,
    truth,
)

EVEN = (1.0, 1.01, 1.0)
"""The third one leaves before the others where there is no time to tell it from the first."""

ROOM = FinalsBudget(time_s=40.0)


def told_of(records: Sequence[Record], finals: Finals) -> tuple[object, ...]:
    """What a summary takes from the rounds."""
    launched = [arm for arm in finals.arms if arm.rounds]
    return (
        finals.rounds,
        [record.trial.name for record in safe_order(records, finals, THROUGHPUT)],
        {arm.name for arm in launched if arm.is_beaten},
        {arm.name: sorted(arm.rounds) for arm in launched},
        finals.level,
    )


def read(records: Sequence[Record], finals: Sequence[Record]) -> tuple[object, ...]:
    return told_of(records, replayed(records, finals, THROUGHPUT))


def test_rounds_that_somebody_came_into_later_are_read_as_they_were() -> None:
    live = Finals(ALIKE, THROUGHPUT)
    run(live, truth(3.0, 1.0, 1.5, 1.5, 0.8, 1.0))
    assert len(live.arms) > 4
    assert read(ALIKE, live.records) == told_of(ALIKE, live)


def test_rounds_after_one_was_settled_for_want_of_time_are_read() -> None:
    live = Finals(searched(*EVEN), THROUGHPUT, budget=ROOM)
    run(live, truth(*EVEN), launch_s=1.0)
    assert min(len(arm.rounds) for arm in live.arms) < live.rounds
    records = searched(*EVEN)
    assert read(records, live.records) == told_of(records, live)


def test_rounds_with_who_came_when_all_but_one_had_left_are_read() -> None:
    records = searched(1.0, 1.02, 1.01)
    live = Finals(records, THROUGHPUT, wanted=2)
    run(live, truth(1.0, 1.3, 1.3))
    assert read(records, live.records) == told_of(records, live)


def failing(number: int, *seconds: float) -> Answer:
    return lambda trial: CRASH if trial.number == number else truth(*seconds)(trial)


def test_who_joins_in_the_round_that_another_failed_in_is_known() -> None:
    live = Finals(ALIKE, THROUGHPUT)
    run(live, failing(1, *(3.0, 1.0, 1.0, 1.0, 1.0, 1.0)))
    assert read(ALIKE, live.records) == told_of(ALIKE, live)


def test_who_comes_when_all_that_began_have_failed_leads() -> None:
    live, launched = Finals(ALIKE, THROUGHPUT, wanted=2), ""
    while launched != "t3_final":
        (trial,) = live.ask(1, 0.0)
        launched = trial.name
        fails_in = (1, 3, 3)[trial.number] if trial.number < 3 else None
        outcome = CRASH if trial.attempt == fails_in else made(1.0)
        live.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))
    leader = replayed(ALIKE, live.records, THROUGHPUT).leader
    assert leader is not None
    assert leader.name == "t3"


def test_a_baseline_that_came_after_another_had_failed_is_one_arm() -> None:
    records = searched(3.0, 1.0, 1.02)
    live = Finals(records, THROUGHPUT)
    (torn,) = live.ask(1, 0.0)
    resumed = Finals(records, THROUGHPUT)
    resumed.tell(Record(trial=torn, outcome=CRASH, wall_s=1.0))
    run(resumed, truth(3.0, 1.0, 1.02))
    found = [arm.name for arm in replayed(records, resumed.records, THROUGHPUT).arms]
    assert sorted(found) == ["t0", "t1", "t2"]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("torn", [1, 2])
def test_a_last_round_that_was_torn_is_none(slots: int, torn: int) -> None:
    records = searched(1.0, 1.0, 1.0, peak=20)
    live = Finals(records, THROUGHPUT, budget=FinalsBudget(rounds=3))
    run(live, lambda trial: made(1.0, 20), slots)
    assert read(records, live.records[: 6 + torn])[0] == 2


def test_a_round_whose_last_one_failed_is_one() -> None:
    records = searched(1.0, 1.0, 1.0)
    live = Finals(records, THROUGHPUT, budget=FinalsBudget(rounds=1))
    run(live, failing(2, 1.0, 1.0, 1.0))
    assert live.rounds == 1
    assert read(records, live.records)[0] == 1


def test_who_was_preempted_was_not_launched() -> None:
    records = searched(1.0, 1.0, 1.0, peak=20)
    live = Finals(records, THROUGHPUT, budget=FinalsBudget(rounds=1))
    trials = live.ask(3, 0.0)
    answers = (PREEMPTED, PREEMPTED, CRASH)
    launches = [
        Record(trial=t, outcome=a, wall_s=1.0) for t, a in zip(trials, answers, strict=True)
    ]
    assert read(records, launches)[3] == {trials[2].name.removesuffix("_final"): [1]}


def of_before(records: Sequence[Record]) -> list[Record]:
    return [replace(record, trial=replace(record.trial, then=None)) for record in records]


def test_a_journal_of_before_tells_by_who_was_in_later_rounds() -> None:
    live = Finals(searched(*EVEN), THROUGHPUT, budget=ROOM)
    run(live, truth(*EVEN), launch_s=1.0)
    records = searched(*EVEN)
    assert read(records, of_before(live.records)) == told_of(records, live)


def test_a_round_of_before_that_was_torn_is_none() -> None:
    records = searched(1.0, 1.0)
    torn = Finals(records, THROUGHPUT).ask(1, 0.0)
    resumed = Finals(records, THROUGHPUT, budget=FinalsBudget(rounds=2))
    resumed.tell(Record(trial=torn[0], outcome=made(1.0), wall_s=1.0))
    run(resumed, truth(1.0, 1.0))
    assert read(records, of_before(resumed.records))[0] == resumed.rounds == 2


class Chance:
    """Launches that differ, some of which fail."""

    def __init__(self, seed: int, fails: float) -> None:
        self._chance, self._fails = random.Random(seed), fails
        self.searched = searched(*(self._seconds(0.04) for _ in range(6)))
        self._truth = [self._seconds(0.03) for _ in range(6)]

    def __call__(self, trial: Trial) -> Outcome:
        if self._chance.random() < self._fails:
            return CRASH
        return made(self._truth[trial.number] * self._seconds(0.01))

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
    live = Finals(answer.searched, THROUGHPUT, wanted=2, budget=FinalsBudget(time_s=time_s))
    clock_s = 0.0
    while live.stop_reason() is None:
        for trial in live.ask(1, clock_s):
            live.tell(Record(trial=trial, outcome=answer(trial), wall_s=2.0))
            clock_s += 2.0
            assert read(answer.searched, live.records) == told_of(answer.searched, live)
