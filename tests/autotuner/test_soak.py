from __future__ import annotations

import pytest

from autoconf_launch.autotuner.soak import Soak, refusal, report, soak_steps
from autoconf_launch.autotuner.trial import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, MemoryUse


def made(peak: int) -> Measurement:
    memory = MemoryUse(free_before_bytes=100, peak_bytes=peak, limit_bytes=100)
    return Measurement(
        step_s=(1.0,) * 4, samples_per_step=1, world_size=1, memory=memory, first_step=3
    )


def failed(kind: FailureKind) -> FailedTrial:
    return FailedTrial(failure=Failure(kind=kind, detail="it did"))


def record(name: str, outcome: Outcome) -> Record:
    trial = Trial(number=1, name=name, candidate=Candidate(layout=Layout()), space="z0")
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


RANKED = (record("large", made(90)), record("larger", made(95)), record("small", made(40)))


def run(**outcomes: Outcome) -> tuple[list[str], Soak]:
    """Names in the order in which they were asked for, and the soak after all of them."""
    soak, asked = Soak(RANKED, steps=6), []
    while soak.stop_reason() is None:
        (trial,) = soak.ask(1, 0.0)
        asked.append(trial.name)
        name = trial.name.removesuffix("_soak")
        soak.tell(Record(trial=trial, outcome=outcomes.get(name, made(50)), wall_s=1.0))
    return asked, soak


def test_a_winner_that_holds_out_is_the_only_one_tried() -> None:
    asked, soak = run()
    assert asked == ["large_soak"]
    assert soak.best is not None


def test_the_trial_says_how_many_steps_it_makes() -> None:
    (trial,) = Soak(RANKED, steps=6).ask(1, 0.0)
    assert (trial.soak_steps, trial.final) == (6, False)


@pytest.mark.parametrize("outcome", [made(99), failed(FailureKind.OUT_OF_MEMORY)])
def test_after_too_much_memory_only_what_needs_less_is_tried(outcome: Outcome) -> None:
    assert run(large=outcome)[0] == ["large_soak", "small_soak"]


def test_after_another_failure_the_next_best_is_tried() -> None:
    assert run(large=failed(FailureKind.NAN))[0] == ["large_soak", "larger_soak"]


def test_where_nothing_holds_out_that_is_an_error() -> None:
    crash = failed(FailureKind.CRASHED)
    _, soak = run(large=crash, larger=crash, small=crash)
    reason = soak.stop_reason()
    assert reason is not None
    assert (soak.best, reason.is_error) == (None, True)


def test_the_records_of_an_earlier_session_are_not_repeated() -> None:
    _, before = run(large=failed(FailureKind.NAN))
    again = Soak(RANKED, steps=6)
    for known in before.records:
        again.tell(known)
    assert again.ask(1, 0.0) == ()
    assert again.best == before.best


def test_98_percent_of_memory_are_allowed_and_no_more() -> None:
    assert refusal(record("x", made(98))) is None
    assert "99.0% of memory" in (refusal(record("x", made(99))) or "")


def test_the_report_names_who_was_refused_and_why() -> None:
    found = report(run(large=failed(FailureKind.NAN))[1].records)
    assert found.refused == ("large was refused: it failed in the soak (nan: it did).",)
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
    assert soak_steps(asked, step_s=step_s, time_s=10.0) == expected
