"""The longest batch is kept whole, whatever a script does with its batches."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autoconf_launch.runtime.soak import Longest

Pair = namedtuple("Pair", ("text", "target"))


@dataclass
class Graph:
    """A batch as libraries make their own."""

    nodes: Tensor
    name: str = "graph"


def batch(length: int) -> Tensor:
    return torch.arange(2.0 * length).reshape(2, length)


SHAPES: dict[str, Any] = {
    "tensor": batch,
    "tuple": lambda length: (batch(length), "name"),
    "named tuple": lambda length: Pair(batch(length), batch(1)),
    "list": lambda length: [batch(length), [batch(2)]],
    "dict": lambda length: {"text": batch(length), "name": "x"},
    "a library's dict": lambda length: UserDict(text=batch(length)),
    "object": lambda length: Graph(batch(length)),
}


def longest_of(*batches: Any) -> Longest:
    longest = Longest()
    for one in batches:
        longest.see(one)
    return longest


@given(st.lists(st.integers(1, 50), min_size=1))
def test_the_longest_of_all_is_given(lengths: list[int]) -> None:
    given_: Tensor = longest_of(*map(batch, lengths)).instead_of(batch(1))
    assert given_.shape[1] == max(lengths)


@pytest.mark.parametrize("kind", SHAPES)
def test_every_kind_of_batch_keeps_its_kind_and_its_values(kind: str) -> None:
    make = SHAPES[kind]
    found = longest_of(make(9)).instead_of(make(3))
    assert type(found) is type(make(9))
    assert repr(found) == repr(make(9))


def test_a_longer_batch_is_handed_on_as_it_is() -> None:
    longer = {"text": batch(12)}
    assert longest_of({"text": batch(9)}).instead_of(longer) is longer


def test_a_batch_that_was_taken_apart_is_still_whole() -> None:
    taken = {"text": batch(9), "target": batch(9)}
    longest = longest_of(taken)
    taken.pop("target").zero_()
    found = longest.instead_of({"text": batch(1)})
    found.pop("text").zero_()
    again = longest.instead_of({"text": batch(1)})
    assert again["text"].equal(batch(9))
    assert again["target"].equal(batch(9))


def test_the_parts_of_a_batch_are_counted_together() -> None:
    longest = longest_of((batch(3), batch(9)))
    assert len(longest.instead_of({"text": batch(11)})) == 2


@pytest.mark.parametrize("odd", [None, "text", ["text"], {"text": [1, 2]}])
def test_what_holds_no_tensors_has_no_length(odd: object) -> None:
    longest = longest_of(odd)
    assert (longest.instead_of(odd), longest.is_known) == (odd, False)


def test_what_cannot_be_copied_is_not_kept() -> None:
    class Stubborn(Graph):
        def __copy__(self) -> Graph:
            raise TypeError("not me")

    short = Stubborn(batch(1))
    longest = longest_of(Stubborn(batch(9)))
    assert (longest.instead_of(short), longest.is_known) == (short, False)
