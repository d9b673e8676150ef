from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from autoconf_launch.autotuner.playoff import LackOfTime, Soak, verification_steps
from autoconf_launch.autotuner.playoff.soak import refusal, report_soaks
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record
from autoconf_launch.core import Aside, Asides, Candidate, Failure, FailureKind, Layout
from autoconf_launch.launcher.report import lack_of_time_text, refused_text
from autoconf_launch.launcher.report.search import refusal_text

from ..builders import launch, measurement, trial_of


def make(peak: int) -> Measurement:
    return dataclasses.replace(measurement(*(1.0,) * 4, peak=peak), first_step=3)


def failure(kind: FailureKind, asides: Asides | None = None) -> FailedTrial:
    return FailedTrial(failure=Failure(kind=kind, detail="it did"), asides=asides)


def record(name: str, outcome: Outcome) -> Record:
    return launch(trial_of(name=name), outcome)


RANKED = (record("large", make(90)), record("larger", make(95)), record("small", make(40)))


def run(ranked: Sequence[Record] = RANKED, **outcomes: Outcome) -> tuple[list[str], Soak]:
    """Names in the order in which they were asked for, and the soak after all of them.

    ``large__2`` is the outcome of its second attempt.
    """
    soak, asked = Soak(ranked, steps=6), []
    while soak.stop_reason() is None:
        (trial,) = soak.ask(1, 0.0)
        asked.append(trial.name)
        name = trial.name.removesuffix("_soak") + "__2" * (trial.attempt > 1)
        soak.tell(Record(trial=trial, outcome=outcomes.get(name, make(50)), wall_s=1.0))
    return asked, soak


def test_a_winner_that_holds_out_is_the_only_one_tried() -> None:
    asked, soak = run()
    assert asked == ["large_soak"]
    assert soak.best is not None


def test_the_trial_says_how_many_steps_it_makes() -> None:
    (trial,) = Soak(RANKED, steps=6).ask(1, 0.0)
    assert (trial.soak_steps, trial.final) == (6, False)


@pytest.mark.parametrize("outcome", [make(99), failure(FailureKind.OUT_OF_MEMORY)])
def test_after_too_much_memory_only_what_needs_less_is_tried(outcome: Outcome) -> None:
    assert run(large=outcome)[0] == ["large_soak", "small_soak"]


def test_a_smaller_micro_batch_is_tried_though_its_figure_of_memory_is_no_smaller() -> None:
    ranked = [
        dataclasses.replace(
            one,
            trial=dataclasses.replace(
                one.trial, candidate=Candidate(layout=Layout(micro_batch=micro))
            ),
        )
        for one, micro in ((record("large", make(40)), 64), (record("small", make(41)), 4))
    ]
    out = failure(FailureKind.OUT_OF_MEMORY)
    assert run(ranked, large=out)[0] == ["large_soak", "small_soak"]


def test_without_figures_of_memory_a_smaller_micro_batch_is_still_tried() -> None:
    blind = [
        dataclasses.replace(
            one,
            trial=dataclasses.replace(
                one.trial, candidate=Candidate(layout=Layout(micro_batch=size))
            ),
            outcome=dataclasses.replace(make(1), memory=None),
        )
        for one, size in zip(RANKED, (4, 8, 2), strict=True)
    ]
    asked = run(blind, large=failure(FailureKind.OUT_OF_MEMORY))[0]
    assert asked == ["large_soak", "small_soak"]


def test_after_another_failure_the_next_best_is_tried() -> None:
    assert run(large=failure(FailureKind.NAN))[0] == ["large_soak", "larger_soak"]


def test_where_nothing_holds_out_that_is_an_error() -> None:
    nan = failure(FailureKind.NAN)
    _, soak = run(large=nan, larger=nan, small=nan)
    reason = soak.stop_reason()
    assert reason is not None
    assert (soak.best, reason.is_error) == (None, True)


def test_the_records_of_an_earlier_session_are_not_repeated() -> None:
    _, before = run(large=failure(FailureKind.NAN))
    again = Soak(RANKED, steps=6)
    for known in before.records:
        again.tell(known)
    assert again.ask(1, 0.0) == ()
    assert again.best == before.best


def test_98_percent_of_memory_are_allowed_and_no_more() -> None:
    assert refusal(record("x", make(98))) is None
    found = refusal(record("x_soak", make(99)))
    assert found is not None
    assert refusal_text(found) == (
        "x used 99.0 % of memory in its verification run, more than 98 %."
    )


def test_the_report_names_who_was_refused_and_why() -> None:
    found = report_soaks(run(large=failure(FailureKind.NAN))[1].records)
    assert [refusal_text(one) for one in found.refused] == [
        "large failed its verification run (nan: it did)."
    ]
    assert (found.passed, found.steps, found.memory_share) == (True, 6, 0.5)


@pytest.mark.parametrize(
    ("asked", "step_s", "expected"),
    [
        pytest.param(None, 0.001, 50, id="fast steps"),
        pytest.param(None, 1.0, 10, id="as many as there is time for"),
        pytest.param(None, 60.0, 5, id="a few of any"),
        pytest.param(70, 60.0, 70, id="as asked"),
    ],
)
def test_the_number_of_steps_is_bounded_in_seconds_unless_it_is_given(
    asked: int | None, step_s: float, expected: int
) -> None:
    assert verification_steps(asked, step_s=step_s, time_s=10.0) == expected


