from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement import EFFORTS, NORMAL, PRIOR
from autoconf_launch.autotuner.playoff import (
    Playoff,
    PlayoffBudget,
    choose_contenders,
    fit_together,
    ranking,
    round_times_s,
)
from autoconf_launch.autotuner.space import Outcome, Record, Trial, Turn

from ..builders import measurement
from .played import (
    CRASH,
    PREEMPTED,
    THROUGHPUT,
    again_of,
    playoff_of,
    record,
    run,
    runs_of,
    steps_of,
    truth,
)

SEARCHED = runs_of(3.0, 1.0, 1.02, 1.05, 1.03, 2.9)
"""Alike: t1, t2, t4, t3; the others are far behind."""


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        pytest.param((3.0, 1.0, 1.02, 1.05, 1.03, 2.9), "t1 t2 t4 t0", id="three and the own"),
        pytest.param((3.0, 1.0, 1.0, 2.9), "t1 t2 t0", id="not what is far behind"),
        pytest.param((1.1, 1.0, 2.4), "t1 t0", id="the own, if no gain was shown"),
        pytest.param((1.0, 1.1, 2.4), "t0 t1", id="the own though it is the best"),
        pytest.param((3.0, 1.0, 2.4), "", id="none if a gain was shown and the best is sure"),
        pytest.param((1.0, 3.0), "", id="none if the own is surely best"),
        pytest.param((1.0,), "", id="none without another"),
    ],
)
def test_what_the_search_left_open_is_measured_again(
    seconds: tuple[float, ...], chosen: str
) -> None:
    found = choose_contenders(runs_of(*seconds), THROUGHPUT, NORMAL, PRIOR)
    assert [one.trial.name for one in found] == chosen.split()


def test_a_gain_that_the_repeat_of_the_users_own_does_not_show_is_open() -> None:
    args = (runs_of(3.0, 1.0), THROUGHPUT, NORMAL, PRIOR)
    assert choose_contenders(*args, [again_of(0, 3.1)]) == ()
    assert len(choose_contenders(*args, [again_of(0, 1.05)])) == 2


def test_less_effort_leaves_less_open() -> None:
    quick, thorough = (
        choose_contenders(runs_of(3.0, 1.0, 1.05, 1.15), THROUGHPUT, EFFORTS[name], PRIOR)
        for name in ("quick", "thorough")
    )
    assert len(quick) < len(thorough)


def test_trials_that_shared_the_machine_are_all_doubtful() -> None:
    found = choose_contenders(runs_of(3.0, 1.0, 2.4), THROUGHPUT, NORMAL, PRIOR, side_by_side=True)
    assert [one.trial.name for one in found] == ["t1", "t2", "t0"]


def test_if_the_users_own_failed_the_best_are_compared_without_it() -> None:
    crashed = (record(0, CRASH), *runs_of(3.0, 1.0, 1.01)[1:])
    found = choose_contenders(crashed, THROUGHPUT, NORMAL, PRIOR)
    assert [one.trial.name for one in found] == ["t1", "t2"]
    assert choose_contenders(crashed[:2], THROUGHPUT, NORMAL, PRIOR) == ()


def test_every_round_has_another_order() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0))
    asked = run(playoff, truth(1.0, 1.0, 1.0))
    assert asked[:6] == ["t0", "t1", "t2", "t1", "t2", "t0"]


def test_a_round_is_the_attempt_of_a_final() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    (trial,) = playoff.ask(1, 0.0)
    assert trial == replace(
        runs_of(1.0)[0].trial, name="t0_final", attempt=1, final=True, timed_steps=6
    )


@pytest.mark.parametrize(
    ("seconds", "leader"),
    [
        pytest.param((3.0, 1.0, 1.3, 1.1, 1.2), "t1", id="the best of the search"),
        pytest.param((3.0, 1.2, 1.0, 1.2, 1.2), "t2", id="another one"),
        pytest.param((0.9, 1.2, 1.0, 1.2, 1.2), "t0", id="the users own"),
    ],
)
def test_the_best_in_the_rounds_leads(seconds: tuple[float, ...], leader: str) -> None:
    playoff = playoff_of(SEARCHED)
    run(playoff, truth(*seconds))
    assert playoff.seen.leader is not None
    assert playoff.seen.leader.name == leader


