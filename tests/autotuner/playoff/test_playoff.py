from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement import NORMAL, Noise, estimate_noise
from autoconf_launch.autotuner.playoff import (
    Playoff,
    PlayoffBudget,
    choose_contenders,
    fit_together,
    ranking,
    round_times_s,
)
from autoconf_launch.autotuner.playoff.playoff import TURNS
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    FailedTrial,
    Measurement,
    Outcome,
    Record,
    Trial,
    Turn,
)
from autoconf_launch.core import Failure, FailureKind

from ..builders import launch, measurement, trial_of

THROUGHPUT = OBJECTIVES["throughput"]
CRASH = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))
PREEMPTED = FailedTrial(failure=Failure(kind=FailureKind.PREEMPTED, detail="another failed"))
Answer = Callable[[Trial], Outcome]


def steps_of(step_s: float, peak: int | None = None) -> Measurement:
    return measurement(step_s, step_s * 1.01, step_s * 0.99, samples=10, peak=peak)


def record(number: int, outcome: Outcome) -> Record:
    return launch(trial_of(number, {"micro_batch": number + 1}), outcome)


def runs_of(*seconds: float, peak: int | None = None) -> tuple[Record, ...]:
    return tuple(record(n, steps_of(s, peak)) for n, s in enumerate(seconds))


SEARCHED = runs_of(3.0, 1.0, 1.02, 1.05, 1.03, 2.9)
"""Alike: t1, t2, t4, t3; the others are far behind."""


def truth(*seconds: float) -> Answer:
    """Each number's own seconds in every round, a little more in the even ones."""
    return lambda trial: steps_of(seconds[trial.number] * (1 + 0.001 * (trial.attempt % 2)))


def playoff_of(
    records: tuple[Record, ...],
    *,
    wanted: int = NORMAL.contenders,
    budget: PlayoffBudget | None = None,
    near_only: bool = True,
    noise: Noise | None = None,
) -> Playoff:
    """The playoff after a search."""
    noise = noise or estimate_noise(records)
    chosen = choose_contenders(records, THROUGHPUT, wanted, noise if near_only else None)
    return Playoff(chosen, THROUGHPUT, noise=noise, budget=budget)


def run(playoff: Playoff, answer: Answer, slots: int = 1, launch_s: float = 0.0) -> list[str]:
    """Names in the order in which they were asked for; each gets its outcome."""
    asked: list[str] = []
    while playoff.stop_reason() is None:
        trials = playoff.ask(slots, launch_s * len(asked))
        asked += [trial.name.removesuffix("_final") for trial in trials]
        for trial in trials:
            playoff.tell(Record(trial=trial, outcome=answer(trial), wall_s=1.0))
    return asked


def names(playoff: Playoff) -> list[str]:
    return [contender.name for contender in playoff.contenders]


def test_the_best_that_are_alike_and_the_baseline_take_part() -> None:
    assert names(playoff_of(SEARCHED)) == ["t1", "t2", "t4", "t0"]


def test_what_is_far_behind_takes_no_part() -> None:
    assert names(playoff_of(runs_of(3.0, 1.0, 1.0, 2.9))) == ["t1", "t2", "t0"]


def test_the_runner_up_takes_part_though_it_looked_slow() -> None:
    assert names(playoff_of(runs_of(3.0, 1.0, 2.4))) == ["t1", "t2", "t0"]


def test_what_is_much_slower_than_the_best_takes_no_part() -> None:
    found = playoff_of(runs_of(3.0, 1.0, 2.7), near_only=False)
    assert names(found) == ["t1", "t0"]


def test_nothing_is_asked_where_there_is_nothing_to_compare() -> None:
    assert run(playoff_of(runs_of(1.0)), truth(1.0)) == []
    assert run(playoff_of((record(0, CRASH),)), truth(1.0)) == []
    assert run(playoff_of(SEARCHED, wanted=0), truth(1.0)) == []


def test_every_round_has_another_order() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0))
    asked = run(playoff, truth(1.0, 1.0, 1.0))
    assert asked[:6] == ["t0", "t1", "t2", "t1", "t2", "t0"]


def test_a_round_is_the_attempt_of_a_final() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    (trial,) = playoff.ask(1, 0.0)
    assert trial == replace(
        runs_of(1.0)[0].trial,
        name="t0_final",
        attempt=1,
        final=True,
        timed_steps=6,
    )


