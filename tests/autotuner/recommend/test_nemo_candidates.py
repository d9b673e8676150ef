"""The points of ``grid=nemo``: counts that NVIDIA's tool has, and defects that ours has not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.recommend.families import Family
from autoconf_launch.autotuner.recommend.model_size import Budget, model_size_b
from autoconf_launch.autotuner.recommend.nemo_candidates import (
    NemoCandidate,
    SearchedModel,
    limited,
    minimum_nodes,
    minutes_limit,
    nemo1_name,
    nemo2_name,
    nemo_candidates,
)
from autoconf_launch.autotuner.recommend.nemo_grid import (
    Grid,
    GridOverrides,
    GridQuestion,
    nemo_grid,
)
from autoconf_launch.autotuner.recommend.nemo_recompute import (
    RecomputeQuestion,
    recompute_choices,
)
from autoconf_launch.tuning_spaces.recommend_tables import base_template, grid_rows
from autoconf_launch.tuning_spaces.search_configs import search_config

from .expected import cases, model

Point = tuple[int, ...]
COUNTS = {
    "gpt3/0.126b": 7,
    "gpt3/0.843b": 7,
    "gpt3/2b": 12,
    "gpt3/5b": 12,
    "gpt3/8b": 12,
    "gpt3/20b": 15,
    "gpt3/43b": 18,
    "gpt3/175b": 9,
    "gpt3/unknown_size": 16,
    "t5/0.22b": 49,
    "t5/2.8b": 105,
    "t5/11b": 98,
    "t5/23.5b": 100,
    "t5/41.2b": 175,
    "mt5/0.17b": 35,
    "mt5/11.9b": 56,
    "mt5/42.54b": 175,
    "bert/0.11b": 7,
    "bert/4b": 12,
    "bert/20b": 6,
    "llama/llama3_8b": 14,
    "llama/llama2_7b": 855,
    "llama/llama2_13b": 234,
    "llama/llama2_70b": 174,
    "mixtral/3b": 24,
    "mixtral/7b": 42,
    "qwen2/4b": 4,
    "qwen2/72b": 13,
}
"""Distinct points of NVIDIA's tool at 80 GB, of searches that none of its defects touches."""
COUNTS_40GB = {
    "gpt3/0.126b": 11,
    "gpt3/2b": 16,
    "gpt3/20b": 30,
    "gpt3/43b": 9,
    "gpt3/175b": 10,
    "gpt3/unknown_size": 18,
}


def candidates(name: str, memory_gb: int = 80) -> tuple[NemoCandidate, ...]:
    settings = search_config(name).get(("train_settings",))
    family = Family(name.partition("/")[0])
    gpus = settings["num_nodes"] * settings["gpus_per_node"]
    size_b = settings["model_size_in_b"] or recommended(family, gpus, settings)
    layers, heads, batch, method = shape(family, size_b, settings, memory_gb)
    question = GridQuestion(
        family=family,
        size_b=size_b,
        layers=layers,
        sequence=settings["seq_length"],
        gpu_memory_gb=memory_gb,
    )
    lists: dict[str, Any] = {
        ours: tuple(settings[f"{ours}_parallel_sizes"])
        for ours in ("context", "expert")
        if isinstance(settings[f"{ours}_parallel_sizes"], list)
    }
    grid = nemo_grid(grid_rows(1), question, GridOverrides(**lists))
    assert grid is not None
    searched = SearchedModel(
        family=family,
        size_b=size_b,
        layers=layers,
        heads=heads,
        global_batch=batch,
        gpus=gpus,
        method=method,
    )
    return nemo_candidates(grid, searched)


def recommended(family: Family, gpus: int, settings: dict[str, Any]) -> float:
    budget = Budget(
        gpus=gpus,
        tflops_per_gpu=settings["tflops_per_gpu"],
        tokens_b=settings["num_tokens_in_b"],
    )
    return model_size_b(family.name, budget, settings["max_training_days"])


def shape(
    family: Family, size_b: float, settings: dict[str, Any], memory_gb: int
) -> tuple[int, int, int, str | None]:
    custom = settings["custom_config"]
    if custom:
        found = base_template(custom.rpartition("/")[2].removesuffix(".yaml")).get(("model",))
        method = found["activations_checkpoint_method"]
        batch = found["global_batch_size"]
        return found["num_layers"], found["num_attention_heads"], batch, method
    chosen = model(family.name, size_b, settings["seq_length"], gpu_memory_gb=memory_gb)
    method = "block" if family.is_encoder_decoder else None
    return chosen.shape.layers, chosen.shape.heads, chosen.batch.global_batch, method


def searched(**changes: Any) -> SearchedModel:
    start: dict[str, Any] = {
        "family": Family("llama"),
        "size_b": 70,
        "layers": 80,
        "heads": 64,
        "global_batch": 2048,
        "gpus": 1024,
    }
    return SearchedModel(**{**start, **changes})


def grid(**changes: Any) -> Grid:
    start: dict[str, Any] = {
        "tensor": (1, 2, 4, 8),
        "pipeline": (1,),
        "micro_batch": (1,),
        "least_product": 16,
        "most_product": 64,
    }
    return Grid(**{**start, **changes})


