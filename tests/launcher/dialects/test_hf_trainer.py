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

from .sources import overridden, render_with, require_facts, say_of, script, strategy_of

DIALECT = HfTrainerDialect()
NEEDS = TrialNeeds(folder="trial", steps=7)
MODES = (Recompute.NONE, Recompute.FULL)


def arguments_of(source: ScriptSource, ranks: int = 2, **changes: Any) -> tuple[str, ...]:
    return render_with(DIALECT, source, ranks, **changes).script_args


def with_deepspeed(document: dict[str, Any], *arguments: str) -> ScriptSource:
    source = script("--deepspeed", "ds.json", *arguments)
    return dataclasses.replace(source, config=RawConfig(document), config_argument=1)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("--output_dir o", {"micro_batch": 8, "accumulation": 1, "zero_stage": 0}),
        ("--fsdp=full_shard", {"zero_stage": 3, "zero_stage?": None}),
        ("--fsdp=shard_grad_op", {"zero_stage": 2}),
        ("--fsdp", {"zero_stage": 3}),
        ("--fsdp=", {"zero_stage": 0}),
        ("--bf16", {"precision": Precision.BF16}),
    ],
)
def test_training_arguments_and_their_defaults_are_read(line: str, facts: dict[str, Any]) -> None:
    require_facts(DIALECT.read(script(*line.split()), world_size=2), **facts)


OFFLOADED = ("--fsdp", "full_shard offload auto_wrap")


@pytest.mark.parametrize(
    ("words", "changes", "made"),
    [
        (OFFLOADED, {"zero_stage": 2}, ("--fsdp", "shard_grad_op offload auto_wrap")),
        (OFFLOADED, {"zero_stage": 0}, ()),
        (("--lr=1",), {"recompute": Recompute.FULL}, ("--lr=1", "--gradient_checkpointing")),
        (
            ("--gradient_checkpointing", "True", "--lr", "1"),
            {"recompute": Recompute.NONE},
            ("--lr", "1"),
        ),
        (
            ("--lr", "1", *OFFLOADED, "--seed=3"),
            {"micro_batch": 4},
            ("--lr", "1", *OFFLOADED, "--seed=3", "--per_device_train_batch_size", "4"),
        ),
    ],
)
def test_a_candidate_changes_its_own_arguments_only(
    words: tuple[str, ...], changes: dict[str, Any], made: tuple[str, ...]
) -> None:
    assert arguments_of(script(*words), **changes) == made


