from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import pytest

from autoconf_launch.autotuner.space import ChoiceKind
from autoconf_launch.core import ConfigError, Precision, RawConfig, Recompute
from autoconf_launch.launcher.dialects import HfTrainerDialect
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import TrialNeeds

from .sources import layout, overridden, render_with, say_of, script, strategy_of

DIALECT = HfTrainerDialect()
NEEDS = TrialNeeds(folder="trial", steps=7)


def arguments_of(source: ScriptSource, ranks: int = 2, **changes: Any) -> tuple[str, ...]:
    return render_with(DIALECT, source, ranks, **changes).script_args


def with_deepspeed(document: dict[str, Any], *arguments: str) -> ScriptSource:
    source = script("--deepspeed", "ds.json", *arguments)
    return dataclasses.replace(source, config=RawConfig(document), config_argument=1)


def test_the_defaults_are_those_of_training_arguments() -> None:
    found = DIALECT.read(script("--output_dir", "o"), world_size=2).baseline.layout
    assert (found.micro_batch, found.accumulation, found.zero_stage) == (8, 1, 0)


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (("--fsdp", "full_shard auto_wrap"), 3),
        (("--fsdp=shard_grad_op",), 2),
        (("--fsdp",), 3),
        (("--fsdp", ""), 0),
        ((), 0),
    ],
)
def test_fsdp_is_a_stage(words: tuple[str, ...], stage: int) -> None:
    assert DIALECT.read(script(*words), world_size=2).baseline.layout.zero_stage == stage


def test_another_stage_keeps_the_words_beside_the_strategy() -> None:
    source = script("--fsdp", "full_shard offload auto_wrap")
    assert arguments_of(source, zero_stage=2) == ("--fsdp", "shard_grad_op offload auto_wrap")
    assert arguments_of(source, zero_stage=0) == ()


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--fsdp is 'hybrid_shard', but must name one of"):
        DIALECT.read(script("--fsdp", "hybrid_shard"), world_size=2)


def test_checkpointing_is_a_switch() -> None:
    off, on = script("--lr", "1"), script("--gradient_checkpointing", "True", "--lr", "1")
    assert arguments_of(off, recompute=Recompute.FULL)[-1] == "--gradient_checkpointing"
    assert arguments_of(on, recompute=Recompute.NONE) == ("--lr", "1")


@pytest.mark.parametrize("words", [(), ("--gradient_checkpointing",)])
def test_checkpointing_that_is_on_by_default_is_turned_off_by_name(words: tuple[str, ...]) -> None:
    source = script(*words)
    source = dataclasses.replace(source, applied=strategy_of(recompute=Recompute.SELECTIVE))
    assert DIALECT.read(source, world_size=1).baseline.layout.recompute is Recompute.FULL
    assert render_with(DIALECT, source, recompute=Recompute.FULL).script_args == words
    off = ("--gradient_checkpointing", "false") if not words else ()
    assert render_with(DIALECT, source, recompute=Recompute.NONE).script_args == off


def test_an_argument_mapped_to_what_it_is_anyway_keeps_its_default() -> None:
    own = "--gradient_accumulation_steps"
    source = say_of(script(), arguments=(("gradient_accumulation_steps", own),))
    assert render_with(DIALECT, source, micro_batch=4, accumulation=2).script_args == (
        "--per_device_train_batch_size",
        "4",
        own,
        "2",
    )


def test_a_stage_that_the_script_sets_itself_is_not_searched() -> None:
    source = dataclasses.replace(script(), applied=strategy_of(zero_stage=3))
    user = DIALECT.read(overridden(source, "fast", "false"), world_size=2)
    assert user.baseline.layout.zero_stage == 3
    assert "zero_stage" not in {choice.knob for choice in user.choices}


