from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import DegreeLimits, Grade, ModelSpec, Recompute
from autoconf_launch.nemo.search import prepare_training
from autoconf_launch.nemo.search.this_machine import split_trainable
from autoconf_launch.nemo.search_flags import parse_search

from .asked import SMALL, ask_for, train

LLAMA = (*SMALL, "search_config=llama/unknown_size", *train(model_size_in_b=0.005))
"""Two layers, six heads: every kind of parallelism divides it but expert ranks."""


def test_every_kind_of_parallelism_that_the_runtime_trains_is_searched() -> None:
    found = ask_for(*LLAMA).found
    assert found.nodes == 1
    assert {one.layout.mesh for one in found.candidates} == {
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (1, 2, 1, 1),
        (1, 1, 2, 1),
    }
    for one in found.candidates:
        assert (one.layout.world_size, one.layout.global_batch) == (2, 8)
    assert {one.why for one in found.rejected} == {
        "pipeline parallelism 2: 1F1B needs a micro-batch for each stage"
    }


def test_experts_are_searched_on_data_parallel_ranks() -> None:
    words = ("search_config=mixtral/unknown_size", *train(model_size_in_b=0.01))
    found = ask_for(*SMALL, *words).found.candidates
    layouts = {one.layout for one in found if one.layout.expert_parallel == 2}
    assert {layout.data_parallel for layout in layouts} == {2}


def test_micro_batches_and_recomputation_are_searched() -> None:
    found = ask_for(*SMALL).found.candidates
    assert {one.layout.micro_batch for one in found} == {1, 2, 4}
    assert {one.layout.recompute for one in found} == set(Recompute)
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    least = ask_for(*LLAMA, *train(min_model_parallel_size=2)).found.candidates
    assert {one.layout.mesh for one in least} == {(2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1)}


def test_nemo_s_grid_is_split_likewise_and_a_limit_cuts_no_micro_batch_first() -> None:
    nemo = (*SMALL, "grid=nemo", *train(seq_length=2048))
    found = ask_for(*nemo).found
    assert {one.layout.tensor_parallel for one in found.candidates} == {1}
    assert all("tensor parallelism" in one.why for one in found.rejected)
    two = ask_for(*nemo, *train(limit_search_runs=2)).found.candidates
    assert [one.layout.micro_batch for one in two] == [4, 2]


def test_parallelism_that_the_runtime_does_not_train_is_rejected_for_its_own_reason() -> None:
    found = ask_for(*SMALL, *train(model_size_in_b=0.003, micro_batch_sizes="[2]"))
    why = "the model has no tensor plan, or TP does not divide its key-value heads"
    assert {one.why for one in found.found.rejected} == {f"tensor parallelism 2: {why}"}
    assert len(found.found.candidates) + len(found.found.rejected) == found.found.found
    (note,) = (note for note in found.notes if "candidates are not started" in note)
    assert note.count(why) == 1


def test_some_layers_of_a_stage_can_be_recomputed() -> None:
    found = ask_for(*SMALL, *train(act_ckpt_layers="[0,1,2]")).found
    layers = {one.layout.mesh: set[int | None]() for one in found.candidates}
    for one in found.candidates:
        layers[one.layout.mesh].add(one.point.recompute_layers)
    assert layers[1, 1, 1, 1] == {0, 1, 2}
    assert layers[1, 2, 1, 1] == {0, 1}


def test_some_layers_of_an_encoder_decoder_are_a_named_rejection() -> None:
    words = ("search_config=t5/unknown_size", *train(model_size_in_b=0.0005))
    found = ask_for(*SMALL, *words, *train(act_ckpt_layers="[0,1]")).found
    assert {one.point.recompute_layers for one in found.candidates} == {0}
    assert any("1 of " in one.why and "layers recomputed" in one.why for one in found.rejected)


def test_the_profiled_model_rejects_what_its_own_structure_does_not_share_out() -> None:
    found = ask_for(*LLAMA).found.candidates
    spec = ModelSpec(
        grade=Grade.MEASURED,
        blocks=(),
        tensor_split=DegreeLimits(key="tensor", counts=(("heads", 3),)),
        stage_split=DegreeLimits(key="pipeline", counts=(), missing="it has no blocks."),
    )
    kept, rejected = split_trainable(spec, found)
    assert {one.layout.mesh for one in kept} == {(1, 1, 1, 1), (1, 1, 2, 1)}
    assert {one.why for one in rejected} == {
        "parallelism.tensor is 2, but must divide the model's 3 heads; use 1 or 3",
        "parallelism.pipeline is 2, but it has no blocks",
    }
    assert split_trainable(None, found) == (found, ())


def test_a_dry_run_shows_as_many_as_would_be_run() -> None:
    limit = train(limit_search_runs=3)
    every, three = ask_for(*SMALL), ask_for(*SMALL, *limit)
    assert three.found.candidates == every.found.candidates[:3]
    assert three.found.found == every.found.found
    among = len(every.found.candidates)
    assert any(f"chooses them among {among}" in note for note in three.notes)
    wet = prepare_training(parse_search([*SMALL, *limit]))
    assert len(wet.found.candidates) > 3, "a search has all until its profile run"
    nodes = ask_for(*SMALL, *train(num_nodes=4)).notes
    assert any("this machine is one node" in note for note in nodes)


def test_one_layer_is_not_recomputed() -> None:
    words = ("search_config=bert/unknown_size", *train(model_size_in_b=0.001, seq_length=64))
    found = ask_for(*SMALL, *words)
    assert found.question.model.shape.layers == 1
    assert {one.layout.recompute for one in found.found.candidates} == {Recompute.NONE}
    assert any("no repeated layers" in one.why for one in found.found.rejected)
