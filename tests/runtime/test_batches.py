from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.model import first_samples, map_tensors, split
from autoconf_launch.runtime.model.batches import sample_count

counts = st.integers(1, 7)


class Pair(NamedTuple):
    text: Tensor
    target: Tensor


@given(micro_batch=counts, accumulation=counts)
def test_micro_batches_joined_are_the_batch(micro_batch: int, accumulation: int) -> None:
    batch = torch.arange(2 * micro_batch * accumulation).view(-1, 2)
    parts = list(split(batch, micro_batch=micro_batch, accumulation=accumulation))
    assert [len(part) for part in parts] == [micro_batch] * accumulation
    assert torch.cat(parts).equal(batch)


def test_structure_and_other_values_stay() -> None:
    tensor = torch.zeros(2)
    batch = {"pair": Pair(tensor, tensor), "list": [tensor, "name"], "none": None}
    first = next(split(batch, micro_batch=1, accumulation=2))
    assert first == {
        "pair": Pair(tensor[:1], tensor[:1]),
        "list": [tensor[:1], "name"],
        "none": None,
    }


def test_a_short_batch_is_refused_with_the_equation() -> None:
    with pytest.raises(ConfigError, match=r"got 3 samples, .* 2 x .* 2 = 4"):
        next(split(torch.zeros(3), micro_batch=2, accumulation=2))


def test_tensors_of_different_length_are_no_batch() -> None:
    with pytest.raises(ConfigError, match=r"\[2, 3\]"):
        sample_count((torch.zeros(2), torch.zeros(3)))


def test_first_samples_repeat_where_there_are_too_few() -> None:
    assert first_samples(torch.tensor([5]), 2).tolist() == [5, 5]


def test_every_tensor_is_mapped_in_order() -> None:
    seen: list[float] = []
    map_tensors([torch.tensor(1.0), {"b": torch.tensor(2.0)}], lambda t: seen.append(t.item()))
    assert seen == [1.0, 2.0]