@pytest.mark.parametrize(
    ("words", "version", "says"),
    [
        (("--fsdp", "hybrid_shard"), "5.0.0", r"--fsdp is 'hybrid_shard', but must name one of"),
        (("--evaluation_strategy", "no"), "5.0.0", r"gone in 4\.57\); use --eval_strategy"),
        (("--no_cuda", "no"), "5.1.0", "use --use_cpu"),
        (("--use_liger_kernel", "no"), "4.44.2", r"came in 4\.45"),
        (("--lr", "no"), "4.20.0", r"older than 4\.30"),
    ],
)
def test_an_unknown_strategy_or_an_argument_of_another_version_is_refused(
    words: tuple[str, ...], version: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        DIALECT.read(script(*words, versions=(("transformers", version),)), world_size=2)


def test_an_argument_mapped_to_what_it_is_anyway_keeps_its_default() -> None:
    own = "--gradient_accumulation_steps"
    source = say_of(script(), arguments=(("gradient_accumulation_steps", own),))
    expected = ("--per_device_train_batch_size", "4", own, "2")
    assert arguments_of(source, ranks=1, micro_batch=4, accumulation=2) == expected


@pytest.mark.parametrize("words", [(), ("--gradient_checkpointing",)])
def test_checkpointing_that_is_on_by_default_is_turned_off_by_name(words: tuple[str, ...]) -> None:
    source = script(*words)
    source = dataclasses.replace(source, applied=strategy_of(recompute=Recompute.SELECTIVE))
    assert DIALECT.read(source, world_size=1).baseline.layout.recompute is Recompute.FULL
    assert render_with(DIALECT, source, recompute=Recompute.FULL).script_args == words
    off = ("--gradient_checkpointing", "false") if not words else ()
    assert render_with(DIALECT, source, recompute=Recompute.NONE).script_args == off


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


def arguments_in(path: str, position: int, *words: str, **values: Any) -> ScriptSource:
    """A script whose arguments are in a file."""
    file = NamedFile(position=position, flag="", path=path, text=json.dumps(values))
    return script(*words, files=(file,))


@pytest.mark.parametrize("path", ["args.json", "args.yaml"])
def test_arguments_in_one_file_are_read_and_written_there(path: str) -> None:
    own = {"output_dir": "o", "mine": [1], "resume_from_checkpoint": "out/c"}
    source = arguments_in(path, 0, path, per_device_train_batch_size=4, **own)
    made = render_with(DIALECT, source, 2, micro_batch=2, accumulation=2)
    (file,) = DIALECT.in_trial(made, source, NEEDS).files
    assert made.script_args == (f"trial/{file.name}",)
    assert file.name.endswith(path[-5:].lstrip("s"))
    found = json.loads(file.text)
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"]) == (2, 2)
    assert (found["mine"], found["save_strategy"], found["max_steps"]) == ([1], "no", 8)
    assert "resume_from_checkpoint" not in found


@pytest.mark.parametrize(
    ("word", "micro", "changed", "in_file"),
    [
        ("learning_rate=1", 2, "learning_rate=1", 16),
        ("per_device_train_batch_size=4", 4, "per_device_train_batch_size=16", 2),
    ],
)
def test_a_file_of_all_arguments_may_stand_behind_a_command_and_words_behind_it_outweigh_it(
    word: str, micro: int, changed: str, in_file: int
) -> None:
    batch = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
    source = arguments_in("a.yaml", 1, "train", "a.yaml", word, **batch)
    require_facts(DIALECT.read(source, world_size=1), micro_batch=micro, accumulation=8)
    made = render_with(DIALECT, source, 1, micro_batch=16, accumulation=2)
    assert made.script_args == ("train", "trial/arguments.yaml", changed)
    found = json.loads(made.files[0].text)
    assert (found["per_device_train_batch_size"], found["gradient_accumulation_steps"]) == (
        in_file,
        2,
    )


def test_a_trial_saves_nothing_reports_nowhere_and_neither_resumes_nor_evaluates_first() -> None:
    words = ("--output_dir", "o", "--report_to=wandb", "--push_to_hub", "--eval_on_start", "True")
    source = script(*words, "--resume_from_checkpoint", "out/checkpoint-9")
    trial = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).script_args
    assert trial[:3] == ("--output_dir", "trial/output", "--report_to=none")
    assert "--resume_from_checkpoint" not in trial
    for pair in (
        ("--save_strategy", "no"),
        ("--push_to_hub", "false"),
        ("--max_steps", "8"),
        ("--eval_on_start", "false"),
    ):
        assert pair in pairwise(trial)


@pytest.mark.parametrize(
    ("version", "name"), [("4.40.2", "--evaluation_strategy"), ("4.41.0", "--eval_strategy")]
)
def test_evaluation_is_turned_off_by_the_name_of_the_version(version: str, name: str) -> None:
    source = script(versions=(("transformers", version),))
    trial = DIALECT.in_trial(render_with(DIALECT, source), source, NEEDS).script_args
    assert trial[trial.index(name) + 1] == "no"


def test_a_newer_version_is_said() -> None:
    user = DIALECT.read(script(versions=(("transformers", "9.0.1"),)), world_size=1)
    assert user.warnings == (
        "transformers 9.0.1 is newer than 5.23, the last one whose arguments were checked; "
        "assuming that they are the same.",
    )


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


@pytest.mark.parametrize(
    ("words", "knobs", "facts"),
    [
        (
            "--optim adamw_torch",
            {"--optim": ("adamw_torch", "adamw_torch_fused"), "--torch_compile": (True,)},
            {"optim?": ("adamw_torch", "adamw_torch_fused"), "torch_compile?": (None, True)},
        ),
        ("", {"--gradient_checkpointing": (False, True)}, {"recompute?": MODES}),
        ("", {"activation_checkpointing.mode": ("none", "full")}, {"recompute?": MODES}),
    ],
)
def test_further_arguments_are_searched_where_they_are_listed(
    words: str, knobs: dict[str, tuple[Any, ...]], facts: dict[str, Any]
) -> None:
    source = say_of(script(*words.split()), knobs=tuple(knobs.items()))
    require_facts(DIALECT.read(source, world_size=2), **facts)


def test_a_listed_word_without_a_meaning_is_refused() -> None:
    source = say_of(script(), knobs=(("activation_checkpointing.mode", ("none", "selective")),))
    with pytest.raises(ConfigError, match="'selective', which is not known here"):
        DIALECT.read(source, world_size=2)


def test_stages_are_searched_where_all_of_it_is_wanted() -> None:
    require_facts(DIALECT.read(script(), world_size=2), **{"zero_stage?": None})
    full = DIALECT.read(overridden(script(), "fast", "false"), world_size=2).choices
    (stages,) = (choice for choice in full if choice.knob == "zero_stage")
    assert (stages.values, stages.how) == ((0, 2, 3), ChoiceKind.FREE)
