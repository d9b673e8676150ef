from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autoconf_launch.autotuner.space import ChoiceKind
from autoconf_launch.core import Candidate, ConfigError, RawConfig
from autoconf_launch.launcher.dialects import DeepSpeedDialect, choose_dialect, decode_document
from autoconf_launch.launcher.dialects.deepspeed import encode_document
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import TrialNeeds

from .sources import require_facts, script

DIALECT = DeepSpeedDialect()
FULL: dict[str, Any] = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": 5e8,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
    },
    "fp16": {"enabled": True},
    "mine": {"a": [1, 2]},
}


def source(document: dict[str, Any], *arguments: str) -> ScriptSource:
    made = script("--deepspeed", "--deepspeed_config", "ds.json", *arguments)
    return dataclasses.replace(made, config=RawConfig(document), config_argument=2)


def candidate(user_layout: Candidate, **changes: Any) -> Candidate:
    return dataclasses.replace(
        user_layout, layout=dataclasses.replace(user_layout.layout, **changes)
    )


def test_a_file_of_deepspeed_is_taken_with_offload_and_buckets_and_its_other_keys_stay() -> None:
    user = DIALECT.read(source(FULL), world_size=2)
    require_facts(user, micro_batch=4, accumulation=4, zero_stage=2)
    assert dict(user.baseline.extras) == {
        "reduce_bucket_size": 500_000_000,
        "offload_optimizer.device": "cpu",
        "offload_optimizer.pin_memory": True,
    }
    made = DIALECT.render(user.baseline, source(FULL), "t.json")
    assert made.config.to_dict() == {**FULL, "gradient_accumulation_steps": 4}
    assert made.script_args == ("--deepspeed", "--deepspeed_config", "t.json")
    other = candidate(user.baseline, zero_stage=3, micro_batch=8, accumulation=2)
    document = DIALECT.render(other, source(FULL), "t.json").config.to_dict()
    assert document["zero_optimization"] == {**FULL["zero_optimization"], "stage": 3}
    assert (document["train_batch_size"], document["mine"]) == (32, {"a": [1, 2]})


def test_lists_are_searched() -> None:
    document = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": [1, 2], "overlap_comm": [True, False]},
        "activation_checkpointing": {"number_checkpoints": [2, 4], "profile": False},
    }
    user = DIALECT.read(source(document), world_size=2)
    values = {(c.knob, c.stages): c.values for c in user.choices if c.how is ChoiceKind.LISTED}
    assert values == {
        ("zero_stage", None): (1, 2),
        ("overlap_comm", (1,)): (True, False),
        ("overlap_comm", (2,)): (True, False),
        ("activation_checkpointing.number_checkpoints", None): (2, 4),
    }
    made = DIALECT.render(user.baseline, source(document), "t.json").config
    assert made.get(("activation_checkpointing", "number_checkpoints")) == 2


def test_stages_are_explored_where_none_is_chosen() -> None:
    user = DIALECT.read(source({"train_micro_batch_size_per_gpu": 2}), world_size=2)
    (stages,) = (choice for choice in user.choices if choice.knob == "zero_stage")
    assert (stages.values, stages.how) == ((0, 1, 2, 3), ChoiceKind.FREE)


def test_a_mapped_argument_follows() -> None:
    document = {
        "train_micro_batch_size_per_gpu": 2,
        "autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--bs"}},
    }
    given = source(document, "--bs=2")
    user = DIALECT.read(given, world_size=2)
    made = DIALECT.render(candidate(user.baseline, micro_batch=4), given, "t.json")
    assert made.script_args[-1] == "--bs=4"


def test_base64_is_passed_only_where_the_user_did() -> None:
    document = RawConfig({"train_micro_batch_size_per_gpu": 2})
    made = script("--deepspeed_config", encode_document(document))
    given = dataclasses.replace(made, config=document, config_argument=1)
    user = DIALECT.read(given, world_size=1)
    (_, held) = DIALECT.render(candidate(user.baseline, micro_batch=4), given, "t").script_args
    found = decode_document(held)
    assert found is not None
    assert found.get(("train_micro_batch_size_per_gpu",)) == 4