def test_auto_in_the_deepspeed_file_is_filled_from_the_arguments() -> None:
    document: dict[str, Any] = {"zero_optimization": {"stage": 2}}
    document |= {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}
    source = with_deepspeed(document, "--per_device_train_batch_size", "4")
    made = render_with(DIALECT, source, 2, zero_stage=3, micro_batch=2, accumulation=2)
    filled = {"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 3}}
    assert made.config.to_dict() == {**document, **filled}
    assert made.script_args[:2] == ("--deepspeed", "trial/config.json")
    assert made.script_args[3] == "2"


def test_numbers_in_the_deepspeed_file_follow_the_arguments() -> None:
    document = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8}
    source = with_deepspeed(document, "--per_device_train_batch_size", "8")
    made = render_with(DIALECT, source, 2, micro_batch=4, accumulation=2)
    assert made.config.to_dict() == {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 0},
        "gradient_accumulation_steps": "auto",
    }


@pytest.mark.parametrize("path", ["args.json", "args.yaml"])
def test_arguments_in_one_file_are_read_and_written_there(path: str) -> None:
    text = json.dumps({"per_device_train_batch_size": 4, "output_dir": "o", "mine": [1]})
    source = script(path, files=(NamedFile(position=0, flag="", path=path, text=text),))
    made = render_with(DIALECT, source, 2, micro_batch=2, accumulation=2)
    (file,) = DIALECT.in_trial(made, source, NEEDS).files
    assert made.script_args == (f"trial/{file.name}",)
    assert file.name.endswith(path[-5:].lstrip("s"))
    found = json.loads(file.text)
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"]) == (2, 2)
    assert (found["mine"], found["save_strategy"], found["max_steps"]) == ([1], "no", 8)


def test_a_trial_saves_nothing_and_reports_nowhere() -> None:
    source = script("--output_dir", "o", "--report_to=wandb", "--push_to_hub")
    trial = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).script_args
    assert trial[:3] == ("--output_dir", "trial/output", "--report_to=none")
    assert ("--save_strategy", "no") in pairwise(trial)
    assert ("--push_to_hub", "false") in pairwise(trial)
    assert ("--max_steps", "8") in pairwise(trial)


def test_a_trial_neither_resumes_nor_evaluates_first() -> None:
    source = script("--resume_from_checkpoint", "out/checkpoint-9", "--eval_on_start", "True")
    trial = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).script_args
    assert "--resume_from_checkpoint" not in trial
    assert ("--eval_on_start", "false") in pairwise(trial)


def test_a_file_of_arguments_is_without_the_resuming_in_a_trial() -> None:
    text = json.dumps({"per_device_train_batch_size": 2, "resume_from_checkpoint": "out/c"})
    file = NamedFile(position=0, flag="", path="a.json", text=text)
    source = dataclasses.replace(script("a.json"), files=(file,))
    (made,) = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).files
    assert "resume_from_checkpoint" not in json.loads(made.text)


@pytest.mark.parametrize(
    ("version", "name"), [("4.40.2", "--evaluation_strategy"), ("4.41.0", "--eval_strategy")]
)
def test_evaluation_is_turned_off_by_the_name_of_the_version(version: str, name: str) -> None:
    source = script(versions=(("transformers", version),))
    trial = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).script_args
    assert trial[trial.index(name) + 1] == "no"


@pytest.mark.parametrize(
    ("version", "argument", "says"),
    [
        ("5.0.0", "--evaluation_strategy", r"gone in 4\.57\); use --eval_strategy"),
        ("5.1.0", "--no_cuda", "use --use_cpu"),
        ("4.44.2", "--use_liger_kernel", r"came in 4\.45"),
        ("4.20.0", "--lr", r"older than 4\.30"),
    ],
)
def test_an_argument_of_another_version_is_refused(version: str, argument: str, says: str) -> None:
    source = script(argument, "no", versions=(("transformers", version),))
    with pytest.raises(ConfigError, match=says):
        DIALECT.read(source, world_size=1)


def test_a_newer_version_is_said() -> None:
    user = DIALECT.read(script(versions=(("transformers", "9.0.1"),)), world_size=1)
    assert user.warnings == (
        "transformers 9.0.1 is newer than 5.23, the last one whose arguments were checked; "
        "assuming that they are the same.",
    )