def mesh(one: NemoCandidate) -> Point:
    return (one.tensor, one.pipeline, one.context, one.expert, one.micro_batch)


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_there_are_as_many_points_as_nemo_has(name: str, count: int) -> None:
    assert len(candidates(name)) == count


@pytest.mark.parametrize(("name", "count"), COUNTS_40GB.items())
def test_there_are_as_many_points_at_40_gb(name: str, count: int) -> None:
    assert len(candidates(name, 40)) == count


def test_the_order_is_nemo_s() -> None:
    found = [(one.tensor, one.pipeline, one.micro_batch) for one in candidates("gpt3/175b")]
    assert found == [(8, stages, micro) for micro in (1, 2, 4) for stages in (4, 8, 16)]


def test_context_parallelism_of_nemo2_s_own_test_is_kept() -> None:
    found = nemo_candidates(grid(context=(1, 2, 4)), searched())
    assert [mesh(one) for one in found] == [
        (4, 1, 4, 1, 1),
        (8, 1, 2, 1, 1),
        (8, 1, 4, 1, 1),
    ]


def test_expert_parallelism_of_nemo2_s_own_test_is_kept() -> None:
    wide = grid(tensor=(4,), expert=(1, 2), least_product=4, most_product=8)
    found = nemo_candidates(wide, searched(layers=56, heads=48, gpus=128, global_batch=128))
    assert [mesh(one) for one in found] == [(4, 1, 1, 1, 1), (4, 1, 1, 2, 1)]


def test_a_valid_point_with_context_ranks_is_not_dropped() -> None:
    """NVIDIA's second check leaves the context ranks out, and drops it."""
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
    assert all(gpus % one.product == 0 for one in found)


def test_stages_that_divide_both_stacks_of_t5_are_kept() -> None:
    """NVIDIA's second check counts one stack alone."""
    deep = grid(tensor=(8,), pipeline=(16,), least_product=1, most_product=128)
    t5 = searched(family=Family("t5"), layers=24, heads=64, gpus=128, global_batch=64)
    assert nemo_candidates(deep, t5)


@pytest.mark.parametrize("limit", [1, 4, 10])
def test_a_limit_never_cuts_the_largest_micro_batch(limit: int) -> None:
    found = candidates("gpt3/5b")
    largest = max(one.micro_batch for one in found)
    kept = limited(found, limit)
    assert len(kept) == limit
    assert kept[0].micro_batch == largest


@given(st.integers(0, 100))
def test_a_limit_keeps_points_of_the_grid_and_each_once(limit: int) -> None:
    found = candidates("gpt3/43b")
    kept = limited(found, limit)
    assert set(kept) <= set(found)
    assert len(set(kept)) == len(kept) == (min(limit, len(found)) if limit else len(found))


def test_a_micro_batch_above_the_layers_is_a_point_like_others() -> None:
    """NVIDIA's buckets have as many places as layers, and fail on it."""
    large = grid(micro_batch=(128,), tensor=(8,), least_product=1)
    assert nemo_candidates(large, searched(layers=8, gpus=64, global_batch=4096))


@pytest.mark.parametrize("case", cases("expected_act_ckpt_params.json"), ids=str)
def test_recomputation_is_tried_as_nemo_does(case: dict[str, Any]) -> None:
    found = recompute_choices(
        RecomputeQuestion(
            family=Family(case["family"]),
            size_b=case["model_size_in_b"],
            layers=case["num_layers"],
            pipeline=case["pp"],
            method=case["act_method"],
        )
    )
    assert found.virtual == case["virtual_pipelines"]
    assert list(found.layers) == case["act_ckpt_layers"]
    once = list(dict.fromkeys(case["num_micro_batches_partial_act_ckpt"]))
    assert list(found.micro_batches) == once
    assert list(found.layers_per_pipeline) == case["act_ckpt_layers_per_pipeline"]


def test_layers_that_a_user_gives_take_the_place_of_the_grid_s() -> None:
    block = searched(method="block", recompute_layers=(0, 1), size_b=8, layers=24, gpus=64)
    found = nemo_candidates(grid(tensor=(8,), least_product=1), block)
    assert [one.recompute_layers for one in found] == [0, 1]


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


def test_runs_are_named_as_nemo_does() -> None:
    one = NemoCandidate(tensor=2, pipeline=1, context=1, expert=1, micro_batch=4)
    gpt = searched(family=Family("gpt3"), size_b=5)
    start = "gpt3_5b_16nodes_tp_2_pp_1_cp_1_ep_1_mbs_4"
    assert nemo1_name(gpt, 16, one) == (
        f"{start}_act_ckpt_None_num_mbs_act_None_act_per_pipe_None"
    )
    assert nemo2_name(gpt, 16, one) == f"{start}_vp_None"


def test_the_fewest_nodes_hold_the_widest_point() -> None:
    assert minimum_nodes(candidates("gpt3/175b"), 8) == 16
