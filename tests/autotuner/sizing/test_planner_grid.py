"""``grid=planner``: the planner's own space for a search, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import pytest

from autoconf_launch.autotuner.planner import Limits, Question, plan
from autoconf_launch.autotuner.sizing import are_ends_counted
from autoconf_launch.core import Degrees, Layout, Recompute
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.nemo.candidate_grids import PlannerGrid, PlannerGridQuestion, planner_grid
from autoconf_launch.tuning_spaces import machine

from .expected import model

MEMORY_BYTES = 80 * 2**30


def question(
    family: str = "gpt3", size_b: float = 5, nodes: int = 2, **changes: Any
) -> PlannerGridQuestion:
    chosen = model(family, size_b)
    batch = changes.pop("global_batch", 64)
    return PlannerGridQuestion(
        training=usual_training(
            chosen.architecture, chosen.asked.sequence, machine("A100-SXM-80GB")
        ),
        nodes=nodes,
        global_batch=batch,
        memory_bytes=MEMORY_BYTES,
        **changes,
    )


def has_even_ends(layout: Layout, asked: PlannerGridQuestion) -> bool:
    return are_ends_counted(layout, asked.training.workload.architecture)


def list_(**lists: tuple[int, ...] | int) -> PlannerGrid:
    values: Any = lists
    return planner_grid(question(degrees=Degrees(**values)))


def reasons(grid: PlannerGrid) -> dict[tuple[tuple[str, int], ...], str]:
    return {one.values: one.rule for one in grid.rejected}


@pytest.mark.parametrize("family", ["gpt3", "t5", "bert", "mixtral"])
def test_each_run_stands_once_and_obeys_the_equations(family: str) -> None:
    asked = question(family, 2, global_batch=48)
    found = planner_grid(asked).candidates
    assert len({one.degrees for one in found}) == len(found) > 10
    for one in found:
        assert one.layout.world_size == 16
        assert one.layout.global_batch == 48


def test_the_first_run_is_what_plan_finds_if_it_surely_fits() -> None:
    asked = question()
    first = planner_grid(asked).candidates[0]
    workload = replace(asked.training.workload, global_batch=64)
    whole = Question(
        training=replace(asked.training, workload=workload),
        world=16,
        limits=Limits(memory_bytes=MEMORY_BYTES),
        most=1,
    )
    assert first.step_s <= 1.1 * plan(whole).best[0].step_s
    assert planner_grid(question()) == planner_grid(question())


def test_stages_are_equal_perhaps_with_ends_and_tensor_ranks_stand_in_nodes() -> None:
    asked = question(nodes=3, global_batch=96)
    for one in planner_grid(asked).candidates:
        stages = one.layout.pipeline_parallel * one.layout.virtual_pipeline
        assert (26 if has_even_ends(one.layout, asked) else 24) % stages == 0
        assert 8 % one.layout.tensor_parallel == 0 or one.layout.tensor_parallel % 8 == 0
    # Llama 3.1 405B has 126 layers, and was trained on 16 stages.
    asked = question(nodes=2, global_batch=64)
    shallow = replace(asked.training.workload.architecture, layers=14)
    training = usual_training(shallow, 2048, machine("A100-SXM-80GB"))
    asked = replace(asked, training=training)
    found = [one.layout for one in planner_grid(asked).candidates]
    counted = {one.pipeline_parallel: has_even_ends(one, asked) for one in found}
    assert counted[8] is counted[4] is True
    assert counted[1] is counted[2] is False


def test_two_stacks_have_half_of_the_stages_each() -> None:
    found = [one.layout for one in planner_grid(question("t5", 3)).candidates]
    stages = {layout.pipeline_parallel for layout in found}
    assert stages >= {1, 2, 4}
    assert not any(number % 2 for number in stages - {1})
    assert {layout.virtual_pipeline for layout in found} == {1}


@pytest.mark.parametrize("family", ["t5", "bert"])
def test_context_parallelism_is_for_decoders(family: str) -> None:
    found = planner_grid(question(family, 2)).candidates
    assert {one.layout.context_parallel for one in found} == {1}


def test_samples_are_cut_only_where_ranks_have_none_of_their_own() -> None:
    """Cutting them is never faster: the same tokens on each rank, and keys travel besides."""
    asked = question(nodes=1, global_batch=16)
    free = {one.degrees: one.step_s for one in planner_grid(asked).candidates}
    degrees = Degrees(context_parallel=(1, 2, 4, 8), micro_batch=(1, 2, 4, 8, 16))
    every = planner_grid(replace(asked, degrees=degrees)).candidates
    cut = [one for one in every if one.degrees not in free]
    assert cut
    for one in cut:
        tensor, pipeline, context, expert, micro = one.degrees
        common = gcd(context, micro)
        assert common > 1
        assert free[tensor, pipeline, context // common, expert, micro // common] <= one.step_s


def test_a_users_lists_and_bounds_of_the_product_hold() -> None:
    found = list_(
        tensor_parallel=(2, 4), pipeline_parallel=(1, 2), micro_batch=(1, 2), context_parallel=(1,)
    )
    assert found.rejected == ()
    degrees = {one.degrees for one in found.candidates}
    assert degrees == {(t, p, 1, 1, m) for t in (2, 4) for p in (1, 2) for m in (1, 2)}
    for one in list_(least_product=4, most_product=8).candidates:
        tensor, pipeline, context, expert, _ = one.degrees
        assert 4 <= tensor * pipeline * context * expert <= 8


def test_listed_recomputation_is_a_run_each() -> None:
    grid = list_(
        tensor_parallel=(1,),
        pipeline_parallel=(1, 2),
        micro_batch=(1,),
        recompute_layers=(0, 6, 12),
    )
    runs = {
        (one.layout.pipeline_parallel, one.layout.recompute, one.recompute_layers)
        for one in grid.candidates
    }
    none, full = Recompute.NONE, Recompute.FULL
    assert {run[0] for run in runs} == {1, 2}
    assert {(1, none, 0), (1, full, 6), (1, full, 12), (2, full, 6)} <= runs
    assert (2, full, 12) in runs  # 12 layers are all of a stage


@pytest.mark.parametrize(
    ("lists", "values", "rule"),
    [
        ({"tensor_parallel": (1, 3)}, (("tp", 3),), "gpus"),
        ({"tensor_parallel": (1, 64)}, (("tp", 64),), "gpus"),
        ({"pipeline_parallel": (1, 16)}, (("pp", 16),), "pp_stages"),
        ({"micro_batch": (1, 5)}, (("micro-batch", 5),), "global_batch"),
        ({"expert_parallel": (1, 2)}, (("ep", 2),), "ep_experts"),
        ({"recompute_layers": (0, 99)}, (("recompute-layers", 99),), "recompute_layers"),
        ({"tensor_parallel": (8,), "most_product": 4}, (("tp", 8),), "max_model_parallel"),
        (
            {"tensor_parallel": (1, 8), "pipeline_parallel": (1, 2), "context_parallel": (1, 2)},
            (("tp", 8), ("pp", 2), ("cp", 2)),
            "gpus",
        ),
    ],
)
def test_what_was_asked_in_vain_has_its_rule(
    lists: dict[str, Any], values: tuple[tuple[str, int], ...], rule: str
) -> None:
    grid = list_(**lists)
    assert reasons(grid)[values] == rule


def test_what_does_not_fit_or_divide_is_said_with_its_values() -> None:
    asked = question(size_b=20, nodes=1, global_batch=8, degrees=Degrees(tensor_parallel=(1,)))
    grid = planner_grid(replace(asked, memory_bytes=MEMORY_BYTES / 4))
    assert grid.candidates == ()
    assert grid.rejected[0].rule == "memory"
    assert "needs more than 20 GiB" in grid.rejected[0].why
    grid = list_(tensor_parallel=(1, 3), expert_parallel=(2,))
    sentences = [one.why for one in grid.rejected]
    assert "tp=3 does not divide 16 GPUs" in sentences
    assert any("a model without experts" in sentence for sentence in sentences)
