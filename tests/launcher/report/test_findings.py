from __future__ import annotations

from collections.abc import Sequence

from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.space import Record
from autoconf_launch.launcher.report.search import drift_findings

from ...autotuner.search.test_drift import (
    CRASH,
    LOADED,
    again,
    steps_of,
    trials,
)


def repeat_findings(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[str, ...]:
    return drift_findings(drift(records, repeats))


def test_repeats_that_agree_are_not_talked_of() -> None:
    records = trials(1.0, 1.0)
    assert repeat_findings(records, [again(records[0], 2, steps_of(1.0))]) == ()


def test_a_repeat_that_failed_is_said() -> None:
    records = trials(1.0, 1.0)
    (said,) = repeat_findings(records, [again(records[1], 2, CRASH)])
    assert said.startswith("t1 failed when it was re-measured (crashed: it")


def test_a_trial_that_was_not_confirmed_is_said_with_both_times() -> None:
    records = trials(1.0, 1.0, LOADED)
    (said,) = repeat_findings(records, [again(records[2], 3, steps_of(1.0), doubted=True)])
    assert "accum 1 took 2,000 ms per step in its trial, 1,000 ms re-measured" in said


def test_a_machine_that_was_slower_for_a_while_is_said() -> None:
    records = trials(1.0, 1.0, LOADED)
    (said,) = repeat_findings(records, [again(records[0], 3, steps_of(LOADED))])
    assert said.startswith("The machine was about 100 % slower")
