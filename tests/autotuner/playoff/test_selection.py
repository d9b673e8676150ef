from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.playoff.contender import may_be_best
from autoconf_launch.autotuner.space import Record

from .test_playoff import CRASH, THROUGHPUT, record, steps_of


def after(step_s: float, *, steps: int = 3) -> Record:
    outcome = steps_of(step_s)
    return record(1, replace(outcome, step_s=outcome.step_s[:steps]))


BEST = after(1.0)


def test_what_looked_a_little_slower_may_be_best() -> None:
    assert may_be_best(after(1.05), BEST, THROUGHPUT, PRIOR)


def test_what_looked_half_as_fast_may_not() -> None:
    assert not may_be_best(after(2.0), BEST, THROUGHPUT, PRIOR)


def test_what_was_ended_at_once_was_slower_beyond_all_noise() -> None:
    assert not may_be_best(after(1.05, steps=1), BEST, THROUGHPUT, PRIOR)


def test_where_all_make_one_step_it_counts() -> None:
    one = after(1.0, steps=1)
    assert may_be_best(after(1.05, steps=1), one, THROUGHPUT, PRIOR)


def test_what_failed_may_not_be_best() -> None:
    assert not may_be_best(record(1, CRASH), BEST, THROUGHPUT, PRIOR)
