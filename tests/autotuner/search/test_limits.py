from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.search import FEWEST_TRIALS, NoRoom, SearchLimits, StopKind, Study
from autoconf_launch.autotuner.space import PredictionTable, Record, Trial
from autoconf_launch.launcher.report import stop_sentence

from ...rows import some
from ..conftest import candidate, out_of_memory, settings, small_space, steps_of

SPACE = small_space(candidate(accumulation=64))
PATIENT = settings(tuner_early_stopping=99)


def predict(step_s: float) -> PredictionTable:
    """Every candidate alike, and surely no faster than that."""
    count = len(SPACE.table)
    return PredictionTable(
        step_s_C=np.full(count, step_s),
        peak_bytes_C=np.ones(count),
        band=0.01,
        least_step_s_C=np.full(count, step_s),
        how="by the test",
    )


def stop(limits: SearchLimits, predictions: PredictionTable | None = None) -> Study:
    study = Study(SPACE, predictions, PATIENT, limits=limits)
    known = None if predictions is None else predictions.row(0)
    while study.stop_reason() is None:
        for trial in study.ask(1, 0.0):
            outcome = steps_of(trial, 1.0)
            study.tell(Record(trial=trial, outcome=outcome, wall_s=0.0, prediction=known))
    return study


def test_budgets_count_the_baseline_but_not_its_second_attempt() -> None:
    study = stop(SearchLimits(trials=4))
    reason = some(study.stop_reason())
    assert (len(study.records), reason.kind) == (4, StopKind.BUDGET)
    assert stop_sentence(reason) == "The budget of 4 trials is spent."
    study = Study(SPACE, None, PATIENT, limits=SearchLimits(trials=1))
    (first,) = study.ask(4, 0.0)
    study.tell(Record(trial=first, outcome=out_of_memory(free=False), wall_s=1.0))
    assert study.ask(4, 0.0) == (replace(first, attempt=2),)


def test_a_search_without_gain_ends_after_a_few_trials_if_the_user_wants_that() -> None:
    study = stop(SearchLimits(least_gain=0.02), predict(1.0))
    reason = some(study.stop_reason())
    assert (len(study.records), reason.kind) == (FEWEST_TRIALS, StopKind.GOOD_ENOUGH)
    assert len(stop(SearchLimits(), predict(1.0)).records) > FEWEST_TRIALS


@pytest.mark.parametrize("predictions", [None, replace(predict(0.5), band=0.05)])
def test_where_something_might_be_gained_it_goes_on(predictions: PredictionTable | None) -> None:
    reason = some(stop(SearchLimits(least_gain=0.02), predictions).stop_reason())
    assert reason.kind is not StopKind.GOOD_ENOUGH


def test_money_and_time_are_no_errors_and_last_until_something_can_be_compared() -> None:
    limits, records = SearchLimits(seconds=5.0), stop(SearchLimits(trials=1)).records
    reason = some(limits.stop_reason(5.0, records))
    assert not reason.is_error
    assert limits.stop_reason(4.9, records) is None
    limits, study = SearchLimits(seconds=7.0, whole_s=10.0), stop(SearchLimits(trials=2))
    baseline, other = study.records
    assert limits.left_s(5.0, (baseline,)) == 5.0
    assert limits.left_s(5.0, (baseline, other)) == 2.0


def most_started(slots: int, budget: int, surprises: bool) -> int:
    """Trials of a search side by side; the first of those that run comes back first."""
    study = Study(SPACE, predict(1.0), PATIENT, limits=SearchLimits(trials=budget))
    running: list[Trial] = []
    while study.stop_reason() is None:
        running += study.ask(slots - len(running), 0.0)
        trial = running.pop(0)
        step_s = 9.0 if surprises and trial.number == 1 and not trial.again else 1.0
        known = predict(1.0).row(0)
        told = Record(trial=trial, outcome=steps_of(trial, step_s), wall_s=1.0, prediction=known)
        study.tell(told)
    return len(study.records) + sum(not trial.again for trial in running)


@pytest.mark.parametrize("surprises", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("budget", [1, 3, 6])
def test_side_by_side_no_more_trials_start_than_the_budget_has(
    slots: int, budget: int, surprises: bool
) -> None:
    assert most_started(slots, budget, surprises) == budget


@pytest.mark.parametrize(("trial_s", "room"), [(11.0, 0), (8.0, 1), (3.0, 2), (2.0, 3), (0.1, 9)])
def test_trials_have_room_as_far_as_their_bounds_fit(trial_s: float, room: int) -> None:
    """The last one ends before 7 s with a quarter to spare, the second before the whole 10 s."""
    limits = SearchLimits(seconds=7.0, whole_s=10.0)
    assert limits.trials_in_time(trial_s, spent_s=0.0, most=9) == room


def test_trials_have_room_as_far_as_their_bounds_and_the_rest_of_the_budget_allow() -> None:
    limits = SearchLimits(seconds=7.0, whole_s=10.0)
    assert limits.trials_in_time(2.0, spent_s=4.0, most=9) == 2
    assert limits.trials_in_time(1.0, spent_s=4.0, most=9, at_once=8) == 9
    # True if the search's share or the command's end is too short for another trial.
    limits = SearchLimits(seconds=70.0, whole_s=100.0, ending_s=3.0)
    records = stop(SearchLimits(trials=2)).records
    found = limits.no_time(60.0, records, (12.0, 20.0))
    assert found.budget == "100 s"
    assert found.no_room == NoRoom(left_s=40.0, kept_s=27.0, shortest_s=15.0, candidates=2)
    assert limits.left_s(60.0, records[:1]) == 37.0
