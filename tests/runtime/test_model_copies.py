"""Ranks that share one model copy: equal batches and gradients, or a sentence; real ranks."""

from collections.abc import Callable
from typing import Any

import pytest

from autoconf_launch.core import FailureKind, Mode

FAULTS = {
    "other_batch": "different batches; load the samples of engine.share",
    "whole_between": "The gradient of blocks.0.scale.weight differs between tensor ranks",
    "half_tied": "splits only some of words.weight, head.weight, which share one weight",
    "odd_tokens": "2 tensor ranks cannot share 15 tokens equally",
    "no_blocks": "splits nothing in repeated blocks",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_train_wrongly_ends_with_a_sentence(
    launch: Callable[..., Any], fault: str
) -> None:
    ended = launch("model_copies.py", fault, ranks=2, mode=Mode.MEASURE)
    assert ended.failure_kind() is FailureKind.BAD_CONFIG, ended.errors
    assert FAULTS[fault] in str(ended.result().failure)


def test_ranks_of_one_copy_report_their_samples_once(launch: Callable[..., Any]) -> None:
    ended = launch("model_copies.py", "none", ranks=2, mode=Mode.MEASURE)
    assert ended.exit_codes == (0, 0), ended.errors
    samples = [sum(step.samples for step in ended.result(rank).steps) for rank in (0, 1)]
    assert samples == [5 * 8, 0]


def test_dropout_drops_the_same_in_all_ranks_of_a_copy(launch: Callable[..., Any]) -> None:
    ended = launch("model_copies.py", "dropout", ranks=2, mode=Mode.MEASURE)
    assert ended.exit_codes == (0, 0), ended.errors
