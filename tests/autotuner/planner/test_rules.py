from typing import Any

import numpy as np

from autoconf_launch.autotuner.planner import PLAN_RULES, count_layouts, grids, rule_mask
from autoconf_launch.autotuner.planner.mesh_grids import parts
from autoconf_launch.core import Architecture, Degrees, Offload
from autoconf_launch.tuning_spaces import named_model

QWEN: Architecture = named_model("qwen2-7b")  # 28 heads
PLAIN = Degrees(
    pipeline_parallel=(1,), context_parallel=(1,), recompute_layers=(), sequence_parallel=(False,)
)


def drop(world: int, degrees: Degrees) -> dict[str, int]:
    found: dict[str, int] = {}
    for grid in grids(world, 1, QWEN, degrees):
        rule_mask(grid, QWEN, 4096, found)
    return found


def test_a_rule_counts_all_cells_of_what_breaks_it() -> None:
    # tp=8: 1 micro-batch x 4 stages x 3 recomputations x 3 offloads
    assert drop(8, PLAIN)["tp_heads"] == 36


def test_only_the_first_broken_rule_counts() -> None:
    grid_cells = sum(count_layouts(grid) for grid in grids(8, 1, QWEN, PLAIN))
    assert sum(drop(8, PLAIN).values()) <= grid_cells


def test_zero_on_one_rank_is_what_it_is_without() -> None:
    one = Degrees(offload=(Offload.NONE,), recompute=PLAIN.recompute, recompute_layers=())
    assert drop(1, one) == {"sp_tp": 12, "zero_ranks": 9}


def test_offloaded_weights_need_stage_3_on_one_rank_too() -> None:
    away = Degrees(offload=(Offload.PARAMETERS,), recompute_layers=(), sequence_parallel=(False,))
    assert drop(1, away) == {"offload_zero": 9}


def test_pieces_hold_every_kept_cell_once() -> None:
    found: dict[str, int] = {}
    for grid in grids(12, 12, QWEN, Degrees()):
        kept = rule_mask(grid, QWEN, 4096, found)
        whole = int(np.broadcast_to(kept, grid.shape).sum())
        pieces: list[tuple[Any, Any]] = list(parts(grid, kept, 200))
        assert sum(int(np.broadcast_to(one, g.shape).sum()) for g, one in pieces) == whole


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in PLAN_RULES}) == len(PLAN_RULES)
