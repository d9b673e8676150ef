from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.core import Aside, Failure, FailureKind, WentOn
from autoconf_launch.runtime.soak import AsideWatch

CRASH = Failure(kind=FailureKind.CRASHED, detail="no room")


def test_a_failure_in_a_save_says_so() -> None:
    watch = AsideWatch()
    watch.saves()
    assert "(in the checkpoint" in watch.locate(CRASH, 9).detail


def test_a_save_whose_failure_the_script_survives_is_not_blamed_later() -> None:
    watch = AsideWatch()
    watch.saves()
    watch.on_evaluation()
    assert "(in or after the evaluation" in watch.locate(CRASH, 9).detail


def test_a_failure_of_the_training_itself_has_no_such_place() -> None:
    watch = AsideWatch()
    watch.saves()
    watch.on_resume()
    assert watch.locate(CRASH, 9) == CRASH


def after_the_steps() -> AsideWatch:
    watch = AsideWatch()
    watch.went_on = WentOn.EPOCH
    return watch


def test_after_the_steps_a_failure_elsewhere_is_kept_and_not_blamed() -> None:
    watch = after_the_steps()
    watch.on_evaluation()
    assert watch.judge(CRASH, 9) is None
    seen = watch.summary(())
    assert (seen.broke, seen.broke_in, seen.under_way) == ("no room", Aside.EVALUATION, None)


@pytest.mark.parametrize(
    "detail", ["StopIteration", "RuntimeError: generator raised StopIteration"]
)
def test_an_end_of_data_is_no_failure_of_an_evaluation(detail: str) -> None:
    watch = after_the_steps()
    watch.on_evaluation()
    watch.judge(replace(CRASH, detail=detail), 9)
    assert (watch.summary(()).broke, watch.summary(()).broke_in) == (detail, None)


def test_after_the_steps_a_call_of_the_model_that_fails_is_blamed() -> None:
    watch = after_the_steps()
    watch.on_evaluation()
    watch.fails()
    assert "(in or after the evaluation" in detail_of(watch.judge(CRASH, 9))


def test_after_the_steps_a_save_that_fails_is_blamed() -> None:
    watch = after_the_steps()
    watch.saves()
    assert "(in the checkpoint" in detail_of(watch.judge(CRASH, 9))


def test_after_the_steps_a_lack_of_memory_is_blamed_wherever_it_is() -> None:
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, detail="no room")
    assert after_the_steps().judge(failure, 9) == failure


def test_within_the_steps_every_failure_is_blamed() -> None:
    assert AsideWatch().judge(CRASH, 9) == CRASH


def test_a_checkpoint_after_the_steps_is_over_once_it_is_written() -> None:
    watch = after_the_steps()
    watch.saves()
    watch.on_save(7)
    assert watch.under_way is None


def test_nothing_is_under_way_at_the_scripts_own_end() -> None:
    watch = AsideWatch()
    watch.on_evaluation()
    watch.on_end()
    assert (watch.under_way, watch.went_on) == (None, WentOn.END)


def test_an_end_that_follows_from_data_ended_early_is_not_the_scripts_own() -> None:
    watch = after_the_steps()
    watch.on_end()
    assert watch.went_on is WentOn.EPOCH_END


def detail_of(failure: Failure | None) -> str:
    assert failure
    return failure.detail