def test_what_is_surely_slower_leaves_before_the_others() -> None:
    playoff = playoff_of(SEARCHED)
    asked = run(playoff, truth(3.0, 1.0, 1.3, 1.0, 1.0, 3.0))
    assert asked.count("t2") < asked.count("t4")
    assert playoff.leader is not None
    assert playoff.leader.name in ("t1", "t3", "t4")


def test_the_best_in_the_rounds_leads_whoever_was_best_in_the_search() -> None:
    playoff = playoff_of(SEARCHED)
    run(playoff, truth(3.0, 1.2, 1.0, 1.2, 1.2, 3.0))
    assert playoff.leader is not None
    assert playoff.leader.name == "t2"


def test_configurations_that_are_equal_end_before_the_rounds_do() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    run(playoff, truth(1.0, 1.0))
    assert 1 < playoff.rounds < 40


def test_a_baseline_that_is_far_behind_stays_until_its_distance_is_known() -> None:
    playoff = playoff_of(runs_of(2.0, 1.0))
    run(playoff, truth(2.0, 1.0))
    assert 2 <= playoff.rounds <= 10


def test_who_fails_leaves_and_the_others_go_on() -> None:
    def answer(trial: Trial) -> Outcome:
        seconds = (3.0, 1.0, 1.0, 1.2, 1.2)
        return CRASH if trial.number == 1 else steps_of(seconds[trial.number])

    playoff = playoff_of(SEARCHED)
    asked = run(playoff, answer)
    assert asked.count("t1") == 1
    assert playoff.leader is not None
    assert playoff.leader.name == "t2"


def test_no_round_begins_when_the_time_is_up() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0), budget=PlayoffBudget(time_s=10.0))
    for elapsed_s in (100.0, 109.0):
        (trial,) = playoff.ask(1, elapsed_s)
        playoff.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=1.0))
    assert playoff.ask(1, 111.0) == ()
    assert playoff.stop_reason() is not None


def test_a_baseline_that_one_round_cannot_separate_gets_a_second_one() -> None:
    playoff = playoff_of(runs_of(1.1, 1.0), budget=PlayoffBudget(time_s=1.0))
    asked = []
    for elapsed_s in (0.0, 5.0, 10.0, 15.0, 20.0):
        for trial in playoff.ask(1, elapsed_s):
            asked.append(trial.attempt)
            step_s = 1.1 if trial.number == 0 else 1.0
            playoff.tell(Record(trial=trial, outcome=steps_of(step_s), wall_s=1.0))
    assert asked == [1, 1, 2, 2]


def test_a_round_that_would_end_too_late_does_not_begin() -> None:
    alike = runs_of(1.0, 1.0, peak=20)
    playoff = playoff_of(alike, budget=PlayoffBudget(time_s=25.0))
    begun = []
    for elapsed_s in (0.0, 10.0, 20.0):
        trials = playoff.ask(2, elapsed_s)
        begun.append(len(trials))
        for trial in trials:
            playoff.tell(Record(trial=trial, outcome=steps_of(1.0, 20), wall_s=10.0))
    assert begun == [2, 2, 0]
    assert round_times_s(playoff.records) == (10.0, 10.0)


def test_what_may_be_best_goes_on_until_its_interval_is_narrow() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    run(playoff, truth(1.0, 1.03))
    slower, faster = playoff.contenders[1], playoff.contenders[0]
    found = playoff.compare(slower, faster)
    assert found.differs or found.width <= NORMAL.precision


def test_launches_of_a_round_have_as_many_steps_in_every_round() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, peak=20))
    seen = set()
    while trials := playoff.ask(2, 0.0):
        for trial in trials:
            assert trial.turn is not None
            seen.add(trial.turn.steps)
            playoff.tell(Record(trial=trial, outcome=steps_of(1.0, 20), wall_s=1.0))
    assert playoff.rounds > 1
    assert len(seen) == 1


def test_a_round_that_has_begun_is_ended() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0), budget=PlayoffBudget(time_s=10.0))
    (trial,) = playoff.ask(1, 100.0)
    playoff.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=1.0))
    assert len(playoff.ask(1, 200.0)) == 1


