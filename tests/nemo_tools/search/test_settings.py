from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import Degrees
from autoconf_launch.nemo.search import SearchSettings
from autoconf_launch.nemo.search.prepare import compose, read_settings

from .asked import train


def settings(*overrides: str) -> SearchSettings:
    found = read_settings(compose(overrides))
    assert found.scope.grid is found.grid
    return found


@pytest.mark.parametrize("word", ["auto", "null"])
def test_null_equals_auto(word: str) -> None:
    words = train(tensor_parallel_sizes=word, min_model_parallel_size=word, act_ckpt_layers=word)
    found = settings(*words).train
    assert found.degrees == Degrees()


def test_lists_are_kept_in_order_and_once() -> None:
    lists = train(tensor_parallel_sizes="[2,1,2]")
    found = settings("search_config=gpt3/unknown_size", *lists, "container_mounts=[null,/a,/b:/c]")
    assert found.train.size_b is None
    assert found.train.degrees.tensor_parallel == (2, 1)
    assert found.paths.mounts == ("/a", "/b:/c")


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (("search_config=t5/unknown_size",), 80),
        (("bignlp_hp_tool_path=/x",), 0),
        (("bignlp_hp_tool_path=/x", *train(override_search_num_nodes=3)), 3),
    ],
)
def test_nodes_of_a_search_are_the_trainings_or_the_fewest(
    words: tuple[str, ...], nodes: int
) -> None:
    assert settings(*words).train.search_nodes == nodes