CRASH = FailureKind.CRASHED


def with_own(name: str, number: int) -> Record:
    trial = dataclasses.replace(record(name, make(50)).trial, number=number)
    return Record(trial=trial, outcome=make(50), wall_s=1.0)


WITH_OWN = tuple(with_own(name, number) for number, name in zip((3, 2, 1, 0), "abco", strict=True))


def test_where_two_fail_alike_and_the_users_own_too_nothing_else_is_tried() -> None:
    nan = failure(FailureKind.NAN)
    asked, soak = run(WITH_OWN, a=nan, b=nan, o=nan)
    assert asked == ["a_soak", "b_soak", "o_soak"]
    text = refused_text(report_soaks(soak.records))
    assert "whatever the configuration, yours too (nan: it did)" in text


def test_the_users_own_among_two_that_fail_alike_says_enough() -> None:
    nan = failure(FailureKind.NAN)
    assert run(WITH_OWN[::-1], o=nan, c=nan)[0] == ["o_soak", "c_soak"]


def test_where_two_fail_alike_and_the_users_own_passes_it_is_the_choice() -> None:
    nan = failure(FailureKind.NAN)
    asked, soak = run(WITH_OWN, a=nan, b=nan)
    assert asked == ["a_soak", "b_soak", "o_soak"]
    assert soak.best is not None
    assert soak.best.trial.number == 0
    assert report_soaks(soak.records).passed


def test_failures_of_two_kinds_say_nothing_of_the_script() -> None:
    outcomes = {"a": failure(FailureKind.NAN), "b": failure(FailureKind.STALLED)}
    assert run(WITH_OWN, **outcomes)[0] == ["a_soak", "b_soak", "c_soak"]


def test_who_crashes_with_what_was_moved_is_tried_once_more_without() -> None:
    asked, soak = run(large=failure(CRASH))
    assert asked == ["large_soak", "large_soak"]
    assert [told.trial.attempt for told in soak.records] == [1, 2]


def test_a_second_attempt_that_passes_is_no_refusal_and_says_what_it_left_out() -> None:
    found = report_soaks(run(large=failure(CRASH))[1].records)
    assert (found.passed, found.refused, found.as_trial) == (True, (), failure(CRASH).failure)


def test_a_second_attempt_that_fails_is_refused_once() -> None:
    asked, soak = run(large=failure(CRASH), large__2=failure(FailureKind.NAN))
    assert asked == ["large_soak", "large_soak", "larger_soak"]
    found = report_soaks(soak.records)
    assert [(one.name, one.failure) for one in found.refused] == [
        ("large", failure(FailureKind.NAN).failure)
    ]
    assert found.as_trial is None


@pytest.mark.parametrize("aside", list(Aside))
def test_who_crashes_in_its_own_evaluation_or_checkpoint_is_refused_at_once(aside: Aside) -> None:
    outcome = failure(CRASH, Asides(under_way=aside))
    assert run(large=outcome)[0] == ["large_soak", "larger_soak"]


def test_out_of_memory_is_never_blamed_on_what_was_moved() -> None:
    asked, _ = run(large=failure(FailureKind.OUT_OF_MEMORY))
    assert asked == ["large_soak", "small_soak"]


def test_a_second_attempt_of_an_earlier_session_is_not_made_again() -> None:
    _, before = run(large=failure(CRASH))
    again = Soak(RANKED, steps=6)
    for known in before.records:
        again.tell(known)
    assert again.ask(1, 0.0) == ()


def test_a_soak_has_fewer_steps_where_time_is_short() -> None:
    soak = Soak(RANKED, steps=50, start_s=5.0, until_s=100.0)
    (trial,) = soak.ask(1, 70.0)
    assert trial.soak_steps == 20


def test_a_soak_that_time_has_no_room_for_is_not_launched() -> None:
    soak = Soak(RANKED, steps=50, start_s=5.0, until_s=100.0)
    assert soak.ask(1, 92.0) == ()
    assert soak.stop_reason() is not None
    assert soak.lacks_time == LackOfTime(name="large", left_s=8.0)
    assert lack_of_time_text(soak.lacks_time) == (
        "The budget had no room for a verification run of large: 8 s remain."
    )


def test_a_crash_stands_where_a_second_attempt_would_be_shorter() -> None:
    soak = Soak(RANKED, steps=50, start_s=5.0, until_s=200.0)
    (trial,) = soak.ask(1, 0.0)
    soak.tell(Record(trial=trial, outcome=failure(CRASH), wall_s=30.0))
    assert soak.ask(1, 150.0) == ()
    assert soak.stop_reason() is not None
    found = report_soaks(soak.records)
    assert (found.passed, [one.name for one in found.refused]) == (False, ["large"])


def test_a_soak_that_the_budget_ended_says_nothing_of_the_configuration() -> None:
    soak = Soak(RANKED, steps=50, until_s=100.0)
    (trial,) = soak.ask(1, 0.0)
    cut = Failure(kind=FailureKind.PREEMPTED, detail="the budget was spent")
    soak.tell(Record(trial=trial, outcome=FailedTrial(failure=cut), wall_s=1.0))
    assert soak.records == ()
    assert soak.choice is not None
    assert soak.choice.trial.name == "large"
    assert soak.stop_reason() is not None
