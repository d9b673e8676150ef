"""Candidates by the planner: where NeMo has no rule, or where they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch import AutoConfigurator, ConfigError


def configurator(**arguments: Any) -> AutoConfigurator:
    start: dict[str, Any] = {
        "model": "llama3-70b",
        "num_nodes": 8,
        "seq_length": 8192,
        "global_batch_size": 128,
        "path_to_logs": "logs",
        "grid": "nemo",
    }
    return AutoConfigurator(**{**start, **arguments})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seq_length": 65536, "model": "llama3-8b"}, "llama with 65536 tokens on 80 GB"),
        ({"model": "llama3.1-405b", "num_nodes": 64}, "llama of 405 B with 8192 tokens on 80 GB"),
        *(
            (
                {"model": "llama3-8b", "gpu_memory_gb": memory_gb},
                f"llama on {memory_gb} GB: its rules are for 40 and 80 GB; the candidates are "
                "the planner's.",
            )
            for memory_gb in (24, 141)
        ),
    ],
)
def test_what_no_rule_covers_has_the_planner_s_candidates(
    asked: dict[str, Any], said: str
) -> None:
    by_rule = configurator(**asked, limit_search_runs=5)
    by_planner = configurator(**asked, limit_search_runs=5, grid="planner")
    assert by_rule.generate_configs() == by_planner.generate_configs()
    assert sum(f"NeMo has no rule for {said}" in note for note in by_rule.notes) == 1


def test_a_recommended_batch_that_nothing_divides_is_rounded() -> None:
    work: dict[str, Any] = {"num_nodes": 5, "gpus_per_node": 7, "global_batch_size": None}
    found = configurator(
        model="gpt3_5b", **work, seq_length=2048, grid="planner", limit_search_runs=3
    )
    assert found.generate_configs()[0]["data"]["global_batch_size"] % 35 == 0
    assert any("does not divide over 35 GPUs" in note for note in found.notes)


def test_what_fits_nowhere_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="fits"):
        configurator(grid="planner", num_nodes=1, gpu_memory_gb=40, model="llama3.1-405b")


def test_the_planner_s_runs_are_named_as_nemo2_names_its_own() -> None:
    found = configurator(grid="planner", context_parallel_sizes="auto", limit_search_runs=0)
    configs = found.generate_configs()[1]
    for name, config in configs.items():
        strategy = config["trainer"]["strategy"]
        for short, key in (
            ("tp", "tensor_model_parallel_size"),
            ("pp", "pipeline_model_parallel_size"),
            ("cp", "context_parallel_size"),
            ("vp", "virtual_pipeline_model_parallel_size"),
        ):
            assert f"_{short}_{strategy[key]}" in name
        layers = config["model"]["config"].get("recompute_num_layers")
        assert (f"_act_ckpt_{layers}" in name) is (layers is not None)
        assert config["log"]["name"] == name
    models = [config["model"]["config"] for config in configs.values()]
    assert len({one.get("recompute_num_layers") for one in models}) > 2
    assert {one.get("recompute_granularity") for one in models} >= {"full"}


def test_what_is_given_is_not_searched() -> None:
    sizes = {"tensor_parallel_sizes": [8], "micro_batch_sizes": [1], "context_parallel_sizes": [2]}
    found = configurator(grid="planner", **sizes)
    for config in found.generate_configs()[1].values():
        strategy, data = config["trainer"]["strategy"], config["data"]
        assert strategy["tensor_model_parallel_size"] == 8
        assert strategy["context_parallel_size"] == 2
        assert (data["micro_batch_size"], data["global_batch_size"]) == (1, 128)


def test_context_expert_and_batch_are_searched_where_they_are_not_given() -> None:
    found = AutoConfigurator(
        model="mixtral-8x7b", num_nodes=16, seq_length=8192, path_to_logs="logs"
    )
    base, configs = found.generate_configs()
    strategies = [config["trainer"]["strategy"] for config in configs.values()]
    assert len({one["context_parallel_size"] for one in strategies}) > 1
    assert len({one["expert_model_parallel_size"] for one in strategies}) > 1
    usual = base["data"]["global_batch_size"]
    batches = {config["data"]["global_batch_size"] for config in configs.values()}
    assert batches == {usual // 2, usual, 2 * usual}
    said = f"Global batches searched: {usual // 2}, {usual}, {2 * usual}, compared by samples/s."
    assert any(note.startswith(said) for note in found.notes)


def test_a_training_with_another_batch_reads_as_many_tokens() -> None:
    found = AutoConfigurator(model="llama3-8b", num_nodes=4, seq_length=8192, path_to_logs="logs")
    steps = {}
    for run in found.trainings.values():
        batch, count = run.get(("data", "global_batch_size")), run.get(("trainer", "max_steps"))
        steps[batch] = count
    assert len(steps) == 3
    most = max(batch * count for batch, count in steps.items())
    assert all(most - batch * count <= 2 * batch for batch, count in steps.items())


@pytest.mark.parametrize("memory_gb", [80, 40])
def test_the_gpu_that_candidates_are_ranked_for_is_named_with_the_argument_that_chose_it(
    memory_gb: int,
) -> None:
    notes = configurator(grid="planner", gpu_memory_gb=memory_gb).notes
    gpu = f"A100-SXM-{memory_gb}GB, by gpu_memory_gb ({memory_gb})"
    said = "run() measures them on this machine's devices."
    assert f"Candidates are ranked for {gpu}; {said}" in notes
    assert not [note for note in notes if "cluster.gpu" in note]


def test_nemo_s_grid_keeps_nemo_s_search_and_says_so() -> None:
    found = AutoConfigurator(
        model="mixtral-8x7b", num_nodes=16, seq_length=4096, path_to_logs="logs", grid="nemo"
    )
    configs = found.generate_configs()[1].values()
    assert {one["trainer"]["strategy"]["context_parallel_size"] for one in configs} == {1}
    assert len({one["data"]["global_batch_size"] for one in configs}) == 1
    assert any("grid=nemo searches as NeMo does" in note for note in found.notes)
