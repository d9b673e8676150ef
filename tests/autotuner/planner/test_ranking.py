import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.planner import family_name, grids
from autoconf_launch.autotuner.planner.layout_family import family_numbers, shown_families
from autoconf_launch.autotuner.planner.mesh_grids import LayoutGrid
from autoconf_launch.autotuner.planner.search import Ranking
from autoconf_launch.core import Degrees
from autoconf_launch.tuning_spaces import named_model

from ..builders import layouts


def any_grid() -> LayoutGrid:
    return next(iter(grids(4, 4, named_model("gpt2"), Degrees())))


GRID = any_grid()
CELLS = int(np.prod(GRID.shape))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 50))
def test_the_kept_ones_are_the_head_of_the_whole_ranking(
    seed: int, most: int, different: int
) -> None:
    generator = np.random.default_rng(seed)
    some, every = Ranking(most=most), Ranking(most=None)
    for _ in range(3):
        seconds = generator.integers(1, different, CELLS).astype(np.float64).reshape(GRID.shape)
        wanted = generator.random(GRID.shape) < 0.5
        some.add(GRID, wanted, seconds)
        every.add(GRID, wanted, seconds)
    few, all_rows = some.best(), every.best()
    assert len(some) == most
    for name in ("tensor_C", "pipeline_C", "zero_stage_C", "micro_batch_C", "offload_C"):
        assert getattr(few, name).tolist() == getattr(all_rows, name)[:most].tolist()


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 50))
def test_one_of_each_family_is_the_first_of_the_whole_ranking(
    seed: int, most: int, different: int
) -> None:
    generator = np.random.default_rng(seed)
    some, every = Ranking(most=most, one_each=True), Ranking(most=None)
    for _ in range(3):
        seconds = generator.integers(1, different, CELLS).astype(np.float64).reshape(GRID.shape)
        wanted = generator.random(GRID.shape) < 0.5
        some.add(GRID, wanted, seconds)
        every.add(GRID, wanted, seconds)
    all_rows = every.best()
    _, first = np.unique(family_numbers(all_rows), return_index=True)
    expected = all_rows.take(np.sort(first)[:most])
    assert list(some.best().layouts()) == list(expected.layouts())
    assert len(some) == len(expected)


def families(plain_s: float, context_s: float, sequence: int) -> list[str]:
    """Rows of pure data parallelism with and without context parallelism."""
    rows = layouts("dp=4", "dp=2 cp=2")
    kept = shown_families(rows, np.array([plain_s, context_s]), sequence)
    return [family_name(one) for one in rows.take(kept).layouts()]


def test_context_parallelism_that_gains_next_to_nothing_is_shown_once() -> None:
    assert families(1.0, 0.97, 512) == families(1.0, 0.995, 32768) == ["DP"]
    assert families(1.0, 0.9, 512) == ["CP"]
    assert families(1.0, 0.9, 32768) == ["DP", "CP"]


def test_layouts_of_one_family_have_one_name_and_unwanted_ones_are_not_kept() -> None:
    rows = GRID.rows(np.arange(CELLS))
    names = [family_name(layout) for layout in rows.layouts()]
    pairs = set(zip(family_numbers(rows).tolist(), names, strict=True))
    assert len(pairs) == len({number for number, _ in pairs}) == len({name for _, name in pairs})
    ranking = Ranking(most=3)
    ranking.add(GRID, np.zeros(GRID.shape, np.bool_), np.ones(GRID.shape))
    assert len(ranking) == 0
