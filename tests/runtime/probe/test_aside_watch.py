from __future__ import annotations

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.runtime.probing.aside_watch import AsideWatch

CRASH = Failure(kind=FailureKind.CRASHED, detail="no room")


def test_a_failure_in_a_save_says_so() -> None:
    watch = AsideWatch()
    watch.saves()
    assert "(in the checkpoint" in watch.located(CRASH, 9).detail


def test_a_save_whose_failure_the_script_survives_is_not_blamed_later() -> None:
    watch = AsideWatch()
    watch.saves()
    watch.evaluated()
    assert "(in or after the evaluation" in watch.located(CRASH, 9).detail


def test_a_failure_of_the_training_itself_has_no_such_place() -> None:
    watch = AsideWatch()
    watch.saves()
    watch.resumed()
    assert watch.located(CRASH, 9) == CRASH
