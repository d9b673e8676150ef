from __future__ import annotations

import math

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search import whose_grid

from .asked import SMALL, ask_for, train


def points(*overrides: str) -> list[tuple[int, int, int]]:
    found = ask_for(*overrides).found.candidates
    return [
        (one.layout.tensor_parallel, one.layout.pipeline_parallel, one.layout.micro_batch)
        for one in found
    ]


def test_nemo_s_grid_is_nvidia_s_list() -> None:
    assert points("search_config=gpt3/175b", "grid=nemo") == [
        (8, stages, micro) for micro in (1, 2, 4) for stages in (4, 8, 16)
    ]


def test_the_first_candidates_of_the_planner_are_run() -> None:
    few = points("search_config=gpt3/20b", *train(limit_search_runs=5))
    many = points("search_config=gpt3/20b", *train(limit_search_runs=40))
    assert few == many[:5]


def test_zero_runs_is_all_of_them() -> None:
    found = ask_for("search_config=gpt3/2b", *train(limit_search_runs=0)).found
    assert len(found.candidates) == found.found


def test_the_planner_s_are_ordered_by_what_they_promise() -> None:
    found = ask_for("search_config=gpt3/20b").found.candidates
    predicted = [one.step_s or 0.0 for one in found]
    assert predicted[0] < 1.05 * min(predicted) < predicted[-1]


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_every_candidate_divides_gpus_and_batch(grid: str) -> None:
    found = ask_for("search_config=bert/100b", f"grid={grid}")
    for one in found.found.candidates:
        assert one.layout.world_size == 1024
        assert one.layout.global_batch == 4096


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_each_candidate_has_a_name_of_its_own(grid: str) -> None:
    for words in (
        ("search_config=t5/11b",),
        ("search_config=t5/11b", *train(act_ckpt_layers="[0,12,24]")),
    ):
        names = [one.name for one in ask_for(*words, f"grid={grid}").found.candidates]
        assert len(set(names)) == len(names)


def test_sizes_that_are_given_are_searched_alone() -> None:
    words = train(tensor_parallel_sizes="[4]", micro_batch_sizes="[1,2]")
    assert {(t, m) for t, _, m in points("search_config=gpt3/20b", *words)} == {(4, 1), (4, 2)}


def test_a_size_that_was_asked_for_in_vain_is_said() -> None:
    words = train(tensor_parallel_sizes="[4,5]")
    assert any("5" in note for note in ask_for("search_config=gpt3/20b", *words).notes)


def test_bounds_of_model_parallelism_hold() -> None:
    words = train(min_model_parallel_size=8, max_model_parallel_size=8)
    found = ask_for("search_config=gpt3/20b", *words).found.candidates
    assert {math.prod(one.layout.mesh) for one in found} == {8}


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_bignlp_s_mode_takes_the_fewest_nodes(grid: str) -> None:
    words = ("search_config=gpt3/20b", f"grid={grid}", "bignlp_hp_tool_path=/opt/hp")
    assert ask_for(*words).found.nodes == 1


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_bignlp_s_own_example_has_twenty_nodes_and_is_searched_on_one(grid: str) -> None:
    words = ("search_config=gpt3/5b", f"grid={grid}", "bignlp_hp_tool_path=/opt/hp")
    found = ask_for(*words, *train(num_nodes=20))
    assert found.found.nodes == 1
    assert found.question.base.get(("trainer", "num_nodes")) == 20


@pytest.mark.parametrize("nodes", [4, 20, 128])
def test_bignlp_s_mode_has_the_same_candidates_for_any_training(nodes: int) -> None:
    words = ("search_config=gpt3/175b", "grid=nemo", "bignlp_hp_tool_path=/opt/hp")
    found = ask_for(*words, *train(num_nodes=nodes)).found
    assert (found.nodes, found.found) == (16, 9)


def test_bignlp_s_mode_takes_more_nodes_than_a_training_has_where_it_must() -> None:
    words = ("search_config=gpt3/175b", "bignlp_hp_tool_path=/opt/hp", *train(num_nodes=1))
    assert ask_for(*words).found.nodes > 1


def test_nodes_of_the_search_alone_are_overridden() -> None:
    words = ("search_config=gpt3/5b", "grid=nemo", *train(override_search_num_nodes=2))
    found = ask_for(*words)
    assert found.found.nodes == 2
    assert found.question.base.get(("trainer", "num_nodes")) == 16


def test_nodes_that_nothing_divides_are_one_sentence_with_others_that_do() -> None:
    words = train(num_nodes=3, tensor_parallel_sizes="[1]", pipeline_parallel_sizes="[1]")
    for grid in ("planner", "nemo"):
        with pytest.raises(ConfigError) as caught:
            ask_for(
                "search_config=gpt3/5b",
                f"grid={grid}",
                *words,
                *train(context_parallel_sizes="[1]"),
            )
        assert "3 x 8" in str(caught.value)
        assert "num_nodes=2" in str(caught.value)


