from __future__ import annotations

import pytest

pytest.importorskip("hydra", reason="searches are composed by hydra")

from autoconf_launch.core import ConfigError

from .asked import asked, train


def points(*overrides: str) -> list[tuple[int, int, int]]:
    found = asked(*overrides).found.candidates
    return [(one.point.tensor, one.point.pipeline, one.point.micro_batch) for one in found]


def test_nemo_s_grid_is_nvidia_s_list() -> None:
    assert points("search_config=gpt3/175b", "grid=nemo") == [
        (8, stages, micro) for micro in (1, 2, 4) for stages in (4, 8, 16)
    ]


def test_the_first_candidates_of_the_planner_are_run() -> None:
    few = points("search_config=gpt3/20b", *train(limit_search_runs=5))
    many = points("search_config=gpt3/20b", *train(limit_search_runs=40))
    assert few == many[:5]


def test_zero_runs_is_all_of_them() -> None:
    found = asked("search_config=gpt3/2b", *train(limit_search_runs=0)).found
    assert len(found.candidates) == found.found


def test_the_planner_s_are_ordered_by_what_they_promise() -> None:
    found = asked("search_config=gpt3/20b").found.candidates
    predicted = [one.step_s or 0.0 for one in found]
    assert predicted[0] < 1.05 * min(predicted) < predicted[-1]


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_every_candidate_divides_gpus_and_batch(grid: str) -> None:
    found = asked("search_config=bert/100b", f"grid={grid}")
    for one in found.found.candidates:
        assert one.layout.world_size == 1024
        assert one.layout.global_batch == 4096


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_each_candidate_has_a_name_of_its_own(grid: str) -> None:
    for words in (
        ("search_config=t5/11b",),
        ("search_config=t5/11b", *train(act_ckpt_layers="[0,12,24]")),
    ):
        names = [one.name for one in asked(*words, f"grid={grid}").found.candidates]
        assert len(set(names)) == len(names)


def test_sizes_that_are_given_are_searched_alone() -> None:
    words = train(tensor_parallel_sizes="[4]", micro_batch_sizes="[1,2]")
    assert {(t, m) for t, _, m in points("search_config=gpt3/20b", *words)} == {(4, 1), (4, 2)}


def test_a_size_that_was_asked_for_in_vain_is_said() -> None:
    words = train(tensor_parallel_sizes="[4,5]")
    assert any("5" in note for note in asked("search_config=gpt3/20b", *words).notes)


def test_bounds_of_model_parallelism_hold() -> None:
    words = train(min_model_parallel_size=8, max_model_parallel_size=8)
    found = asked("search_config=gpt3/20b", *words).found.candidates
    assert {one.point.product for one in found} == {8}


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_bignlp_s_mode_takes_the_fewest_nodes(grid: str) -> None:
    words = ("search_config=gpt3/20b", f"grid={grid}", "bignlp_hp_tool_path=/opt/hp")
    assert asked(*words).found.nodes == 1


def test_nodes_of_the_search_alone_are_overridden() -> None:
    words = ("search_config=gpt3/5b", "grid=nemo", *train(override_search_num_nodes=2))
    found = asked(*words)
    assert found.found.nodes == 2
    assert found.question.base.get(("trainer", "num_nodes")) == 16


def test_nodes_that_nothing_divides_are_one_sentence_with_others_that_do() -> None:
    words = train(num_nodes=3, tensor_parallel_sizes="[1]", pipeline_parallel_sizes="[1]")
    for grid in ("planner", "nemo"):
        with pytest.raises(ConfigError) as caught:
            asked(
                "search_config=gpt3/5b",
                f"grid={grid}",
                *words,
                *train(context_parallel_sizes="[1]"),
            )
        assert "3 x 8" in str(caught.value)
        assert "num_nodes=2" in str(caught.value)


def test_a_memory_that_no_rule_covers_goes_to_the_planner_and_says_so() -> None:
    found = asked("search_config=gpt3/5b", "grid=nemo", *train(gpu_memory_gb=141))
    said = " ".join(found.notes)
    assert "NeMo has no grid for gpt3 on 141 GB; the candidates are the planner's" in said
    assert "the planner counts on H200-SXM-141GB" in said


def test_a_sequence_that_no_rule_covers_is_said() -> None:
    found = asked("search_config=gpt3/5b", "grid=nemo", *train(seq_length=3000))
    assert any("NeMo has no rule for gpt3 of 5 B with 3000 tokens" in one for one in found.notes)


def test_less_memory_leaves_fewer_candidates() -> None:
    words = ("search_config=gpt3/20b", "cluster.gpu=A100-SXM-80GB")
    most = asked(*words).found.found
    assert asked(*words, *train(gpu_memory_gb=20)).found.found < most


def test_an_unknown_gpu_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="H100-SXM-80GB"):
        asked("search_config=gpt3/5b", "cluster.gpu=H100-SXN-80GB")


def test_the_planner_covers_what_nvidia_ships_tuned_and_its_grid_misses() -> None:
    assert (4, 8) in {(t, p) for t, p, _ in points("search_config=gpt3/175b")}