def test_further_arguments_are_searched_where_they_are_listed() -> None:
    source = say_of(
        script("--optim", "adamw_torch", "--bf16"),
        knobs=(("--optim", ("adamw_torch", "adamw_torch_fused")), ("--torch_compile", (True,))),
    )
    user = DIALECT.read(source, world_size=2)
    values = {choice.knob: choice.values for choice in user.choices}
    assert values["optim"] == ("adamw_torch", "adamw_torch_fused")
    assert values["torch_compile"] == (None, True)
    assert user.workload.precision is Precision.BF16


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("--gradient_checkpointing", (False, True)),
        ("activation_checkpointing.mode", ("none", "full")),
    ],
)
def test_listed_words_of_a_known_knob_are_its_values(name: str, values: Any) -> None:
    source = say_of(script(), knobs=((name, values),))
    user = DIALECT.read(source, world_size=2)
    (choice,) = (choice for choice in user.choices if choice.knob == "recompute")
    assert choice.values == (Recompute.NONE, Recompute.FULL)


def test_a_listed_word_without_a_meaning_is_refused() -> None:
    source = say_of(script(), knobs=(("activation_checkpointing.mode", ("none", "selective")),))
    with pytest.raises(ConfigError, match="'selective', which is not known here"):
        DIALECT.read(source, world_size=2)


def test_stages_are_searched_where_all_of_it_is_wanted() -> None:
    fast = DIALECT.read(script(), world_size=2).choices
    full = DIALECT.read(overridden(script(), "fast", "false"), world_size=2).choices
    assert "zero_stage" not in {choice.knob for choice in fast}
    (stages,) = (choice for choice in full if choice.knob == "zero_stage")
    assert (stages.values, stages.how) == ((0, 2, 3), ChoiceKind.FREE)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("from transformers import HfArgumentParser, TrainingArguments", True),
        ("import transformers\ntransformers.HfArgumentParser(A)\ntransformers.Trainer()", True),
        ("from trl import SFTConfig, TrlParser", True),
        ("from transformers import Trainer, TrainingArguments\nTrainingArguments('o')", False),
        ("import lightning as L\nL.Trainer()", False),
        ("from transformers import AutoModel\nfrom accelerate import Accelerator", False),
    ],
)
def test_only_a_command_line_of_training_arguments_is_detected(text: str, known: bool) -> None:
    assert DIALECT.detects(script(text=text)) is known


def test_every_edit_of_a_candidate_leaves_the_others_alone() -> None:
    source = script("--lr", "1", "--fsdp", "full_shard", "--seed=3")
    user = DIALECT.read(source, world_size=2)
    made = DIALECT.render(layout(user, micro_batch=4), source, "c").script_args
    assert made == (*source.script_args, "--per_device_train_batch_size", "4")


def test_a_file_of_all_arguments_may_stand_behind_a_command() -> None:
    text = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\noutput_dir: o\n"
    file = NamedFile(position=1, flag="", path="a.yaml", text=text)
    source = script("train", "a.yaml", "learning_rate=1", files=(file,))
    found = DIALECT.read(source, world_size=1).baseline.layout
    assert (found.micro_batch, found.accumulation) == (2, 8)
    made = render_with(DIALECT, source, 1, micro_batch=4, accumulation=4)
    assert made.script_args == ("train", "trial/arguments.yaml", "learning_rate=1")
    assert json.loads(made.files[0].text)["per_device_train_batch_size"] == 4


def test_a_word_behind_a_file_of_all_arguments_outweighs_it() -> None:
    text = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
    file = NamedFile(position=1, flag="", path="a.yaml", text=text)
    source = script("train", "a.yaml", "per_device_train_batch_size=4", files=(file,))
    assert DIALECT.read(source, world_size=1).baseline.layout.micro_batch == 4
    made = render_with(DIALECT, source, 1, micro_batch=16, accumulation=2)
    assert made.script_args[-1] == "per_device_train_batch_size=16"
