"""NVIDIA's tuned configurations are in our search, most of them among its first thirty."""

from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch.autotuner.recommend.nemo_grid import GridOverrides

from .conftest import imported

ranks = imported("nvidia_tuned_ranks")
TUNED = {one.name: one for one in ranks.tuned_configs()}
NOT_WITHIN = {
    "bert/20b",
    "gpt3/175b_16k",
    "gpt3/175b_32k",
    "gpt3/40b_improved",
    "gpt3/7b_improved",
    "mixtral/mixtral_8x22b",
    "qwen2/qwen2_14b",
    "qwen2/qwen2_72b",
}


@pytest.fixture(scope="module")
def ranked() -> dict[str, Any]:
    return {name: ranks.ranked(one, ranks.GPUS[0]) for name, one in TUNED.items()}


def test_the_file_has_all_of_them() -> None:
    assert len(TUNED) == 55
    assert sum(one.in_nemo1_grid for one in TUNED.values()) == 34


@pytest.mark.parametrize("name", ["gpt3/5b", "gpt3/175b", "llama/llama2_70b", "t5/11b", "bert/4b"])
def test_a_usual_one_is_within_the_first_thirty(name: str) -> None:
    assert ranks.ranked(TUNED[name], ranks.GPUS[0]).rank <= ranks.PROMISED


@pytest.mark.parametrize("name", TUNED)
def test_each_one_is_in_the_space(name: str) -> None:
    tensor, pipeline, context, expert, micro = TUNED[name].degrees
    lists = GridOverrides(
        tensor=(tensor,),
        pipeline=(pipeline,),
        context=(context,),
        expert=(expert,),
        micro_batch=(micro,),
    )
    grid = ranks.grid_of(TUNED[name], ranks.GPUS[0], lists)
    assert [one.degrees for one in grid.candidates] == [TUNED[name].degrees]


@pytest.mark.slow
def test_every_one_is_among_the_runs(ranked: dict[str, Any]) -> None:
    assert [name for name, one in ranked.items() if one.rank is None] == []


@pytest.mark.slow
def test_all_but_eight_are_within_the_first_thirty(ranked: dict[str, Any]) -> None:
    late = {name for name, one in ranked.items() if one.rank > ranks.PROMISED}
    assert late <= NOT_WITHIN


@pytest.mark.slow
def test_those_that_come_late_are_predicted_slow(ranked: dict[str, Any]) -> None:
    assert all(ranked[name].slower > 0.15 for name in NOT_WITHIN)


def test_every_known_miss_has_its_cause() -> None:
    assert set(ranks.CAUSES) >= NOT_WITHIN
