"""The points of ``grid=nemo``: counts that NVIDIA's tool has, and defects that ours has not."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, Grid, GridQuestion, recompute_choices
from autoconf_launch.core import Degrees
from autoconf_launch.nemo.candidate_grids import (
    NemoCandidate,
    limit_candidates,
    minimum_nodes,
    minutes_limit,
    nemo1_name,
    nemo2_name,
    nemo_candidates,
)

from ..builders import layout_of
from .expected import cases
from .searches import candidates, mesh


def search(**changes: Any) -> GridQuestion:
    start: dict[str, Any] = {
        "family": Family("llama"),
        "size_b": 70,
        "layers": 80,
        "heads": 64,
        "global_batch": 2048,
        "gpus": 1024,
        "sequence": 2048,
        "gpu_memory_gb": 80,
    }
    return GridQuestion(**{**start, **changes})


def grid(**changes: Any) -> Grid:
    start: dict[str, Any] = {
        "tensor_parallel": (1, 2, 4, 8),
        "pipeline_parallel": (1,),
        "micro_batch": (1,),
        "least_product": 16,
        "most_product": 64,
    }
    return Grid(degrees=Degrees(**{**start, **changes}))


def test_nemo_s_order_names_and_layers_of_the_user_are_kept() -> None:
    found = [
        (one.layout.tensor_parallel, one.layout.pipeline_parallel, one.layout.micro_batch)
        for one in candidates("gpt3/175b")
    ]
    assert found == [(8, stages, micro) for micro in (1, 2, 4) for stages in (4, 8, 16)]
    one = NemoCandidate(layout=layout_of("tp=2 micro=4"))
    gpt = search(family=Family("gpt3"), size_b=5)
    start = "gpt3_5b_16nodes_tp_2_pp_1_cp_1_ep_1_mbs_4"
    assert nemo1_name(gpt, 16, one) == (
        f"{start}_act_ckpt_None_num_mbs_act_None_act_per_pipe_None"
    )
    assert nemo2_name(gpt, 16, one) == f"{start}_vp_None"
    block = search(method="block", size_b=8, layers=24, gpus=64)
    asked = grid(tensor_parallel=(8,), least_product=1, recompute_layers=(0, 1))
    assert [one.recompute_layers for one in nemo_candidates(asked, block)] == [0, 1]


def test_context_and_expert_parallelism_of_nemo2_s_own_tests_are_kept() -> None:
    found = nemo_candidates(grid(context_parallel=(1, 2, 4)), search())
    assert [mesh(one) for one in found] == [
        (4, 1, 4, 1, 1),
        (8, 1, 2, 1, 1),
        (8, 1, 4, 1, 1),
    ]
    wide = grid(tensor_parallel=(4,), expert_parallel=(1, 2), least_product=4, most_product=8)
    found = nemo_candidates(wide, search(layers=56, heads=48, gpus=128, global_batch=128))
    assert [mesh(one) for one in found] == [(4, 1, 1, 1, 1), (4, 1, 1, 2, 1)]
    # NVIDIA's second check leaves the context ranks out, and drops it.
    points = [mesh(one) for one in candidates("llama/llama3_70b")]
    assert (2, 1, 4, 1, 8) in points


@pytest.mark.parametrize("name", ["llama/llama2_7b", "t5/11b", "chatglm/6b", "baichuan2/13b"])
def test_no_point_stands_twice(name: str) -> None:
    found = candidates(name)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("name", "gpus"), [("bert/100b", 1024), ("llama/llama2_13b", 16), ("qwen2/14b", 16)]
)
def test_no_point_needs_more_gpus_than_there_are_or_a_broken_number(name: str, gpus: int) -> None:
    found = candidates(name, 40)
    assert found
    assert all(gpus % prod(one.layout.mesh) == 0 for one in found)


def test_points_that_nemo_s_defects_drop_are_kept() -> None:
    # NVIDIA's second check counts only one stack.
    deep = grid(tensor_parallel=(8,), pipeline_parallel=(16,), least_product=1, most_product=128)
    t5 = search(family=Family("t5"), layers=24, heads=64, gpus=128, global_batch=64)
    assert nemo_candidates(deep, t5)
    # NVIDIA's buckets have as many places as layers, and fail on it.
    large = grid(micro_batch=(128,), tensor_parallel=(8,), least_product=1)
    assert nemo_candidates(large, search(layers=8, gpus=64, global_batch=4096))


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_a_limit_never_cuts_the_largest_micro_batch(limit: int) -> None:
    found = candidates("gpt3/5b")
    largest = max(one.layout.micro_batch for one in found)
    kept = limit_candidates(found, limit)
    assert len(kept) == limit
    assert kept[0].layout.micro_batch == largest


@given(st.integers(0, 100))
def test_a_limit_keeps_points_of_the_grid_and_each_once(limit: int) -> None:
    found = candidates("gpt3/43b")
    kept = limit_candidates(found, limit)
    assert set(kept) <= set(found)
    assert len(set(kept)) == len(kept) == (min(limit, len(found)) if limit else len(found))


@pytest.mark.parametrize("case", cases("expected_act_ckpt_params.json"), ids=str)
def test_recomputation_is_tried_as_nemo_does(case: dict[str, Any]) -> None:
    found = recompute_choices(
        Family(case["family"]),
        case["model_size_in_b"],
        case["num_layers"],
        pipeline=case["pp"],
        method=case["act_method"],
    )
    assert found.virtual == case["virtual_pipelines"]
    assert list(found.layers) == case["act_ckpt_layers"]
    once = list(dict.fromkeys(case["num_micro_batches_partial_act_ckpt"]))
    assert list(found.micro_batches) == once
    assert list(found.layers_per_pipeline) == case["act_ckpt_layers_per_pipeline"]


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (10, "0-0:10:00"),
        (35, "0-0:35:00"),
        (60, "0-1:0:00"),
        (90, "0-1:30:00"),
        (1500, "1-1:0:00"),
        (3600, "2-12:0:00"),
    ],
)
def test_a_day_has_1440_minutes(minutes: int, text: str) -> None:
    """NVIDIA's tool takes 3600 minutes for a day."""
    assert minutes_limit(minutes) == text


@pytest.mark.parametrize("gpus", [8, 24, 1024])
def test_the_fewest_nodes_hold_the_widest_point_whatever_a_training_has(gpus: int) -> None:
    wide = grid(pipeline_parallel=(1, 8, 16), most_product=128)
    assert minimum_nodes(wide, search(gpus=gpus), 8) == 16
