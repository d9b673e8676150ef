from __future__ import annotations

import math

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search import whose_grid

from .asked import SMALL, ask_for, train

BIGNLP = "bignlp_hp_tool_path=/opt/hp"


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
    many = points("search_config=gpt3/20b")
    assert few == many[:5]
    every = ask_for("search_config=gpt3/2b", *train(limit_search_runs=0)).found
    assert len(every.candidates) == every.found
    assert (4, 8) in {(t, p) for t, p, _ in points("search_config=gpt3/175b")}, "as NVIDIA tuned"


def test_the_planner_s_are_ordered_by_what_they_promise() -> None:
    found = ask_for("search_config=gpt3/20b")
    predicted = [one.step_s or 0.0 for one in found.found.candidates]
    assert predicted[0] < 1.05 * min(predicted) < predicted[-1]
    (said,) = [one for one in found.notes if "first candidate" in one]
    assert "by their chance to be the fastest" in said


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_every_candidate_divides_gpus_and_batch(grid: str) -> None:
    found = ask_for("search_config=bert/100b", f"grid={grid}")
    for one in found.found.candidates:
        assert one.layout.world_size == 1024
        assert one.layout.global_batch == 4096


@pytest.mark.parametrize("grid", ["planner", "nemo"])
def test_each_candidate_has_a_name_of_its_own(grid: str) -> None:
    words = ("search_config=t5/11b", *train(act_ckpt_layers="[0,12,24]"), f"grid={grid}")
    names = [one.name for one in ask_for(*words).found.candidates]
    assert len(set(names)) == len(names)


def test_sizes_that_are_given_are_searched_alone() -> None:
    sizes = train(tensor_parallel_sizes="[4,5]", micro_batch_sizes="[1,2]")
    words = ("search_config=gpt3/20b", *sizes)
    assert {(t, m) for t, _, m in points(*words)} == {(4, 1), (4, 2)}
    assert any("5" in note for note in ask_for(*words).notes), "what was asked in vain"
    bounds = train(min_model_parallel_size=8, max_model_parallel_size=8)
    found = ask_for("search_config=gpt3/20b", *bounds).found.candidates
    assert {math.prod(one.layout.mesh) for one in found} == {8}


@pytest.mark.parametrize(
    ("choice", "more", "nodes"),
    [
        ("gpt3/20b", ("grid=planner", BIGNLP), 1),
        ("gpt3/20b", ("grid=nemo", BIGNLP), 1),
        ("gpt3/5b", ("grid=planner", BIGNLP, *train(num_nodes=20)), 1),
        ("gpt3/5b", ("grid=nemo", BIGNLP, *train(num_nodes=20)), 1),
        ("gpt3/175b", ("grid=nemo", BIGNLP, *train(num_nodes=4)), 16),
        ("gpt3/175b", ("grid=nemo", BIGNLP, *train(num_nodes=128)), 16),
        ("gpt3/175b", ("grid=planner", BIGNLP, *train(num_nodes=1)), 8),
        ("gpt3/5b", ("grid=nemo", *train(override_search_num_nodes=2)), 2),
    ],
)
def test_a_search_may_have_other_nodes_than_its_training(
    choice: str, more: tuple[str, ...], nodes: int
) -> None:
    """The fewest that hold the model in BigNLP's mode, or those that are given."""
    found = ask_for(f"search_config={choice}", *more)
    given = [int(word.partition("=")[2]) for word in more if ".num_nodes=" in word]
    assert found.found.nodes == nodes
    assert [found.question.base.get(("trainer", "num_nodes"))] == given or not given
    if choice == "gpt3/175b" and "grid=nemo" in more:
        assert found.found.found == 9


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search_config=gpt3/5b", *train(seq_length=3000)), "gpt3 with 3000 tokens on 80 GB"),
        (("search_config=t5/11b", *train(gpu_memory_gb=48)), "t5 on 48 GB"),
        (("search_config=bert/4b", *train(gpu_memory_gb=48)), "bert on 48 GB"),
        (
            ("search_config=gpt3/5b", *train(gpu_memory_gb=141)),
            "gpt3 on 141 GB: its rules are for 40 and 80 GB",
        ),
        (
            ("search_config=mixtral/7b", *train(model_size_in_b=60, seq_length=8192)),
            "mixtral of 60 B with 8192 tokens on 80 GB",
        ),
        (("search_config=gemma/unknown_size", *train(seq_length=1000)), "gemma with 1000 tokens"),
        (SMALL, "gpt3 with 32 tokens"),
    ],
)
def test_what_no_rule_covers_has_the_planner_s_candidates(
    words: tuple[str, ...], said: str
) -> None:
    by_rule, by_planner = (ask_for(*words, f"grid={grid}") for grid in ("nemo", "planner"))
    assert by_rule.found.candidates == by_planner.found.candidates
    (note,) = [one for one in by_rule.notes if "NeMo has no rule" in one]
    assert said in note
    assert note.endswith("the candidates are the planner's.")
    assert whose_grid(by_rule.question).value == "planner"
    if "141 GB" in said:
        assumed = "The planner assumes H200-SXM-141GB, by gpu_memory_gb (141); cluster.gpu names "
        assert any(assumed in one for one in by_rule.notes)


def test_a_shipped_search_without_a_rule_runs_nvidia_s_own_list_and_says_so() -> None:
    found = ask_for("search_config=llama/llama3_70b", "grid=nemo")
    assert {one.layout.pipeline_parallel for one in found.found.candidates} == {1}
    assert any("NVIDIA ships a search of it" in note for note in found.notes)


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
    assert not any("may not fit" in note for note in ask_for("search_config=gpt3/0.126b").notes)


@pytest.mark.parametrize(("choice", "expected"), [("t5/23.5b", {False}), ("gpt3/20b", {True})])
def test_sequences_of_a_t5_are_not_parallel_since_its_configuration_has_no_word_for_it(
    choice: str, expected: set[bool]
) -> None:
    found = ask_for(f"search_config={choice}", *train(tensor_parallel_sizes="[8]"))
    assert {one.layout.sequence_parallel for one in found.found.candidates} == expected
