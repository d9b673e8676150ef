"""Trainer scripts with a DeepSpeed file: the documented blocks, and what Trainer compares."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import GlobalBatchRule, build_space
from autoconf_launch.core import ConfigError, Precision, RawConfig
from autoconf_launch.launcher.dialects import DeepSpeedDialect, HfTrainerDialect
from autoconf_launch.launcher.launch import find_source
from autoconf_launch.launcher.script import ScriptSource
from autoconf_launch.launcher.spelling import Dialect, Rendered, TrialNeeds, UserSettings

from .documented_blocks import BLOCKS, LISTED, MAXIMUM, MINIMUM_OF_4, ONE_MAPPING, OVERRIDE
from .sources import layout, require_facts, say_of

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
def test_every_documented_block_becomes_a_file_that_trainer_takes(
    tmp_path: Path, name: str
) -> None:
    found = source(tmp_path, BLOCKS[name], *TRAINING)
    stages = NARROWED.get(name, (0, 1, 2, 3))
    require_facts(DIALECT.read(found, world_size=2), **{"zero_stage?": stages})
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


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"autotuning": {"mp_size": 2}}, r"autotuning\.mp_size is 2, but only data parallelism"),
        ({"train_batch_size": [8, 16]}, r"train_batch_size is \[8, 16\], but is never searched"),
    ],
)
def test_what_trainer_cannot_search_is_refused(
    tmp_path: Path, block: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, block, *TRAINING)


@pytest.mark.parametrize(
    ("block", "arguments", "facts"),
    [
        ({"zero_optimization": "all"}, TRAINING, {"zero_stage?": (0, 1, 2, 3)}),
        ({"zero_optimization": True}, TRAINING, {"zero_stage?": (1,)}),
        (ONE_MAPPING, (), {"micro_batch": 8, "accumulation": 1}),  # Trainer's defaults
        ({"train_batch_size": 16}, TRAINING, {"pinned": 16, "micro_batch": 2, "accumulation": 4}),
        ({"gradient_accumulation_steps": 2}, TRAINING, {"pinned": 8}),
        (
            {"train_batch_size": 16, "autotuning": {"max_train_batch_size": 64}},
            TRAINING,
            {"pinned": 16, "maximum": None},
        ),
        (MAXIMUM, TRAINING, {"pinned": None, "maximum": 1024}),
        ({"bf16": {"enabled": True}}, TRAINING, {"precision": Precision.BF16}),
    ],
)
def test_a_file_says_the_stages_the_batch_and_the_precision(
    tmp_path: Path, block: object, arguments: tuple[str, ...], facts: dict[str, Any]
) -> None:
    require_facts(read(tmp_path, block, *arguments), **facts)


def test_offloading_and_what_trainer_fills_stay_and_steps_of_the_schedule_are_trainers(
    tmp_path: Path,
) -> None:
    steps = ("scheduler", "params", "total_num_steps")
    given = RawConfig({**OFFLOADED, **SCHEDULE, "wandb": {"enabled": True}})
    found = source(tmp_path, given.to_dict(), *TRAINING)
    same, larger = render(found), render(found, micro_batch=4)
    kept = given.without(("scheduler",)).to_dict()
    for made, total in ((same, 100), (larger, "auto")):
        assert made.config.get(steps) == total
        assert {key: made.config.to_dict()[key] for key in kept} == kept
    assert same.config.get(("scheduler",)) == SCHEDULE["scheduler"]
    trial = DIALECT.in_trial(same, found, NEEDS).config
    assert (trial.get(steps), trial.get(("wandb", "enabled"))) == ("auto", False)


def test_a_number_of_the_file_is_used_for_the_argument_too(tmp_path: Path) -> None:
    found = source(tmp_path, MINIMUM_OF_4, MICRO, "8")
    user = DIALECT.read(found, world_size=2)
    made = DIALECT.render(user.baseline, found, "c.json")
    assert user.baseline.layout.micro_batch == 4
    assert value_of(made, MICRO) == "4"
    assert any(f"{MICRO} is 8; 4 is used for both" in text for text in user.warnings)


def test_auto_stays_where_the_dialect_deepspeed_is_taken(tmp_path: Path) -> None:
    text = "from transformers import HfArgumentParser, Trainer"
    found = dataclasses.replace(source(tmp_path, SCHEDULE), text=text)
    user = DeepSpeedDialect().read(found, world_size=2)
    document = DeepSpeedDialect().render(user.baseline, found, "c.json").config.to_dict()
    assert {key: document[key] for key in SCHEDULE} == SCHEDULE
    assert document["zero_optimization"] == {"stage": 0}


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
