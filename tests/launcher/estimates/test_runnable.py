from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.core import (
    Layout,
    Offload,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)
from autoconf_launch.launcher.estimates.training_choice import is_runnable
from autoconf_launch.tuning_spaces.models import named_model

WORKLOAD = Workload(model=named_model("gpt2"), sequence_length=1024)


def test_data_parallelism_zero_and_recomputation_run_here() -> None:
    layout = Layout(
        data_parallel=8, zero_stage=3, micro_batch=2, accumulation=4, recompute=Recompute.FULL
    )
    assert is_runnable(layout, -1, WORKLOAD)


@pytest.mark.parametrize(
    "other",
    [
        {"pipeline_parallel": 2},
        {"context_parallel": 2},
        {"expert_parallel": 2},
        {"offload": Offload.OPTIMIZER},
    ],
)
def test_other_kinds_of_parallelism_are_planned_only(other: dict[str, Any]) -> None:
    assert not is_runnable(Layout(**other), -1, WORKLOAD)


def test_tensor_parallelism_runs_here_where_the_model_has_a_plan() -> None:
    layout = Layout(data_parallel=4, tensor_parallel=2, sequence_parallel=True)
    llama = replace(WORKLOAD, model=named_model("llama3.1-8b"))
    assert is_runnable(layout, -1, llama)
    assert not is_runnable(layout, -1, WORKLOAD)


def test_more_tensor_ranks_than_key_value_heads_are_planned_only() -> None:
    llama = replace(WORKLOAD, model=named_model("llama3.1-8b"))
    assert not is_runnable(Layout(tensor_parallel=16), -1, llama)


def test_recomputing_some_layers_is_planned_only() -> None:
    assert not is_runnable(Layout(recompute=Recompute.FULL), 2, WORKLOAD)


@pytest.mark.parametrize(
    "other",
    [{"precision": Precision.FP8}, {"optimizer": Optimizer.from_name("muon")}, {"lora_rank": 8}],
)
def test_what_our_runtime_cannot_train_is_planned_only(other: dict[str, Any]) -> None:
    assert not is_runnable(Layout(), -1, replace(WORKLOAD, **other))
