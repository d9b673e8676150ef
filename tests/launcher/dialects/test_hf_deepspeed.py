"""Trainer scripts with a DeepSpeed file: the documented blocks, and what Trainer compares."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import GlobalBatchRule, KnobChoice, build_space
from autoconf_launch.core import ConfigError, Precision
from autoconf_launch.launcher.dialects import DeepSpeedDialect, HfTrainerDialect
from autoconf_launch.launcher.launch import find_source
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import Dialect, Rendered, TrialNeeds, UserSettings

from .documented_blocks import BLOCKS, LISTED, MAXIMUM, MINIMUM_OF_4, ONE_MAPPING, OVERRIDE
from .sources import layout, say_of

DIALECT = HfTrainerDialect()
MICRO, STEPS = "--per_device_train_batch_size", "--gradient_accumulation_steps"
TRAINING = (MICRO, "2")
NARROWED = {"stages_2_and_3": (2, 3), "override": (1,), "space_of_stage_1": (1,)}
NEEDS = TrialNeeds(folder="trial", steps=7)
OFFLOADED = {
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/fast", "pin_memory": True},
        "offload_param": {"device": "cpu"},
        "reduce_bucket_size": "auto",
    },
    "aio": {"block_size": 262144, "queue_depth": 32},
}
SCHEDULE = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_max_lr": "auto"},
    },
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
}


def source(folder: Path, block: object, *arguments: str) -> ScriptSource:
    path = folder / "ds_config.json"
    path.write_text(block if isinstance(block, str) else json.dumps(block))
    return find_source((*arguments, "--deepspeed", str(path)))


def read(folder: Path, block: object, *arguments: str) -> UserSettings:
    return DIALECT.read(source(folder, block, *arguments), world_size=2)


def choice(user: UserSettings, knob: str) -> KnobChoice:
    return next(choice for choice in user.choices if choice.knob == knob)


def sizes(user: UserSettings) -> set[tuple[int, int]]:
    """Micro-batch and accumulation of every candidate."""
    table = build_space(user.baseline, user.choices, user.batch_rule, user.settings).table
    own = (user.baseline.layout.micro_batch, user.baseline.layout.accumulation)
    return {own, *zip(table["micro_batch"].tolist(), table["accumulation"].tolist(), strict=True)}


def render(found: ScriptSource, **changes: Any) -> Rendered:
    user = DIALECT.read(found, world_size=2)
    return DIALECT.render(layout(user, **changes), found, "trial/ds_config.json")


def value_of(made: Rendered, flag: str) -> str:
    return made.script_args[made.script_args.index(flag) + 1]


@pytest.mark.parametrize("name", BLOCKS)
def test_every_documented_block_explores_the_stages_that_it_leaves_open(
    tmp_path: Path, name: str
) -> None:
    user = read(tmp_path, BLOCKS[name], *TRAINING)
    assert choice(user, "zero_stage").values == NARROWED.get(name, (0, 1, 2, 3))


@pytest.mark.parametrize("name", BLOCKS)
def test_every_documented_block_becomes_a_file_that_trainer_takes(
    tmp_path: Path, name: str
) -> None:
    found = source(tmp_path, BLOCKS[name], *TRAINING)
    made = render(found, micro_batch=8, accumulation=2)
    document = made.config.to_dict()
    assert isinstance(document["zero_optimization"]["stage"], int)
    assert document["train_micro_batch_size_per_gpu"] in ("auto", 8)
    assert document["gradient_accumulation_steps"] in ("auto", 2)
    assert (value_of(made, MICRO), value_of(made, STEPS)) == ("8", "2")
    assert not {"autotuning", "arg_mappings"} & document.keys()


@pytest.mark.parametrize("dialect", [DIALECT, DeepSpeedDialect()], ids=lambda d: d.name)
@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - {"fixed_at_4"}))
def test_every_documented_block_tries_more_than_one_micro_batch(
    tmp_path: Path, name: str, dialect: Dialect
) -> None:
    user = dialect.read(source(tmp_path, BLOCKS[name], *TRAINING), world_size=2)
    assert len({micro for micro, _ in sizes(user)}) > 1


def test_model_parallelism_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"autotuning\.mp_size is 2, but only data parallelism"):
        read(tmp_path, {"autotuning": {"mp_size": 2}}, *TRAINING)


def test_the_bare_word_all_explores_every_stage(tmp_path: Path) -> None:
    found = source(tmp_path, {"zero_optimization": "all"}, *TRAINING)
    user = DIALECT.read(found, world_size=2)
    assert choice(user, "zero_stage").values == (0, 1, 2, 3)
    assert render(found, zero_stage=2).config.get(("zero_optimization",)) == {"stage": 2}


def test_a_mapped_argument_that_is_not_given_has_trainers_default(tmp_path: Path) -> None:
    found = read(tmp_path, ONE_MAPPING).baseline.layout
    assert (found.micro_batch, found.accumulation) == (8, 1)


def test_a_number_of_the_file_is_used_for_the_argument_too(tmp_path: Path) -> None:
    found = source(tmp_path, MINIMUM_OF_4, MICRO, "8")
    user = DIALECT.read(found, world_size=2)
    made = DIALECT.render(user.baseline, found, "c.json")
    assert user.baseline.layout.micro_batch == 4
    assert value_of(made, MICRO) == "4"
    assert any(f"{MICRO} is 8; 4 is used for both" in text for text in user.warnings)


def test_offloading_and_aio_stay_as_they_are(tmp_path: Path) -> None:
    found = source(tmp_path, OFFLOADED, *TRAINING)
    for micro in (2, 8):
        document = render(found, micro_batch=micro).config.to_dict()
        assert {key: document[key] for key in OFFLOADED} == OFFLOADED


def test_auto_stays_for_trainer_to_fill(tmp_path: Path) -> None:
    found = source(tmp_path, SCHEDULE, *TRAINING)
    document = render(found, zero_stage=3).config.to_dict()
    assert {key: document[key] for key in SCHEDULE} == SCHEDULE


def test_auto_stays_where_the_dialect_deepspeed_is_taken(tmp_path: Path) -> None:
    text = "from transformers import HfArgumentParser, Trainer"
    found = dataclasses.replace(source(tmp_path, SCHEDULE), text=text)
    user = DeepSpeedDialect().read(found, world_size=2)
    document = DeepSpeedDialect().render(user.baseline, found, "c.json").config.to_dict()
    assert {key: document[key] for key in SCHEDULE} == SCHEDULE
    assert document["zero_optimization"] == {"stage": 0}


def test_steps_of_the_schedule_are_trainers_in_a_trial_and_with_another_batch(
    tmp_path: Path,
) -> None:
    found = source(tmp_path, SCHEDULE, *TRAINING)
    steps = ("scheduler", "params", "total_num_steps")
    same, larger = render(found, zero_stage=1), render(found, micro_batch=4)
    assert same.config.get(steps) == 100
    assert larger.config.get(steps) == "auto"
    assert DIALECT.in_trial(same, found, NEEDS).config.get(steps) == "auto"


def test_monitors_of_the_file_are_off_in_a_trial(tmp_path: Path) -> None:
    found = source(tmp_path, {"wandb": {"enabled": True}}, *TRAINING)
    made = render(found)
    assert made.config.get(("wandb", "enabled")) is True
    assert DIALECT.in_trial(made, found, NEEDS).config.get(("wandb", "enabled")) is False


def test_the_precision_of_the_file_counts(tmp_path: Path) -> None:
    user = read(tmp_path, {"bf16": {"enabled": True}}, *TRAINING)
    assert user.workload.precision is Precision.BF16


def test_micro_batches_grow_as_far_as_deepspeed_lets_them(tmp_path: Path) -> None:
    user = read(tmp_path, BLOCKS["auto"], *TRAINING, STEPS, "4")
    assert user.batch_rule == GlobalBatchRule()
    found = sizes(user)
    assert (1024, 4) in found
    assert (8, 1) in found
    (said,) = user.notes
    assert "batches larger than today's 16 are tried" in said
    assert "--keep-global-batch pins it" in said


def test_listed_micro_batches_without_a_batch_are_said_to_vary_it(tmp_path: Path) -> None:
    (said,) = read(tmp_path, {"train_micro_batch_size_per_gpu": [2, 4]}, *TRAINING).notes
    assert said == (
        "The DeepSpeed configuration lists micro-batches and states no global batch, so the "
        "global batch varies (today 4); --keep-global-batch pins it."
    )


@pytest.mark.parametrize(
    "block",
    [
        {"train_batch_size": 16},
        {"gradient_accumulation_steps": 2},
        {"train_batch_size": 16, "autotuning": {"max_train_batch_size": 64}},
    ],
)
def test_a_batch_that_the_file_says_stays(tmp_path: Path, block: dict[str, Any]) -> None:
    user = read(tmp_path, block, *TRAINING)
    assert user.batch_rule.pinned == user.baseline.layout.global_batch


def test_a_stated_batch_says_the_accumulation(tmp_path: Path) -> None:
    found = read(tmp_path, {"train_batch_size": 16}, *TRAINING).baseline.layout
    assert (found.micro_batch, found.accumulation) == (2, 4)


def test_a_maximum_bounds_the_global_batch(tmp_path: Path) -> None:
    assert read(tmp_path, MAXIMUM, *TRAINING).batch_rule == GlobalBatchRule(maximum=1024)


def test_a_flag_keeps_the_global_batch(tmp_path: Path) -> None:
    found = source(tmp_path, MAXIMUM, *TRAINING)
    words = dataclasses.replace(found.words, keep_global_batch=True)
    user = DIALECT.read(dataclasses.replace(found, words=words), world_size=2)
    assert user.batch_rule == GlobalBatchRule(pinned=4)
    assert user.notes == ()


def test_listed_micro_batches_have_the_accumulation_of_the_file(tmp_path: Path) -> None:
    assert sizes(read(tmp_path, LISTED, *TRAINING)) == {(1, 2), (4, 2), (16, 2)}


def test_listed_bucket_sizes_are_combined(tmp_path: Path) -> None:
    user = read(tmp_path, OVERRIDE, *TRAINING)
    found = build_space(user.baseline, user.choices, user.batch_rule, user.settings).table
    extras = {found.row(i).extras for i in range(len(found))}
    assert {dict(pairs)["reduce_bucket_size"] for pairs in extras} == {50_000_000, 500_000_000}
    assert {dict(pairs)["allgather_bucket_size"] for pairs in extras} == {500_000_000}


def test_a_key_of_the_file_can_be_listed_by_a_flag(tmp_path: Path) -> None:
    listed = ("zero_optimization.reduce_bucket_size", (1000, 2000))
    found = say_of(source(tmp_path, "{}", *TRAINING), knobs=(listed, ("--optim", ("a", "b"))))
    user = DIALECT.read(found, world_size=2)
    values = {choice.knob: choice.values for choice in user.choices}
    assert values["reduce_bucket_size"] == (1000, 2000)
    made = DIALECT.render(layout(user, zero_stage=2), found, "c.json")
    assert made.config.get(("zero_optimization",)) == {"stage": 2, "reduce_bucket_size": 1000}
    assert "optim" in values


def test_a_list_of_what_is_not_searched_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train_batch_size is \[8, 16\], but is never searched"):
        read(tmp_path, {"train_batch_size": [8, 16]}, *TRAINING)


def test_tensor_ranks_of_the_file_leave_fewer_data_parallel_ranks(tmp_path: Path) -> None:
    block = {"train_batch_size": 64, "tensor_parallel": {"autotp_size": 2}}
    found = DIALECT.read(
        source(tmp_path, block, "--per_device_train_batch_size", "16"), world_size=8
    ).baseline.layout
    assert (found.data_parallel, found.tensor_parallel, found.global_batch) == (4, 2, 64)


def test_a_section_that_is_true_is_stage_1(tmp_path: Path) -> None:
    found = source(tmp_path, {"zero_optimization": True})
    assert choice(DIALECT.read(found, world_size=2), "zero_stage").values == (1,)
    assert render(found).config.get(("zero_optimization", "stage")) == 1
