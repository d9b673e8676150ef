import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    count_layouts,
    grids,
    rule_mask,
    trainer_rules,
)
from autoconf_launch.autotuner.planner.mesh_grids import meshes, parts
from autoconf_launch.core import Architecture, Degrees, Offload
from autoconf_launch.tuning_spaces import named_model, trainer

GPT = named_model("gpt2")
LLAMA = named_model("llama3.1-405b")
MIXTRAL = named_model("mixtral-8x7b")


@given(st.integers(1, 24), st.integers(1, 24))
def test_every_mesh_of_a_world_is_there_once(world: int, batch: int) -> None:
    found = [
        (group.data, int(tensor), int(pipeline), int(context))
        for group in meshes(world, batch, GPT, Degrees(virtual_pipeline=(1,)))
        for tensor, pipeline, context in zip(
            group.tensor_M, group.pipeline_M, group.context_M, strict=True
        )
    ]
    expected = {
        mesh
        for mesh in itertools.product([n for n in range(1, world + 1) if world % n == 0], repeat=4)
        if mesh[0] * mesh[1] * mesh[2] * mesh[3] == world and batch % mesh[0] == 0
    }
    assert set(found) == expected
    assert len(found) == len(expected)


def test_degrees_divide_layers_and_experts() -> None:
    degrees = Degrees(tensor_parallel=(1,), context_parallel=(1,), pipeline_parallel=(2,))
    (group,) = meshes(2, 1, LLAMA, degrees)
    # 126 / 2 = 63 and 128 / 2 = 64
    assert group.virtual_M.tolist() == [1, 2, 3, 4, 7, 8, 9, 16, 21, 32, 63, 64]
    groups = meshes(8, 8, LLAMA, Degrees(pipeline_parallel=(1,)))
    assert all((group.virtual_M == 1).all() for group in groups)
    degrees = Degrees(tensor_parallel=(1,), context_parallel=(1,), pipeline_parallel=(1,))
    (group,) = meshes(8, 8, MIXTRAL, degrees)
    assert group.expert_M.tolist() == [1, 2, 4, 8]


QWEN: Architecture = named_model("qwen2-7b")  # 28 heads
PLAIN = Degrees(
    pipeline_parallel=(1,), context_parallel=(1,), recompute_layers=(), sequence_parallel=(False,)
)


def drop(world: int, degrees: Degrees) -> dict[str, int]:
    found: dict[str, int] = {}
    for grid in grids(world, 1, QWEN, degrees):
        rule_mask(grid, QWEN, 4096, found)
    return found


def test_a_rule_counts_the_cells_that_break_it_first() -> None:
    # tp=8: 1 micro-batch x 4 stages x 3 recomputations x 3 offloads
    assert drop(8, PLAIN)["tp_heads"] == 36
    grid_cells = sum(count_layouts(grid) for grid in grids(8, 1, QWEN, PLAIN))
    assert sum(drop(8, PLAIN).values()) <= grid_cells
    one = Degrees(offload=(Offload.NONE,), recompute=PLAIN.recompute, recompute_layers=())
    assert drop(1, one) == {"sp_tp": 12, "zero_ranks": 9}
    away = Degrees(offload=(Offload.PARAMETERS,), recompute_layers=(), sequence_parallel=(False,))
    assert drop(1, away) == {"offload_zero": 9}


def test_pieces_hold_every_kept_cell_once() -> None:
    found: dict[str, int] = {}
    for grid in grids(12, 12, QWEN, Degrees()):
        kept = rule_mask(grid, QWEN, 4096, found)
        whole = int(np.broadcast_to(kept, grid.shape).sum())
        pieces: list[tuple[Any, Any]] = list(parts(grid, kept, 200))
        assert sum(int(np.broadcast_to(one, g.shape).sum()) for g, one in pieces) == whole


@pytest.mark.parametrize(
    ("layers", "pipeline", "virtual"),
    [
        *((61, *published) for published in ((16, 2), (16, 1), (8, 2), (4, 4))),
        *((92, *published) for published in ((8, 2), (8, 3), (16, 2))),
        (126, 16, 8),
    ],
)
def test_published_uneven_layouts_are_in_the_space_of_trainers_that_lay_out_layers(
    layers: int, pipeline: int, virtual: int
) -> None:
    """DeepSeek-V3 by Megatron-LM's guide and Megatron-Bridge's recipe, GLM-4.5, Llama 3 405B."""
    model = replace(LLAMA, layers=layers)
    degrees = Degrees(
        tensor_parallel=(1,),
        context_parallel=(1,),
        pipeline_parallel=(pipeline,),
        virtual_pipeline=(virtual,),
    )
    (group,) = meshes(pipeline, 64, model, degrees)
    assert group.virtual_M.tolist() == [virtual]
    even = layers % (pipeline * virtual) == 0 or (layers + 2) % (pipeline * virtual) == 0
    for name, has_layouts in (("megatron", True), ("torchtitan", True), ("megatron-2021", False)):
        rules = (*PLAN_RULES, *trainer_rules(trainer(name).abilities))
        dropped: dict[str, int] = {}
        (grid,) = grids(pipeline, 64, model, replace(degrees, micro_batch=(1,)))
        kept = rule_mask(grid, model, 4096, dropped, rules)
        assert kept.any() == (has_layouts or even or virtual == 1)
