"""Arguments that ``AutoConfigurator`` refuses, each with a sentence that names it."""

from __future__ import annotations

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
