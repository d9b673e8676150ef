from typing import Any

import numpy as np

from autoconf_launch.autotuner.planner import count_layouts, grids, rule_mask
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
