"""The interface of ``AutoConfigurator``: NeMo 2.0's names, and arguments that are refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator, ConfigError

_GOOD: dict[str, Any] = {"recipe": {"model": "llama3-8b", "num_nodes": 1}, "path_to_logs": "logs"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path_to_logs": None}, "path_to_logs is None"),
        ({"mode": "pretran"}, "did you mean 'pretrain'"),
        ({"grid": "nemmo"}, "did you mean 'nemo'"),
        ({"tensor_parallel_sizes": 4}, "tensor_parallel_sizes is 4"),
        ({"tensor_parallel_sizes": []}, r"tensor_parallel_sizes is \[\]"),
        ({"micro_batch_sizes": [1, 0]}, r"micro_batch_sizes is \[1, 0\]"),
        ({"micro_batch_sizes": [1, True]}, "micro_batch_sizes"),
        ({"context_parallel_sizes": "all"}, "context_parallel_sizes is 'all'"),
        ({"max_steps_per_run": 9}, "max_steps_per_run is 9, .* at least 10"),
        ({"max_minutes_per_run": 0}, "max_minutes_per_run is 0"),
        ({"num_tokens_in_b": 0}, "num_tokens_in_b is 0"),
        ({"tflops_per_gpu": -1}, "tflops_per_gpu is -1"),
        ({"gpu_memory_gb": "80"}, "gpu_memory_gb is '80'"),
        ({"num_nodes": 0}, "num_nodes is 0"),
        ({"seq_length": 2.5}, "seq_length is 2.5"),
        ({"global_batch_size": "large"}, "global_batch_size is 'large'"),
        ({"min_model_parallel_size": 8, "max_model_parallel_size": 4}, "at most"),
        ({"data_paths": {1, 2}}, "data_paths is {1, 2}"),
        ({"tokenizer_path": 7}, "tokenizer_path is 7"),
        ({"model": "falcon-7b"}, "names no known family"),
        ({"model": "lama3-8b"}, "names no known family; did you mean 'llama3-8b'"),
        ({"model": None, "recipe": {"family": "gtp3"}}, "did you mean 'gpt3'"),
        ({"model": "llama3-70x"}, "Nothing says how large the model is"),
        ({"recipe": 7}, "recipe is 7"),
        ({"recipe": "no/such.yaml"}, "no/such.yaml cannot be read"),
        ({"recipe": {}}, "does not say which family"),
        ({"recipe": {"model": "llama3-8b", "trainer": {"num_nodes": "two"}}}, "is 'two'"),
        ({"mode": "finetune"}, "must be lists"),
        ({"mode": "finetune", "calculate_model_size": True}, "calculate_model_size"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AutoConfigurator(**{**_GOOD, **arguments})


_API: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "recommend" / "nemo2_api.json").read_text()
)
_GUIDE = ("model", "num_nodes", "seq_length", "data_paths", "tokenizer_path", "global_batch_size")


_SEARCHED = {
    "context_parallel_sizes": "auto",
    "expert_parallel_sizes": "auto",
    "vocab_size": None,
}
"""Values that follow from the model or are searched here; NeMo has constants."""


def test_the_constructor_begins_with_that_of_nemo2() -> None:
    known = _API["AutoConfigurator.__init__"]
    ours = list(inspect.signature(AutoConfigurator).parameters.values())
    assert [one.name for one in ours[: len(known)]] == [one["name"] for one in known]
    defaults = [
        list(one.default) if isinstance(one.default, tuple) else one.default for one in ours
    ]
    assert defaults[: len(known)] == [_SEARCHED.get(one["name"], one["default"]) for one in known]


def test_the_parameters_of_the_guide_follow() -> None:
    names = list(inspect.signature(AutoConfigurator).parameters)
    first = len(_API["AutoConfigurator.__init__"])
    assert tuple(names[first : first + len(_GUIDE)]) == _GUIDE


def test_get_results_has_the_parameters_of_nemo2() -> None:
    found = inspect.signature(AutoConfigurator.get_results).parameters
    defaults = {name: one.default for name, one in found.items() if name != "self"}
    assert defaults == _API["get_results"]
