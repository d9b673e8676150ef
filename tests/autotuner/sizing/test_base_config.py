"""Base configurations field by field, against what NVIDIA's tool writes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import (
    RunPlan,
    base_config,
    nemo1_document,
    recipe_document,
    time_limit,
)
from autoconf_launch.autotuner.sizing.base_documents import max_time
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.tuning_spaces import base_template

from .expected import model


def plan(days: float, nodes: int, tokens_b: float, **more: Any) -> RunPlan:
    return RunPlan(days=days, nodes=nodes, gpus_per_node=8, tokens_b=tokens_b, **more)


def document(family: str, size_b: float, run: RunPlan) -> RawConfig:
    return nemo1_document(base_template(family), base_config(model(family, size_b), run))


def test_gpt_of_five_billion_is_as_nemo_writes_it() -> None:
    found = document("gpt3", 5.0, plan(6, 20, 300))
    assert found.get(("run",)) == {
        "name": "gpt3_5b",
        "results_dir": "${base_results_dir}/${.name}",
        "time_limit": "6-00:00:00",
        "dependency": "singleton",
    }
    trainer = found.get(("trainer",))
    assert (trainer["max_time"], trainer["max_steps"]) == ("5:23:30:00", 71525)
    assert (trainer["num_nodes"], trainer["precision"]) == (20, "bf16")
    sizes = found.get(("model",))
    assert (sizes["num_layers"], sizes["hidden_size"], sizes["num_attention_heads"]) == (
        24,
        4096,
        32,
    )
    assert (sizes["global_batch_size"], sizes["init_method_std"]) == (2048, 0.01)
    assert sizes["sequence_parallel"] is False
    assert sizes["optim"]["lr"] == 1.2e-4
    assert sizes["optim"]["sched"] == {
        "name": "CosineAnnealing",
        "warmup_steps": 107,
        "constant_steps": 11873,
        "min_lr": 1.2e-5,
    }


@pytest.mark.parametrize(
    ("family", "size_b", "tokens_b", "steps", "warmup", "constant", "std"),
    [
        ("gpt3", 0.126, 300, 572204, 858, 94985, 0.023094),
        ("gpt3", 20.0, 300, 71525, 107, 11873, 0.008165),
        ("gpt3", 40.0, 300, 71525, 107, 11873, 0.007071),
        ("gpt3", 175, 300, 71525, 107, 11873, 0.005774),
        ("bert", 0.11, 1800, 13732910, 20599, 2279663, 0.023094),
        ("bert", 4.0, 1800, 1716613, 2574, 284957, 0.012649),
        ("t5", 0.22, 1000, 953674, 1430, 158309, 0.015),
        ("t5", 2.8, 1000, 1017252, 1525, 168863, 0.015),
    ],
)
def test_steps_schedule_and_initialization_are_nemo_s(
    family: str, size_b: float, tokens_b: float, steps: int, warmup: int, constant: int, std: float
) -> None:
    base = base_config(model(family, size_b), plan(10, 16, tokens_b))
    assert (base.max_steps, base.warmup_steps, base.constant_steps) == (steps, warmup, constant)
    assert base.init_std == std


@pytest.mark.parametrize(
    ("days", "limit", "most"),
    [
        (6, "6-00:00:00", "5:23:30:00"),
        (6.5, "6-12:00:00", "6:11:30:00"),
        (25.75, "25-18:00:00", "25:17:30:00"),
        (90.25, "90-06:00:00", "90:05:30:00"),
    ],
)
def test_times_are_nemo_s(days: float, limit: str, most: str) -> None:
    assert (time_limit(days), max_time(days)) == (limit, most)


@given(st.floats(1e-4, 1000))
def test_no_time_is_negative_where_nemo_would_write_minus_one_day(days: float) -> None:
    assert not max_time(days).startswith("-")


@pytest.mark.parametrize(("size_b", "expected"), [(13.0, False), (20.0, True)])
def test_sequence_parallelism_is_for_models_above_13_billion(
    size_b: float, expected: bool
) -> None:
    assert (
        document("gpt3", size_b, plan(5, 20, 300)).get(("model", "sequence_parallel")) is expected
    )


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_both_stacks_of_t5_get_the_shape(stack: str) -> None:
    found = document("t5", 11, plan(45, 20, 1000)).get(("model", stack))
    assert (found["num_layers"], found["hidden_size"], found["ffn_hidden_size"]) == (
        24,
        4096,
        10240,
    )
    assert (found["num_attention_heads"], found["kv_channels"]) == (64, 64)


def test_t5_warms_up_runs_are_logged_and_too_few_tokens_refused() -> None:
    schedule = document("mt5", 3.2, plan(14, 20, 1000)).get(("model", "optim", "sched"))
    assert (schedule["warmup_ratio"], "warmup_steps" in schedule) == (0.01, False)
    found = document("bert", 4, plan(7, 16, 1800, wandb_project="mine")).get(("exp_manager",))
    assert found["create_wandb_logger"] is True
    assert found["wandb_logger_kwargs"] == {"project": "mine"}
    found = document("gpt3", 5, plan(5, 16, 300, index_folder="/r/data_index_files"))
    assert found.get(("model", "data", "index_mapping_dir")) == "/r/data_index_files"
    with pytest.raises(ConfigError, match="less than one step reads"):
        base_config(model("gpt3", 5), plan(5, 1, 0.001))


@pytest.mark.parametrize("family", ["gpt3", "t5", "mt5", "bert"])
def test_a_safe_loader_reads_what_was_written(family: str) -> None:
    found = document(family, 3, plan(6.5, 20, 300)).to_dict()
    assert yaml.safe_load(yaml.safe_dump(found)) == found


@pytest.mark.parametrize("family", ["llama", "mixtral", "mistral", "gemma", "nemotron", "falcon"])
def test_other_families_get_a_recipe(family: str) -> None:
    base = base_config(model(family, 7), plan(6, 16, 300))
    found = recipe_document(base).to_dict()
    assert found["model"]["config"]["num_layers"] == base.model.shape.layers
    assert found["data"]["global_batch_size"] == base.model.batch.global_batch
    assert found["trainer"]["max_steps"] == base.max_steps
    assert yaml.safe_load(yaml.safe_dump(found)) == found