def test_what_is_surely_slower_leaves_before_the_others() -> None:
    playoff = playoff_of(SEARCHED)
    asked = run(playoff, truth(1.03, 1.0, 2.0, 1.0, 1.0))
    assert asked.count("t2") == 1 < asked.count("t0")


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [
        pytest.param((2.0, 1.0), 1, id="a gain that is shown"),
        pytest.param((2.0, 1.0, 1.2), 1, id="a sure leader"),
        pytest.param((2.0, 1.0, 1.001), 2, id="two that are nearly equal"),
        pytest.param((1.0, 1.0), 3, id="nothing to gain"),
        pytest.param((1.002, 1.0), 4, id="a gain over the users own that is not worth it"),
    ],
)
def test_rounds_end_once_nothing_is_left_to_gain(seconds: tuple[float, ...], rounds: int) -> None:
    playoff = playoff_of(runs_of(*seconds))
    run(playoff, truth(*seconds))
    assert 1 <= playoff.rounds <= rounds


def test_a_configuration_that_fails_leaves_and_the_others_go_on() -> None:
    def answer(trial: Trial) -> Outcome:
        return CRASH if trial.number == 1 else steps_of((3.0, 1.0, 1.0, 1.2, 1.2)[trial.number])

    playoff = playoff_of(SEARCHED)
    asked = run(playoff, answer)
    assert asked.count("t1") == 1
    assert playoff.seen.leader is not None
    assert playoff.seen.leader.name == "t2"


def rounds_begun(playoff: Playoff, *seconds: float, at_s: tuple[float, ...]) -> list[int]:
    """Numbers of the rounds in which a launch was asked for at these times."""
    begun = []
    for elapsed_s in at_s:
        for trial in playoff.ask(1, elapsed_s):
            begun.append(trial.attempt)
            outcome = steps_of(seconds[trial.number])
            playoff.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))
    return begun


def test_no_round_begins_when_the_time_is_up_but_a_round_that_has_begun_is_ended() -> None:
    playoff = playoff_of(runs_of(1.0, 0.99), budget=PlayoffBudget(time_s=10.0))
    at_s = (100.0, 200.0, 201.0, 202.0, 203.0)
    assert rounds_begun(playoff, 1.0, 0.99, at_s=at_s) == [1, 1, 2, 2]
    assert playoff.stop_reason() is not None


def test_only_a_gain_that_one_round_did_not_show_is_worth_a_second_beyond_the_time() -> None:
    playoff = playoff_of(runs_of(2.0, 1.0, 1.0), budget=PlayoffBudget(time_s=1.0))
    at_s = (0.0, 5.0, 10.0, 15.0)
    assert rounds_begun(playoff, 2.0, 1.0, 1.0, at_s=at_s) == [1, 1, 1]


def test_a_round_most_of_which_would_be_too_late_does_not_begin() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0), budget=PlayoffBudget(time_s=25.0))
    at_s = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)
    assert rounds_begun(playoff, 1.0, 1.0, at_s=at_s) == [1, 1, 2, 2]
    assert round_times_s(playoff.records) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("time_s", "turns"),
    [pytest.param(1e3, 10, id="plenty"), pytest.param(8.0, 4, id="some"), (1.0, 3)],
)
def test_turns_of_a_launch_are_fewer_if_time_is_short(time_s: float, turns: int) -> None:
    playoff = playoff_of(runs_of(0.5, 0.5, peak=20), budget=PlayoffBudget(time_s=time_s))
    assert {trial.turn.steps for trial in playoff.ask(2, 0.0) if trial.turn} == {turns}


def test_turns_take_the_same_time_however_short_the_steps() -> None:
    playoff = playoff_of(runs_of(0.01, 0.025, peak=20))
    turns = [trial.turn for trial in playoff.ask(2, 0.0) if trial.turn]
    assert [(turn.steps, turn.length) for turn in turns] == [(50, 5), (20, 2)]


def test_a_launch_of_another_search_is_left_out() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    playoff.tell(record(7, steps_of(1.0)))
    assert playoff.records == ()


def test_launches_that_fit_side_by_side_take_turns_in_a_group() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0, peak=20))
    trials = playoff.ask(3, 0.0)
    assert [trial.name for trial in trials] == ["t0_final", "t1_final", "t2_final"]
    assert [trial.turn for trial in trials] == [
        Turn(next_name="t1_final", is_first=True, steps=10),
        Turn(next_name="t2_final", is_first=False, steps=10),
        Turn(next_name="t0_final", is_first=False, steps=10),
    ]


@pytest.mark.parametrize("peak", [None, 30])
def test_launches_that_do_not_surely_fit_side_by_side_follow_each_other(peak: int | None) -> None:
    alike = runs_of(1.0, 1.0, 1.0, peak=peak)
    assert not fit_together(alike)
    assert len(playoff_of(alike).ask(3, 0.0)) == 1


