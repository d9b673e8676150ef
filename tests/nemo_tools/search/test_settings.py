from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError, Degrees
from autoconf_launch.nemo.search import SearchSettings
from autoconf_launch.nemo.search.prepare import compose, read_settings

from .asked import train

LENGTHS = "search_config.inference_settings.benchmark"


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
    found = settings(*train(tensor_parallel_sizes="[2,1,2]")).train
    assert found.degrees.tensor_parallel == (2, 1)


def test_an_unknown_size_is_left_to_be_recommended() -> None:
    assert settings("search_config=gpt3/unknown_size").train.size_b is None


def test_empty_mounts_are_none() -> None:
    found = settings("container_mounts=[null,/a,/b:/c]")
    assert found.paths.mounts == ("/a", "/b:/c")


def test_nodes_of_a_search_are_those_of_the_training() -> None:
    assert settings("search_config=t5/unknown_size").train.search_nodes == 80


def test_bignlp_searches_on_the_fewest_nodes() -> None:
    assert settings("bignlp_hp_tool_path=/x").train.search_nodes == 0


def test_nodes_of_a_search_can_be_given() -> None:
    words = train(override_search_num_nodes=3)
    assert settings("bignlp_hp_tool_path=/x", *words).train.search_nodes == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (train(num_nodes=0), "num_nodes is 0, but must be a whole number of at least 1"),
        (train(num_nodes=2.5), "num_nodes is 2.5, but must be a whole number"),
        (train(max_minutes_per_run="soon"), "'soon', but must be a number above 0"),
        (train(tensor_parallel_sizes="[1,x]"), "must be auto, or a list of numbers"),
        (train(tensor_parallel_sizes="[]"), "must be auto, or a list of numbers"),
        (train(min_model_parallel_size=8, max_model_parallel_size=4), "at most max_model"),
        (("cluster_type=slurm",), "must be one of bcm, bcp, local"),
        (("grid=best",), "must be one of planner, nemo"),
        (("run_training_hp_search=maybe",), "must be True or False"),
        (train(num_tokens_in_b="null"), "num_tokens_in_b is not given"),
        (("search_config.inference_settings.run.time_limit=30",), "'30', but must be a time"),
        ((f"{LENGTHS}.input_len=auto",), "input_len is 'auto', but must be a number of at"),
        ((f"{LENGTHS}.output_len=[20,0]",), "output_len is [20, 0], but must be a number of at"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*words)
    assert said in str(caught.value)
