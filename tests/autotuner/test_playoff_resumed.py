"""Rounds that go on after an interruption, perhaps with another budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff import PlayoffBudget
from autoconf_launch.autotuner.space import Record

from .playoff.test_playoff import SEARCHED, playoff_of, run, runs_of, steps_of, truth


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


@pytest.mark.parametrize("kept", range(1, 12))
def test_after_an_interruption_the_same_take_part(kept: int) -> None:
    answer = truth(3.0, 1.0, 1.02, 1.05, 1.3, 2.9)
    whole, resumed = playoff_of(SEARCHED), playoff_of(SEARCHED)
    run(whole, answer)
    known = whole.records[:kept]
    for record in known:
        resumed.tell(record)
    number = known[-1].trial.attempt
    is_torn = any(r.trial.attempt == number for r in whole.records[kept:])
    run(resumed, answer)
    last = resumed.records[kept:]
    assert not last or last[0].trial.attempt == number + 1
    assert resumed.rounds >= whole.rounds - is_torn
    names = {r.trial.name for r in whole.records[kept:] if r.trial.attempt > number}
    assert names <= {r.trial.name for r in last}


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