def test_all_have_the_same_time_one_after_the_other() -> None:
    playoff = playoff_of(runs_of(1.0, 3.0, 1.0), near_only=False, noise=None)
    steps = {}
    for _ in range(3):
        (trial,) = playoff.ask(1, 0.0)
        steps[trial.name] = trial.timed_steps
        playoff.tell(Record(trial=trial, outcome=steps_of(1.0), wall_s=1.0))
    assert steps["t0_final"] == steps["t2_final"] > 2 * steps.get("t1_final", 1)


def test_all_have_the_same_time_in_turn() -> None:
    playoff = playoff_of(runs_of(0.01, 0.025, peak=20))
    turns = [trial.turn for trial in playoff.ask(2, 0.0)]
    assert [turn.steps * length for turn, length in zip(turns, (0.01, 0.025), strict=True) if turn]
    assert {turn.steps // turn.length for turn in turns if turn} == {10}


def test_one_of_another_search_is_left_out() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0))
    playoff.tell(record(7, steps_of(1.0)))
    assert playoff.records == ()


def test_what_fits_side_by_side_takes_turns_in_a_group() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0, peak=20))
    trials = playoff.ask(3, 0.0)
    assert [trial.name for trial in trials] == ["t0_final", "t1_final", "t2_final"]
    assert [trial.turn for trial in trials] == [
        Turn(next_name="t1_final", is_first=True, steps=TURNS),
        Turn(next_name="t2_final", is_first=False, steps=TURNS),
        Turn(next_name="t0_final", is_first=False, steps=TURNS),
    ]


@pytest.mark.parametrize("peak", [None, 30])
def test_what_does_not_surely_fit_side_by_side_runs_one_after_another(peak: int | None) -> None:
    alike = runs_of(1.0, 1.0, 1.0, peak=peak)
    assert not fit_together(alike)
    assert len(playoff_of(alike).ask(3, 0.0)) == 1


def test_who_was_preempted_for_another_ones_sake_is_asked_again() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0, peak=20))
    first, second, third = playoff.ask(3, 0.0)
    for trial, outcome in ((first, CRASH), (second, PREEMPTED), (third, PREEMPTED)):
        assert playoff.ask(3, 0.0) == ()
        playoff.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))
    assert [trial.name for trial in playoff.ask(3, 0.0)] == ["t1_final", "t2_final"]


def test_the_ranking_has_each_measured_candidate_once() -> None:
    twice = (*runs_of(3.0, 1.0, 2.0), record(3, CRASH), record(2, steps_of(0.5)))
    assert [r.trial.name for r in ranking(twice, THROUGHPUT)] == ["t2", "t1", "t0"]


ALIKE = runs_of(3.0, 1.0, 1.01, 1.02, 1.03, 1.04)
"""All but the baseline may be the best; only three take part."""


def time_it(*seconds: float) -> tuple[Record, ...]:
    """Launches of which each took 2 s beside its steps."""
    return tuple(
        replace(record(n, steps_of(s)), wall_s=2.0 + 3 * s) for n, s in enumerate(seconds)
    )


def until(until_s: float, *seconds: float) -> Playoff:
    budget = PlayoffBudget(time_s=1e3, until_s=until_s)
    return playoff_of(time_it(*seconds), budget=budget)


def test_no_round_begins_that_may_not_end_in_time() -> None:
    playoff = until(30.0, 1.2, 1.0, 1.01)
    run(playoff, truth(1.2, 1.0, 1.01), launch_s=8.0)
    assert playoff.rounds == 1


def test_a_round_leaves_out_who_there_is_no_time_for_but_not_the_users_own() -> None:
    playoff = until(20.0, 1.2, 1.0, 1.01, 1.02)
    assert set(run(playoff, truth(1.2, 1.0, 1.01, 1.02), launch_s=9.0)) == {"t0", "t1"}


def test_without_time_for_a_round_there_is_none() -> None:
    playoff = until(5.0, 1.2, 1.0, 1.01)
    assert run(playoff, truth(1.2, 1.0, 1.01)) == []
    assert playoff.stop_reason() is not None


def test_a_round_is_over_when_all_of_it_came_back() -> None:
    playoff = playoff_of(runs_of(1.0, 1.0, 1.0), budget=PlayoffBudget(rounds=1))
    counts = []
    while trials := playoff.ask(1, 0.0):
        playoff.tell(Record(trial=trials[0], outcome=steps_of(1.0), wall_s=1.0))
        counts.append(playoff.rounds)
    assert counts == [0, 0, 1]
