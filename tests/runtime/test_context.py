"""Ranks that share out the tokens of a sample: which ones, and what they refuse; real ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh

from autoconf_launch.core import FailureKind, Mode
from autoconf_launch.runtime import scaled_dot_product_attention
from autoconf_launch.runtime.parallel.context_attention import _mask
from autoconf_launch.runtime.parallel.sequence_chunks import SequenceChunks


class OneOf:
    """What ``SequenceChunks`` asks of a mesh."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def size(self) -> int:
        return self.ranks

    def get_group(self) -> None:
        return None

    def get_local_rank(self) -> int:
        return self.rank


def chunks_of(ranks: int) -> list[SequenceChunks]:
    return [SequenceChunks(cast(DeviceMesh, OneOf(rank, ranks))) for rank in range(ranks)]


def test_a_rank_has_a_chunk_from_the_head_and_one_from_the_tail() -> None:
    whole = torch.arange(12)[None]
    parts = [one.part(whole)[0].tolist() for one in chunks_of(3)]
    assert parts == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    assert chunks_of(3)[0].positions(4, whole.device)[0].tolist() == parts[0]


def test_parts_of_all_ranks_are_put_in_order_again() -> None:
    whole = torch.randn(2, 3, 8, 5)
    every = chunks_of(2)
    parts = torch.stack([one.part(whole, 2) for one in every])
    assert torch.equal(every[0].in_order(parts, 2), whole)


@pytest.mark.parametrize("window", [None, 3, 100])
def test_a_chunk_attends_to_itself_and_to_what_is_before_it(window: int | None) -> None:
    at, to = torch.arange(8)[:, None], torch.arange(8)
    whole = (to <= at) & (to > at - (window or 8))
    assert torch.equal(_mask(3, 8, window, torch.device("cpu")), whole[5:])


def test_without_context_ranks_attention_is_that_of_torch() -> None:
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.equal(scaled_dot_product_attention(query, key, value, is_causal=True), expected)
    torch.testing.assert_close(scaled_dot_product_attention(query, key, value, mask), expected)


FAULTS = {
    "odd_tokens": "2 ranks cannot share 14 tokens equally",
    "padded": "attention_mask masks tokens: padding cannot be shared out",
    "packed": "position_ids begin anew within a sample",
    "ignored": "some labels are -100, which the mean loss of Split counts on each rank alone",
    "other_batch": "different batches; load the samples of engine.share",
    "own_attention": "Split has no attention that context ranks share",
    "mask": "attention was given attn_mask",
    "own_places": "its forward must take position_ids where places count",
    "summed": "the loss must be the mean over tokens",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_train_wrongly_ends_with_a_sentence(
    launch: Callable[..., Any], fault: str
) -> None:
    ended = launch("contexts.py", fault, ranks=2, mode=Mode.MEASURE)
    assert ended.failure_kind() is FailureKind.BAD_CONFIG, ended.errors
    assert FAULTS[fault] in str(ended.result().failure)


@pytest.mark.parametrize("case", ["none", "ignored_shifted"])
def test_ranks_of_one_sequence_report_their_samples_once(
    launch: Callable[..., Any], case: str
) -> None:
    ended = launch("contexts.py", case, ranks=2, mode=Mode.MEASURE)
    assert ended.exit_codes == (0, 0), ended.errors
    samples = [sum(step.samples for step in ended.result(rank).steps) for rank in (0, 1)]
    assert samples == [5 * 8, 0]
    applied = ended.result().applied
    assert (applied.context_parallel, applied.data_parallel) == (2, 1)