def test_trackers_of_the_file_are_off_in_a_trial() -> None:
    document = {"train_micro_batch_size_per_gpu": 2, "wandb": {"enabled": True, "project": "p"}}
    given = source(document)
    made = DIALECT.render(DIALECT.read(given, world_size=1).baseline, given, "t")
    trial = DIALECT.in_trial(made, given, TrialNeeds(folder="t", steps=5)).config
    assert trial.get(("wandb",)) == {"enabled": False, "project": "p"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"zero_optimization": {"stage": 4}}, "stage is 4, but ZeRO has stages 0 to 3"),
        ({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2}, "train_batch_size is 9"),
        ({"autotuning": {"metrik": "latency"}}, "did you mean 'metric'"),
    ],
)
def test_what_cannot_be_meant_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DIALECT.read(source(document), world_size=2)


def test_without_a_file_it_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="--deepspeed_config FILE"):
        DIALECT.read(script("--lr=1"), world_size=1)


INSIDE = 'import deepspeed\ndeepspeed.initialize(config={"train_batch_size": 8})'


def test_a_configuration_in_the_scripts_own_code_is_out_of_reach() -> None:
    with pytest.raises(ConfigError, match="settings in its own code cannot be tuned"):
        choose_dialect(script("--lr=1", text=INSIDE))


def test_arguments_beside_a_configuration_in_the_code_are_tuned_with_a_word_on_it() -> None:
    choice = choose_dialect(script("--batch_size=2", text=INSIDE))
    assert choice.dialect.name == "arguments"
    assert "--deepspeed_config FILE" in choice.notes[0]


LEFT = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"},
}
OWN = "import deepspeed\ndeepspeed.initialize(args=args)\n"


def test_all_that_nobody_fills_is_told_at_once() -> None:
    given = dataclasses.replace(source(LEFT), text=OWN)
    with pytest.raises(ConfigError) as caught:
        DIALECT.read(given, world_size=2)
    assert str(caught.value) == (
        "gradient_clipping, optimizer.params.lr and optimizer.params.betas are "
        '"auto", which the Hugging Face Trainer and Accelerate fill, but this script uses '
        "neither; give values."
    )


@pytest.mark.parametrize(
    "text", ["", f"import accelerate\n{OWN}", f"{OWN}fill(document, instead_of='auto')\n"]
)
def test_what_the_script_may_fill_is_left_to_it(text: str) -> None:
    DIALECT.read(dataclasses.replace(source(LEFT), text=text), world_size=2)


@pytest.mark.parametrize(
    ("keys", "data", "tensor", "context"),
    [
        ({"tensor_parallel": {"autotp_size": 2}}, 4, 2, 1),
        ({"sequence_parallel_size": 4}, 2, 1, 4),
        ({"sequence_parallel_size": 2, "data_parallel_size": 4}, 4, 1, 2),
        ({"tensor_parallel": {"autotp_size": 2}, "autotuning": {"mp_size": 2}}, 4, 2, 1),
    ],
)
def test_degrees_in_the_file_leave_fewer_data_parallel_ranks(
    keys: dict[str, Any], data: int, tensor: int, context: int
) -> None:
    document = {"train_batch_size": 16 * data, "train_micro_batch_size_per_gpu": 16, **keys}
    found = DIALECT.read(source(document), world_size=8).baseline.layout
    assert (found.data_parallel, found.tensor_parallel) == (data, tensor)
    assert (found.context_parallel, found.global_batch) == (context, 16 * data)


def test_a_global_batch_alone_leaves_every_micro_batch_that_divides_it() -> None:
    user = DIALECT.read(source({"train_batch_size": 400}), world_size=2)
    assert user.baseline.layout.global_batch == 400
    (micro,) = [choice for choice in user.choices if choice.knob == "micro_batch"]
    assert (micro.values, micro.how) == ((), ChoiceKind.MINIMUM)


@pytest.mark.parametrize("on", [True, False])
def test_a_section_that_is_a_truth_value_is_stage_1_or_0(on: bool) -> None:
    given = source({"train_batch_size": 8, "zero_optimization": on})
    user = DIALECT.read(given, world_size=2)
    (stages,) = [choice for choice in user.choices if choice.knob == "zero_stage"]
    assert (user.baseline.layout.zero_stage, stages.values) == (int(on), (int(on),))
    made = DIALECT.render(user.baseline, given, "t.json").config
    assert made.get(("zero_optimization",)) == {"stage": int(on)}
