from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import RawConfig
from autoconf_launch.nemo.search import candidate_document

from .asked import ask_for, train


def first(*overrides: str) -> RawConfig:
    found = ask_for(*overrides)
    return candidate_document(found.question, found.found.candidates[0], found.found.nodes)


def test_a_candidate_differs_from_the_base_in_searched_keys_alone() -> None:
    found = ask_for("search_config=gpt3/5b", "grid=nemo")
    one = candidate_document(found.question, found.found.candidates[-1], 16)
    changed = {edit.path[1:] for edit in found.question.base.diff(one) if edit.path[0] == "model"}
    needed = {("tensor_model_parallel_size",), ("micro_batch_size",), ("sequence_parallel",)}
    assert (
        needed
        <= changed
        <= needed
        | {
            ("context_parallel_size",),
            ("expert_model_parallel_size",),
            ("num_micro_batches_with_partial_activation_checkpoints",),
            ("activations_checkpoint_layers_per_pipeline",),
        }
    )


def test_limits_of_a_run_are_the_settings() -> None:
    one = first("search_config=gpt3/5b", "grid=nemo", *train(max_minutes_per_run=1500))
    assert one.get(("trainer", "max_steps")) == 50
    assert one.get(("trainer", "val_check_interval")) == 50
    assert one.get(("run", "time_limit")) == "1-1:0:00"


def test_t5_s_two_stacks_share_the_checkpointed_layers() -> None:
    one = first("search_config=t5/11b", "grid=nemo", *train(act_ckpt_layers="[24]"))
    path = "activations_checkpoint_num_layers"
    assert one.get(("model", "encoder", path)) == one.get(("model", "decoder", path)) == 12


def test_a_recipe_has_its_strategy_set() -> None:
    one = first("search_config=gemma/unknown_size", *train(tensor_parallel_sizes="[4]"))
    assert one.get(("trainer", "strategy", "tensor_model_parallel_size")) == 4
    assert one.get(("trainer", "max_steps")) == 50


def test_interleaved_stages_are_written() -> None:
    sizes = train(pipeline_parallel_sizes="[8]")
    one = first("search_config=gpt3/175b", "grid=nemo", *sizes)
    assert one.get(("model", "virtual_pipeline_model_parallel_size")) == 12
