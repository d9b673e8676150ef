"""Objects as data, whatever they are made of."""

from __future__ import annotations

import math
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from autoconf_launch.nemo.configurator.recipe import to_data

_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Kind(str, Enum):
    FULL = "full"


class Loud:
    size = 3

    def __init__(self) -> None:
        self._state = object()
        self.rate = 0.5

    def weights(self) -> None:
        raise AssertionError("a method was called")


@given(_DATA)
def test_data_stays_as_it_is(value: Any) -> None:
    found = to_data(value, (), {})
    assert (found.value, found.left_out) == (value, ())


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Path("a/b"), "a/b"),
        (Kind.FULL, "full"),
        ((1, 2), [1, 2]),
        (range(2), [0, 1]),
        (
            OmegaConf.create({"a": [1, {"b": 2}], "c": "${a}"}),
            {"a": [1, {"b": 2}], "c": [1, {"b": 2}]},
        ),
        (SimpleNamespace(a=SimpleNamespace()), {"a": {}}),
        (Loud(), {"class": "Loud", "size": 3, "rate": 0.5}),
    ],
)
def test_values_of_other_kinds_are_data_too(value: object, data: object) -> None:
    assert to_data(value, (), {}).value == data


def test_the_class_of_a_known_section_is_not_said() -> None:
    assert to_data(Loud(), ("trainer",), {("trainer",): ()}).value == {"size": 3, "rate": 0.5}


@pytest.mark.parametrize("value", [max, math, Loud, timedelta(1), object(), {1, 2}, b"x"])
def test_what_is_no_data_is_left_out(value: object) -> None:
    found = to_data({"kept": 1, "other": value}, ("section",), {})
    assert (found.value, found.left_out) == ({"kept": 1}, ("section.other",))


def test_an_object_inside_itself_is_left_out() -> None:
    trainer = SimpleNamespace(steps=5)
    trainer.strategy = SimpleNamespace(trainer=trainer)
    found = to_data(trainer, ("trainer",), {})
    assert (found.value, found.left_out) == (
        {"steps": 5, "strategy": {}},
        ("trainer.strategy.trainer",),
    )


def test_one_object_in_two_places_is_written_twice() -> None:
    one = SimpleNamespace(a=1)
    assert to_data({"x": one, "y": one}, (), {}).value == {"x": {"a": 1}, "y": {"a": 1}}
