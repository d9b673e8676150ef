"""``run()`` on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch import AutoConfigurator, ConfigError
from autoconf_launch.nemo.configurator.training import for_ranks
from autoconf_launch.nemo.search import OurRanks, SearchFolder, local_request

from ..report.found import rows

_TINY = {
    "class": "LlamaModel",
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 128,
}


def configurator(logs: Path, **arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {
        "model": _TINY,
        "num_nodes": 1,
        "gpus_per_node": 1,
        "seq_length": 64,
        "vocab_size": 512,
        "global_batch_size": 8,
        "num_tokens_in_b": 0.01,
        "tensor_parallel_sizes": [1],
        "micro_batch_sizes": [2, 8],
        "max_steps_per_run": 10,
        "max_minutes_per_run": 2,
    }
    return AutoConfigurator(path_to_logs=logs, **{**start, **arguments})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_nodes": 2}, r"is for 2 nodes, .* get_results\(\) reads their logs"),
        ({"data_paths": [0.3, "no/such/data"]}, "data_paths names no/such/data"),
        ({"tokenizer_path": "no/tokenizer"}, "tokenizer_path is no/tokenizer"),
        (
            {
                "model": {**_TINY, "class": "GPTModel"},
                "tensor_parallel_sizes": [2],
                "gpus_per_node": 2,
            },
            "the model has no tensor plan, or TP does not divide",
        ),
    ],
)
def test_what_cannot_run_here_is_refused_before_anything_runs(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    found = configurator(tmp_path / "logs", **arguments)
    with pytest.raises(ConfigError, match=said):
        found.run()
    assert not (tmp_path / "logs").exists()


def test_runs_here_have_each_searched_batch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = configurator(tmp_path, global_batch_size=None, tensor_parallel_sizes=[1])
    base, candidates = found.generate_configs()
    assert float(next(iter(candidates)).split("_")[1].removesuffix("b")) > 0
    usual = base["data"]["global_batch_size"]
    training, points = found._candidates.training, found._candidates.points
    runs = OurRanks(for_ranks(training), SearchFolder(tmp_path), local_request(1))
    batches = {runs.candidate(one).layout.global_batch for one in points}
    assert batches == {usual // 2, usual, 2 * usual}


@pytest.mark.slow
def test_a_small_llama_is_searched_for_real(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = configurator(tmp_path)
    outcome = found.run()
    assert all(run.step_s for run in outcome.runs)
    results = found.get_results()
    assert len(rows(results.summary)) == 2
    assert configurator(tmp_path).get_results().text == results.text
    base, candidates = found.generate_configs()
    one = dict(list(candidates.items())[:1])
    assert len(rows(found.get_results(base, one, tmp_path / "some").summary)) == 1
    (best,) = (tmp_path / "final_results").glob("optimal_config_*.yaml")
    optimal = yaml.safe_load(best.read_text())
    assert optimal["model"]["config"]["num_layers"] == 2
    assert optimal["trainer"]["max_steps"] == base["trainer"]["max_steps"] > 10