def test_a_memory_that_no_rule_covers_goes_to_the_planner_and_says_so() -> None:
    found = ask_for("search_config=gpt3/5b", "grid=nemo", *train(gpu_memory_gb=141))
    said = " ".join(found.notes)
    assert "NeMo has no rule for gpt3 on 141 GB: its rules are for 40 and 80 GB" in said
    assert "The planner assumes H200-SXM-141GB, by gpu_memory_gb (141); cluster.gpu names " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search_config=gpt3/5b", *train(seq_length=3000)), "gpt3 with 3000 tokens on 80 GB"),
        (("search_config=t5/11b", *train(gpu_memory_gb=48)), "t5 on 48 GB"),
        (("search_config=bert/4b", *train(gpu_memory_gb=48)), "bert on 48 GB"),
        (
            ("search_config=mixtral/7b", *train(model_size_in_b=60, seq_length=8192)),
            "mixtral of 60 B with 8192 tokens on 80 GB",
        ),
        (("search_config=gemma/unknown_size", *train(seq_length=1000)), "gemma with 1000 tokens"),
    ],
)
def test_what_no_rule_covers_has_the_planner_s_candidates(
    words: tuple[str, ...], said: str
) -> None:
    by_rule, by_planner = (
        ask_for(*words, "grid=nemo"),
        ask_for(*words, "grid=planner"),
    )
    assert by_rule.found.candidates == by_planner.found.candidates
    (note,) = [one for one in by_rule.notes if "NeMo has no rule" in one]
    assert said in note
    assert note.endswith("the candidates are the planner's.")
    assert whose_grid(by_rule.question).value == "planner"


def test_a_shipped_search_without_a_rule_runs_nvidia_s_own_list_and_says_so() -> None:
    found = ask_for("search_config=llama/llama3_70b", "grid=nemo")
    assert {one.layout.pipeline_parallel for one in found.found.candidates} == {1}
    assert any("NVIDIA ships a search of it" in note for note in found.notes)


def test_on_this_machine_what_no_rule_covers_is_said_too() -> None:
    found = ask_for(*SMALL, "grid=nemo")
    (note,) = [one for one in found.notes if "NeMo has no rule" in one]
    assert "gpt3 with 32 tokens" in note


@pytest.mark.parametrize(("choice", "said"), [("gpt3/5b", 1), ("t5/11b", 0)])
def test_layers_that_nvidia_s_grid_does_not_recompute_are_said(choice: str, said: int) -> None:
    words = (f"search_config={choice}", "grid=nemo", *train(act_ckpt_layers="[0,12,24]"))
    notes = [one for one in ask_for(*words).notes if "act_ckpt_layers" in one]
    assert len(notes) == said
    assert all("is not searched" in one for one in notes)


def test_less_memory_leaves_fewer_candidates() -> None:
    words = ("search_config=gpt3/20b", "cluster.gpu=A100-SXM-80GB")
    most = ask_for(*words).found.found
    assert ask_for(*words, *train(gpu_memory_gb=20)).found.found < most


def test_what_may_not_fit_is_said_with_the_limit() -> None:
    found = ask_for("search_config=gpt3/20b")
    assert found.machines is not None
    limit = found.machines.memory_bytes
    above = [one for one in found.found.candidates if (one.peak_bytes or 0) > limit]
    (note,) = [one for one in found.notes if "may not fit" in one]
    assert above
    assert note.startswith(f"{len(above)} of the candidates")
    assert "has 79.0 GiB" in note


def test_where_all_surely_fit_nothing_is_said_of_it() -> None:
    assert not any("may not fit" in note for note in ask_for("search_config=gpt3/0.126b").notes)


def test_an_unknown_gpu_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="H100-SXM-80GB"):
        ask_for("search_config=gpt3/5b", "cluster.gpu=H100-SXN-80GB")


def test_the_planner_covers_what_nvidia_ships_tuned_and_its_grid_misses() -> None:
    assert (4, 8) in {(t, p) for t, p, _ in points("search_config=gpt3/175b")}


def test_the_order_of_the_planner_s_candidates_is_said() -> None:
    (said,) = [one for one in ask_for("search_config=gpt3/20b").notes if "first candidate" in one]
    assert "by their chance to be the fastest" in said


@pytest.mark.parametrize(("family", "expected"), [("t5", {False}), ("gpt3", {True})])
def test_sequences_of_a_t5_are_not_parallel_since_its_configuration_has_no_word_for_it(
    family: str, expected: set[bool]
) -> None:
    size = {"t5": "23.5b", "gpt3": "20b"}[family]
    found = ask_for(f"search_config={family}/{size}", *train(tensor_parallel_sizes="[8]"))
    assert {one.layout.sequence_parallel for one in found.found.candidates} == expected
