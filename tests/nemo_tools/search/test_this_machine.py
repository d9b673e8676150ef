from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import ConfigError, Recompute
from autoconf_launch.nemo.search import prepare_training
from autoconf_launch.nemo.search.this_machine import LEAST_TEXT_VOCABULARY
from autoconf_launch.nemo.search_flags import parse_search
from autoconf_launch.runtime.pretraining import train as text

from .asked import SMALL, ask_for, train


def test_ranks_split_the_batch_and_nothing_else() -> None:
    found = ask_for(*SMALL).found
    assert found.nodes == 1
    for one in found.candidates:
        layout = one.layout
        assert (layout.data_parallel, layout.world_size, layout.global_batch) == (2, 2, 8)


def test_micro_batches_and_recomputation_are_searched() -> None:
    found = ask_for(*SMALL).found.candidates
    assert {one.layout.micro_batch for one in found} == {1, 2, 4}
    assert {one.layout.recompute for one in found} == set(Recompute)


def test_other_parallelism_is_a_named_rejection() -> None:
    found = ask_for(*SMALL)
    whys = {one.why for one in found.found.rejected}
    assert "pipeline parallelism 2: search runs data-parallel layouts here" in whys
    assert len(found.found.candidates) + len(found.found.rejected) == found.found.found
    (note,) = (note for note in found.notes if "candidates are not started" in note)
    assert "parallelism 2, " in note
    assert note.count("search runs data-parallel layouts here") == 1


def test_some_layers_recomputed_is_a_named_rejection() -> None:
    found = ask_for(*SMALL, *train(act_ckpt_layers="[0,1,2]")).found
    assert {one.point.recompute_layers for one in found.candidates} == {0, 2}
    assert any("1 of 2 layers recomputed" in one.why for one in found.rejected)


def test_nemo_s_grid_is_split_likewise() -> None:
    found = ask_for(*SMALL, "grid=nemo", *train(seq_length=2048)).found
    assert {one.layout.tensor_parallel for one in found.candidates} == {1}
    assert all("parallelism" in one.why for one in found.rejected)


def test_a_limit_cuts_no_micro_batch_first() -> None:
    words = train(limit_search_runs=2, seq_length=2048)
    found = ask_for(*SMALL, "grid=nemo", *words).found.candidates
    assert [one.layout.micro_batch for one in found] == [4, 2]


def test_a_dry_run_shows_as_many_as_would_be_run() -> None:
    every, three = ask_for(*SMALL), ask_for(*SMALL, *train(limit_search_runs=3))
    assert three.found.candidates == every.found.candidates[:3]
    assert three.found.found == every.found.found
    among = len(every.found.candidates)
    assert any(f"chooses them among {among}" in note for note in three.notes)


def test_a_search_has_all_of_them_until_its_profile_run() -> None:
    words = [*SMALL, *train(limit_search_runs=3), "run_inference_hp_search=False"]
    assert len(prepare_training(parse_search(words)).found.candidates) > 3


def test_nothing_that_can_run_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="candidates can run here, such as"):
        ask_for(*SMALL, *train(pipeline_parallel_sizes="[2]"))


def test_ranks_that_do_not_divide_the_batch_are_said_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="splits a global batch of 8 over 3 ranks"):
        ask_for(*SMALL, *train(gpus_per_node=3))


def test_several_nodes_are_said_to_be_one() -> None:
    assert any(
        "this machine is one node" in note for note in ask_for(*SMALL, *train(num_nodes=4)).notes
    )


def test_a_vocabulary_too_small_for_the_text_is_refused() -> None:
    assert LEAST_TEXT_VOCABULARY == text.LEAST_VOCABULARY
    with pytest.raises(ConfigError, match="vocab_size is 258"):
        ask_for(*SMALL, *train(vocab_size=258))


def test_names_are_each_one_s_own() -> None:
    found = ask_for(*SMALL).found
    names = [one.name for one in found.candidates]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"micro_batch_sizes": "[3]"}, r"none of .*micro_batch_sizes=\[3\] divides the 4 samples"),
        ({"min_model_parallel_size": 2, "max_model_parallel_size": 1}, "min_model_parallel_size"),
    ],
)
def test_a_size_that_leaves_nothing_is_named(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ask_for(*SMALL, *train(**given))


def test_a_least_model_parallelism_is_not_dropped() -> None:
    with pytest.raises(ConfigError, match="data-parallel"):
        ask_for(*SMALL, *train(min_model_parallel_size=2))


def test_one_layer_is_not_recomputed() -> None:
    words = ("search_config=bert/unknown_size", *train(model_size_in_b=0.001, seq_length=64))
    found = ask_for(*SMALL, *words)
    assert found.question.model.shape.layers == 1
    assert {one.layout.recompute for one in found.found.candidates} == {Recompute.NONE}
    assert any("no repeated layers" in one.why for one in found.found.rejected)
