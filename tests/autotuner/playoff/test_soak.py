from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from autoconf_launch.autotuner.playoff import LackOfTime, Soak, verification_steps
from autoconf_launch.autotuner.playoff.soak import refusal, report_soaks
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record
from autoconf_launch.core import Aside, Asides, Failure, FailureKind
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


CRASH = FailureKind.CRASHED
NAN = failure(FailureKind.NAN)
OUT_OF_MEMORY = failure(FailureKind.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("outcomes", "asked"),
    [
        pytest.param({}, "large", id="the winner, if it passes"),
        pytest.param({"large": make(99)}, "large small", id="less memory after too much"),
        pytest.param({"large": OUT_OF_MEMORY}, "large small", id="less memory after a lack of it"),
        pytest.param({"large": NAN}, "large larger", id="the next best after another failure"),
        pytest.param({"large": failure(CRASH)}, "large large", id="a crash twice"),
        pytest.param(
            {"large": failure(CRASH), "large__2": NAN}, "large large larger", id="but not thrice"
        ),
        *(
            pytest.param(
                {"large": failure(CRASH, Asides(under_way=aside))},
                "large larger",
                id=f"a crash in its own {aside.value} once",
            )
            for aside in Aside
        ),
    ],
)
def test_what_is_tried_after_each_outcome(outcomes: dict[str, Outcome], asked: str) -> None:
    names, soak = run(RANKED, **outcomes)
    assert names == [f"{name}_soak" for name in asked.split()]
    assert soak.best is not None


def test_the_trial_says_how_many_steps_it_makes() -> None:
    (trial,) = Soak(RANKED, steps=6).ask(1, 0.0)
    assert (trial.soak_steps, trial.final) == (6, False)


@pytest.mark.parametrize("peaks", [(40, 41), (None, None)], ids=["alike", "not known"])
def test_if_memory_does_not_tell_a_smaller_micro_batch_is_tried(
    peaks: tuple[int | None, int | None],
) -> None:
    ranked = [
        launch(trial_of(1, {"micro_batch": size}, name), measurement(1.0, peak=peak))
        for name, size, peak in zip(("large", "small"), (64, 4), peaks, strict=True)
    ]
    assert run(ranked, large=OUT_OF_MEMORY)[0] == ["large_soak", "small_soak"]


def test_where_nothing_holds_out_that_is_an_error() -> None:
    _, soak = run(large=NAN, larger=NAN, small=NAN)
    reason = soak.stop_reason()
    assert reason is not None
    assert (soak.best, reason.is_error) == (None, True)


@pytest.mark.parametrize("outcome", [NAN, failure(CRASH)], ids=["next", "second attempt"])
def test_the_records_of_an_earlier_session_are_not_repeated(outcome: Outcome) -> None:
    _, before = run(large=outcome)
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
    found = report_soaks(run(large=NAN)[1].records)
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


def with_own(name: str, number: int) -> Record:
    trial = dataclasses.replace(record(name, make(50)).trial, number=number)
    return Record(trial=trial, outcome=make(50), wall_s=1.0)


WITH_OWN = tuple(with_own(name, number) for number, name in zip((3, 2, 1, 0), "abco", strict=True))


@pytest.mark.parametrize(
    ("order", "outcomes", "asked"),
    [
        pytest.param(1, dict.fromkeys("abo", NAN), "a b o", id="two alike, then the users own"),
        pytest.param(1, dict.fromkeys("ab", NAN), "a b o", id="which passes"),
        pytest.param(-1, dict.fromkeys("oc", NAN), "o c", id="the users own among the two"),
        pytest.param(
            1, {"a": NAN, "b": failure(FailureKind.STALLED)}, "a b c", id="two of two kinds"
        ),
    ],
)
def test_after_two_failures_alike_only_the_users_own_is_tried(
    order: int, outcomes: dict[str, Outcome], asked: str
) -> None:
    names, soak = run(WITH_OWN[::order], **outcomes)
    assert names == [f"{name}_soak" for name in asked.split()]
    whatever = report_soaks(soak.records).whatever
    assert (whatever is not None) == ("o" in outcomes)
    assert (soak.best is not None) == ("o" not in outcomes)


def test_a_script_that_fails_in_any_configuration_is_named() -> None:
    _, soak = run(WITH_OWN, a=NAN, b=NAN, o=NAN)
    text = refused_text(report_soaks(soak.records))
    assert "whatever the configuration, yours too (nan: it did)" in text


def test_a_second_attempt_that_passes_is_no_refusal_and_says_what_it_left_out() -> None:
    _, soak = run(large=failure(CRASH))
    assert [told.trial.attempt for told in soak.records] == [1, 2]
    found = report_soaks(soak.records)
    assert (found.passed, found.refused, found.as_trial) == (True, (), failure(CRASH).failure)


def test_a_second_attempt_that_fails_is_refused_once() -> None:
    found = report_soaks(run(large=failure(CRASH), large__2=NAN)[1].records)
    assert [(one.name, one.failure) for one in found.refused] == [("large", NAN.failure)]
    assert found.as_trial is None


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
