from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import RawConfig
from autoconf_launch.nemo.search import candidate_document

from .asked import ask_for, train


def files(*overrides: str) -> list[RawConfig]:
    found = ask_for(*overrides)
    nodes = found.found.nodes
    return [candidate_document(found.question, one, nodes) for one in found.found.candidates]


def test_a_candidate_differs_from_the_base_in_searched_keys_alone() -> None:
    found = ask_for("search_config=gpt3/5b", "grid=nemo")
    one = candidate_document(found.question, found.found.candidates[-1], 16)
    changed = {edit.path for edit in found.question.base.diff(one)}
    assert {path for path in changed if path[0] == "model"} == {
        ("model", "tensor_model_parallel_size"),
        ("model", "micro_batch_size"),
        ("model", "context_parallel_size"),
        ("model", "expert_model_parallel_size"),
        ("model", "sequence_parallel"),
        ("model", "num_micro_batches_with_partial_activation_checkpoints"),
        ("model", "activations_checkpoint_layers_per_pipeline"),
    } - {path for path in SAME if path not in changed}


SAME = (
    ("model", "num_micro_batches_with_partial_activation_checkpoints"),
    ("model", "activations_checkpoint_layers_per_pipeline"),
    ("model", "context_parallel_size"),
    ("model", "expert_model_parallel_size"),
)
"""Written where the base lacks them, equal where it has them."""


def test_limits_of_a_run_are_the_settings() -> None:
    one = files("search_config=gpt3/5b", "grid=nemo", *train(max_minutes_per_run=1500))[0]
    assert one.get(("trainer", "max_steps")) == 50
    assert one.get(("trainer", "val_check_interval")) == 50
    assert one.get(("run", "time_limit")) == "1-1:0:00"


def test_t5_s_two_stacks_share_the_checkpointed_layers() -> None:
    words = ("search_config=t5/11b", "grid=nemo", *train(act_ckpt_layers="[24]"))
    one = files(*words)[0]
    path = "activations_checkpoint_num_layers"
    assert one.get(("model", "encoder", path)) == one.get(("model", "decoder", path)) == 12


def test_a_recipe_has_its_strategy_set() -> None:
    words = ("search_config=gemma/unknown_size", *train(tensor_parallel_sizes="[4]"))
    one = files(*words)[0]
    assert one.get(("trainer", "strategy", "tensor_model_parallel_size")) == 4
    assert one.get(("trainer", "max_steps")) == 50


def test_interleaved_stages_are_written() -> None:
    words = ("search_config=gpt3/175b", "grid=nemo", *train(pipeline_parallel_sizes="[8]"))
    one = files(*words)[0]
    assert one.get(("model", "virtual_pipeline_model_parallel_size")) == 12