def test_launches_that_were_preempted_for_another_are_asked_again() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0, peak=20))
    first, second, third = playoff.ask(3, 0.0)
    for trial, outcome in ((first, CRASH), (second, PREEMPTED), (third, PREEMPTED)):
        assert playoff.ask(3, 0.0) == ()
        playoff.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))
    assert [trial.name for trial in playoff.ask(3, 0.0)] == ["t1_final", "t2_final"]


def test_the_ranking_has_each_measured_candidate_once() -> None:
    twice = (*runs_of(3.0, 1.0, 2.0), record(3, CRASH), record(2, steps_of(0.5)))
    assert [r.trial.name for r in ranking(twice, THROUGHPUT)] == ["t2", "t1", "t0"]


@pytest.mark.parametrize(
    ("until_s", "asked"),
    [
        pytest.param(1e3, {"t0", "t1", "t2"}, id="all"),
        pytest.param(28.0, {"t0", "t1"}, id="without the last, but with the users own"),
        pytest.param(5.0, set(), id="none"),
    ],
)
def test_only_rounds_that_surely_end_in_the_budget_begin(until_s: float, asked: set[str]) -> None:
    seconds = (1.2, 1.0, 1.01)
    records = tuple(
        replace(r, wall_s=2.0 + 3 * s) for r, s in zip(runs_of(*seconds), seconds, strict=True)
    )
    playoff = playoff_of(records, budget=PlayoffBudget(time_s=1e3, until_s=until_s))
    assert set(run(playoff, truth(*seconds), launch_s=5.0)) == asked
    assert playoff.stop_reason() is not None


def test_a_round_is_over_when_all_of_it_came_back() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0), budget=PlayoffBudget(rounds=1))
    counts = []
    while trials := playoff.ask(1, 0.0):
        playoff.tell(Record(trial=trials[0], outcome=steps_of(1.0), wall_s=1.0))
        counts.append(playoff.rounds)
    assert counts == [0, 0, 1]


CLOSE = (1.06, 1.0, 1.02, 1.05, 1.03, 2.9)
"""What each takes in rounds, of which there are several."""


@pytest.mark.parametrize("kept", range(1, 9))
def test_after_an_interruption_rounds_go_on_with_a_new_one(kept: int) -> None:
    whole, resumed = playoff_of(SEARCHED), playoff_of(SEARCHED)
    run(whole, truth(*CLOSE))
    known = whole.records[:kept]
    for one in known:
        resumed.tell(one)
    number = known[-1].trial.attempt
    is_torn = any(r.trial.attempt == number for r in whole.records[kept:])
    run(resumed, truth(*CLOSE))
    last = resumed.records[kept:]
    assert not last or last[0].trial.attempt == number + 1
    assert resumed.rounds >= whole.rounds - is_torn


def test_rounds_of_an_earlier_session_are_not_repeated() -> None:
    whole, resumed = playoff_of(SEARCHED), playoff_of(SEARCHED)
    run(whole, truth(*CLOSE))
    for known in whole.records:
        resumed.tell(known)
    assert run(resumed, truth(*CLOSE)) == []
    assert resumed.rounds == whole.rounds
    assert resumed.seen.leader is not None
    assert whole.seen.leader is not None
    assert resumed.seen.leader.name == whole.seen.leader.name


def test_rounds_of_an_earlier_session_took_as_long_as_their_launches_side_by_side() -> None:
    alike, budget = runs_of(1.0, 1.0, peak=20), PlayoffBudget(time_s=25.0)
    first, resumed = playoff_of(alike, budget=budget), playoff_of(alike, budget=budget)
    for trial in first.ask(2, 0.0):
        outcome = measurement(*((1.0, 1.3, 0.7), (0.7, 1.0, 1.3))[trial.number], peak=20)
        resumed.tell(Record(trial=trial, outcome=outcome, wall_s=10.0))
    assert len(resumed.ask(2, 1000.0)) == 2


@pytest.mark.parametrize("time_s", [0.0, 10.0])
def test_torn_rounds_leave_time_for_a_whole_one(time_s: float) -> None:
    playoff = playoff_of(runs_of(2.0, 1.0), budget=PlayoffBudget(time_s=time_s))
    for attempt in (1, 2):
        trial = replace(runs_of(2.0, 1.0)[1].trial, name="t1_final", attempt=attempt, final=True)
        playoff.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=20.0))
    run(playoff, truth(2.0, 1.0))
    assert playoff.rounds > 0
