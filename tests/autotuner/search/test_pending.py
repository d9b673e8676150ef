from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.search import Grouping, baseline_trial
from autoconf_launch.autotuner.search.pool import PendingTrials, Pool
from autoconf_launch.autotuner.space import OBJECTIVES

from ..conftest import out_of_memory, record, settings, small_space

SPACE = small_space()
TRIAL = baseline_trial(SPACE.table.row(3))
AGAIN = replace(TRIAL, name=f"{TRIAL.name}_again", again=2)


def handed_out() -> PendingTrials:
    groups = Grouping.of_settings(settings())
    return PendingTrials(Pool(SPACE, None, (), groups, OBJECTIVES["throughput"]))


def test_trials_are_pending_until_their_first_record() -> None:
    out = handed_out()
    out.give([TRIAL])
    assert (out.pending, out.is_waiting, out.is_open(TRIAL.name)) == ((TRIAL,), True, True)
    assert out.take(TRIAL)
    assert (out.pending, out.is_waiting, out.is_open(TRIAL.name)) == ((), False, False)
    assert not out.take(TRIAL)
    out.give([AGAIN])
    assert (out.pending, out.is_repeating, out.is_waiting) == ((), True, True)


def test_an_out_of_memory_that_is_not_sure_gets_a_second_attempt_and_no_third() -> None:
    out = handed_out()
    out.learn_from_full_memory(record(TRIAL, out_of_memory(free=False)))
    (second,) = out.second_attempts
    assert (second.name, second.attempt) == (TRIAL.name, 2)
    out.give([second])
    out.learn_from_full_memory(record(second, out_of_memory(free=False)))
    assert out.second_attempts == ()
