"""Rounds that go on after an interruption, perhaps with another budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget
from autoconf_launch.autotuner.space import Record, Trial

from .playoff.test_playoff import SEARCHED, playoff_of, run, runs_of, steps_of, truth

EVEN = runs_of(1.0, 1.01, 1.0)
"""For want of 40 s the third one leaves after eight rounds; with time, after nine."""


def test_rounds_of_an_earlier_session_are_not_repeated() -> None:
    whole = playoff_of(SEARCHED)
    answer = truth(3.0, 1.0, 1.02, 1.05, 1.03, 2.9)
    run(whole, answer)
    resumed = playoff_of(SEARCHED)
    for known in whole.records:
        resumed.tell(known)
    assert run(resumed, answer) == []
    assert resumed.rounds == whole.rounds
    assert resumed.leader is not None
    assert whole.leader is not None
    assert resumed.leader.name == whole.leader.name


def test_rounds_of_an_earlier_session_took_as_long_as_their_launches_side_by_side() -> None:
    alike, budget = runs_of(1.0, 1.0, peak=20), PlayoffBudget(time_s=25.0)
    first = playoff_of(alike, budget=budget)
    resumed = playoff_of(alike, budget=budget)
    for trial in first.ask(2, 0.0):
        resumed.tell(Record(trial=trial, outcome=steps_of(1.0, 20), wall_s=10.0))
    assert len(resumed.ask(2, 1000.0)) == 2


@pytest.mark.parametrize("time_s", [40.0, 400.0])
def test_a_round_after_one_was_settled_for_want_of_time_is_whole(time_s: float) -> None:
    whole = playoff_of(EVEN, budget=PlayoffBudget(time_s=40.0))
    run(whole, truth(1.0, 1.01, 1.0), launch_s=1.0)
    assert len(whole.contenders[1].rounds) < whole.rounds
    resumed = playoff_of(EVEN, budget=PlayoffBudget(time_s=time_s))
    for known in whole.records:
        resumed.tell(known)
    assert resumed.rounds == whole.rounds


def going_on(earlier_s: float, rounds: int, time_s: float) -> list[str]:
    """Contenders of the next round after rounds of an earlier session with another budget."""
    answer = truth(1.0, 1.01, 1.0)
    earlier = playoff_of(EVEN, budget=PlayoffBudget(time_s=earlier_s))
    run(earlier, answer, launch_s=1.0)
    resumed = playoff_of(EVEN, budget=PlayoffBudget(time_s=time_s))
    for known in earlier.records:
        if known.trial.attempt <= rounds:
            resumed.tell(known)
    asked = []
    while resumed.rounds == rounds and (trials := resumed.ask(1, 100.0)):
        asked += [trial.name for trial in trials]
        resumed.tell(Record(trial=trials[0], outcome=answer(trials[0]), wall_s=1.0))
    return sorted(asked)


def test_who_leaves_for_want_of_time_leaves_in_a_session_that_goes_on() -> None:
    assert going_on(40.0, 8, 40.0) == ["t0_final", "t1_final"]


def test_who_had_left_stays_away_though_there_is_more_time_now() -> None:
    assert going_on(40.0, 9, 400.0) == ["t0_final", "t1_final"]


def test_who_was_launched_had_not_left_though_there_is_less_time_now() -> None:
    earlier = playoff_of(EVEN)
    run(earlier, truth(1.0, 1.01, 1.0), launch_s=1.0)
    left = next(
        contender for contender in earlier.contenders if len(contender.rounds) < earlier.rounds
    )
    resumed = playoff_of(EVEN, budget=PlayoffBudget(time_s=40.0))
    for known in earlier.records:
        if known.trial.attempt <= 8 or known is left.rounds[9]:
            resumed.tell(known)
    asked = {trial.name for _ in range(3) for trial in next_one(resumed)}
    assert f"{left.name}_final" in asked


def next_one(playoff: Playoff) -> tuple[Trial, ...]:
    trials = playoff.ask(1, 100.0)
    for trial in trials:
        playoff.tell(Record(trial=trial, outcome=truth(1.0, 1.01, 1.0)(trial), wall_s=1.0))
    return trials


def test_a_round_that_was_torn_is_begun_anew() -> None:
    first = playoff_of(runs_of(1.0, 1.0))
    (trial,) = first.ask(1, 0.0)
    resumed = playoff_of(runs_of(1.0, 1.0))
    resumed.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=1.0))
    (again,) = resumed.ask(1, 0.0)
    assert again.attempt == 2


def test_torn_rounds_leave_time_for_a_whole_one() -> None:
    playoff = playoff_of(runs_of(2.0, 1.0), budget=PlayoffBudget(time_s=10.0))
    for attempt in (1, 2):
        trial = replace(runs_of(2.0, 1.0)[1].trial, name="t1_final", attempt=attempt, final=True)
        playoff.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=20.0))
    run(playoff, truth(2.0, 1.0))
    assert playoff.rounds > 0


def test_a_round_that_was_torn_late_is_made_up_for() -> None:
    playoff = playoff_of(runs_of(2.0, 1.0), budget=PlayoffBudget(time_s=0.0))
    assert playoff.ask(1, 100.0)
