"""Trials with no time for an optimizer step: real ranks that end the first one early."""

from typing import Any

import pytest

from autoconf_launch.core import CutStep, Mode
from autoconf_launch.runtime.rank import FEWEST_MADE

TASK = {"mode": Mode.MEASURE, "start_step": 2, "end_step": 5, "most_steps": 5}
WHOLE = 64


@pytest.fixture(scope="module", params=["long_step", "long_sharded_step"])
def cut(launch: Any, request: pytest.FixtureRequest) -> Any:
    """Two ranks with a second for a step of 64 micro-batches, each of 0.1 and 0.2 s."""
    return launch("scenario.py", request.param, ranks=2, cut_s=1.0, **TASK)


def cuts(ended: Any) -> list[CutStep]:
    assert ended.exit_codes == (0, 0), ended.errors
    return [ended.result(rank).cut for rank in range(2)]


def test_a_step_too_long_ends_in_time(cut: Any) -> None:
    for one in cuts(cut):
        assert FEWEST_MADE <= len(one.micro_s) + 1 < WHOLE == one.whole
        assert sum(one.micro_s) + one.rest_s < 3.0


def test_all_ranks_make_the_same_micro_batches(cut: Any) -> None:
    first, second = cuts(cut)
    assert len(first.micro_s) == len(second.micro_s)


def test_what_a_micro_batch_takes_is_seen_on_each_rank(cut: Any) -> None:
    first, second = cuts(cut)
    assert all(seconds >= 0.1 for seconds in first.micro_s)
    assert all(seconds >= 0.2 for seconds in second.micro_s)


def test_a_cut_step_is_no_step(cut: Any) -> None:
    results = [cut.result(rank) for rank in range(2)]
    assert [(result.steps, result.failure) for result in results] == [((), None)] * 2


def test_the_strategy_of_a_cut_step_is_the_one_asked_for(cut: Any) -> None:
    assert cut.result().applied.accumulation == WHOLE


def test_at_least_so_many_micro_batches_are_made_as_tell_something(launch: Any) -> None:
    ended = launch("scenario.py", "long_step", cut_s=0.001, **TASK)
    assert len(ended.result().cut.micro_s) + 1 == FEWEST_MADE


def test_a_step_that_has_time_is_whole(launch: Any) -> None:
    ended = launch("scenario.py", "slow_steps", cut_s=60.0, **TASK)
    assert (ended.result().cut, len(ended.result().steps)) == (None, 5)


def test_no_step_begins_that_has_no_time(launch: Any) -> None:
    ended = launch("scenario.py", "slow_steps", cut_s=1.0, **TASK)
    assert 1 <= len(ended.result().steps) <= 2
    assert ended.result().end_step == len(ended.result().steps)
