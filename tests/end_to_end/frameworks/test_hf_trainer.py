"""A Hugging Face Trainer script, tuned and trained as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import ONE_AT_A_TIME, WITH_SOAK, LaunchIt, Run, as_asked, script

pytestmark = pytest.mark.slow
SIZES = ("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "4")
WORDS = (*SIZES, "--output_dir", "out", "--num_train_epochs", "1", "--use_cpu")
SAVING = ("--save_strategy", "steps", "--save_steps", "1")
EVALUATING = ("--eval_strategy", "steps", "--eval_on_start", "True")
EAGER = (*SAVING, *EVALUATING, "--dataloader_num_workers", "1")
ONE = "--knob=train_micro_batch_size_per_gpu=[4]"
TODAY = "--knob=train_micro_batch_size_per_gpu=[2]"
EIGHT = "--knob=train_micro_batch_size_per_gpu=[8]"


@pytest.fixture(scope="module")
def alone(launched: LaunchIt) -> Run:
    flags = ("--autotuning=run", "--num_gpus=1", *ONE_AT_A_TIME, ONE)
    return launched(*flags, script("hf_trainer"), *WORDS)


@pytest.fixture(scope="module")
def two_ranks(launched: LaunchIt) -> Run:
    flags = ("--autotuning=tune", *ONE_AT_A_TIME, ONE, "torchrun", "--nproc_per_node", "2")
    return launched(*flags, script("hf_trainer"), *WORDS, *EAGER)


def test_one_rank_is_tuned_and_trained_to_the_scripts_own_end(alone: Run) -> None:
    assert alone.code == 0, alone.output
    assert alone.trained == [(32, 8)], alone.output


def test_every_candidate_is_applied(alone: Run, two_ranks: Run) -> None:
    assert as_asked(alone), alone.output
    assert as_asked(two_ranks), two_ranks.output


def test_the_winner_trains_on_the_same_data(alone: Run, two_ranks: Run) -> None:
    for run in (alone, two_ranks):
        is_kept = "It is your configuration." in run.output
        assert "trains the same" in run.output or is_kept, run.output


def test_the_training_leaves_its_output_and_nothing_else(alone: Run) -> None:
    assert alone.left() == {"out"}
    assert (alone.folder / "out" / "model.safetensors").exists()


def test_trials_that_would_save_and_evaluate_at_every_step_leave_nothing(two_ranks: Run) -> None:
    assert two_ranks.code == 0, two_ranks.output
    assert two_ranks.left() == set()


def test_two_ranks_run_as_ddp(two_ranks: Run) -> None:
    found = {rank["applied"]["description"] for _, rank in two_ranks.ranks()}
    assert found == {"LlamaForCausalLM: DDP over 2 ranks, AdamW"}


def test_arguments_in_a_file_are_tuned_there(launched: LaunchIt) -> None:
    document = {
        "output_dir": "out",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "use_cpu": True,
    }
    run = launched(
        *("--autotuning=tune", "--num_gpus=1", *ONE_AT_A_TIME, ONE),
        script("hf_trainer"),
        "arguments.json",
        files={"arguments.json": json.dumps(document)},
    )
    assert run.code == 0, run.output
    assert as_asked(run), run.output
    assert run.left() == {"arguments.json"}


def test_fsdp_that_runs_as_ddp_is_not_applied(launched: LaunchIt) -> None:
    stages = "--knob=zero_optimization.stage=[0, 3]"
    run = launched(
        *("--autotuning=tune", "--num_gpus=2", *ONE_AT_A_TIME, stages),
        *("--knob=train_micro_batch_size_per_gpu=[2]", script("hf_trainer"), *WORDS),
    )
    assert run.code == 0, run.output
    failure = run.failure("z3_gas4_tmbspg2")
    assert failure["kind"] == "not_applied"
    assert "zero_stage 0 instead of 3 (asked by --fsdp)" in failure["detail"]


def test_one_rank_out_of_memory_ends_the_trial_and_not_the_tune(launched: LaunchIt) -> None:
    run = launched(
        *("--autotuning=tune", "--num_gpus=2", *ONE_AT_A_TIME, ONE),
        *(script("hf_trainer"), *WORDS, "--greedy_from", "4"),
    )
    assert run.code == 0, run.output
    assert run.failure("z0_gas2_tmbspg4")["kind"] == "out_of_memory"
    assert run.failure("z0_gas2_tmbspg4")["detail"].startswith("rank 1: ")


def test_the_winners_soak_evaluates_and_saves_and_leaves_nothing(launched: LaunchIt) -> None:
    words = (script("hf_trainer"), *WORDS, "--eval_strategy", "epoch")
    run = launched("--autotuning=tune", "--num_gpus=2", *WITH_SOAK, TODAY, *words)
    assert run.code == 0, run.output
    assert "Exercised: 1 evaluation (" in run.output
    assert ", 1 checkpoint (" in run.output
    assert "--eval_strategy steps" in run.soak_command()
    assert (run.checkpoints(), run.left()) == ([], set())


def test_an_evaluation_that_is_off_stays_off_in_the_soak(launched: LaunchIt) -> None:
    words = (script("hf_trainer"), *WORDS, "--save_strategy", "no")
    run = launched("--autotuning=tune", "--num_gpus=1", *WITH_SOAK, TODAY, *words)
    assert run.code == 0, run.output
    assert "Exercised: 1 checkpoint (" in run.output
    assert "Not exercised: evaluation" in run.output


def test_arguments_mapped_to_what_they_are_anyway_keep_their_defaults(launched: LaunchIt) -> None:
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    flags = ("--per_device_train_batch_size", "--gradient_accumulation_steps")
    mapped = (f"--arg={name}={flag}" for name, flag in zip(names, flags, strict=True))
    words = (script("hf_trainer"), "--output_dir", "out", "--use_cpu")
    run = launched("--autotuning=tune", "--num_gpus=1", *ONE_AT_A_TIME, ONE, *mapped, *words)
    assert run.code == 0, run.output
    assert as_asked(run), run.output
    assert {name for name, _ in run.ranks()} >= {"z0_gas1_tmbspg8", "z0_gas2_tmbspg4"}


def test_what_a_scripts_own_defaults_apply_is_the_baseline(launched: LaunchIt) -> None:
    off = "--knob=--gradient_checkpointing=[false]"
    words = (script("own_defaults"), "--output_dir", "out", "--use_cpu", "--max_steps", "9")
    run = launched("--autotuning=tune", "--num_gpus=1", *ONE_AT_A_TIME, ONE, off, *words)
    assert run.code == 0, run.output
    assert "ran with micro-batch 4 and recompute full, which no argument sets" in run.output
    found = {name: rank["applied"]["recompute"] for name, rank in run.ranks()}
    assert (found["z0_acfull_gas2_tmbspg4"], found["z0_gas2_tmbspg4"]) == ("full", "none")
    assert as_asked(run), run.output


def test_checkpoints_of_trials_are_not_resumed_by_the_training(launched: LaunchIt) -> None:
    flags = ("--num_gpus=1", *WITH_SOAK, TODAY, "--allow-global-batch-change")
    run = launched("--autotuning=tune", *flags, script("hf_own_arguments"), "--batch_size", "2")
    assert run.code == 0, run.output
    assert ", 1 checkpoint (" in run.output
    assert (run.checkpoints(), run.left()) == ([], set())


def test_the_users_checkpoint_is_resumed_after_a_tune(launched: LaunchIt) -> None:
    words = (script("hf_own_arguments"), "--epochs", "2")
    plain = ("--num_gpus=1", "--no_local_rank")
    first = launched(*plain, script("hf_own_arguments"))
    kept = contents(first.folder / "out")
    assert {"checkpoint-11/model.safetensors", "checkpoint-11/tokenizer.json"} <= kept.keys()
    flags = ("--autotuning=tune", *WITH_SOAK, "--allow-global-batch-change", EIGHT)
    tune = launched("--num_gpus=1", *flags, *words, folder=first.folder)
    assert tune.code == 0, tune.output
    assert contents(first.folder / "out") == kept
    run = launched(*plain, *words, "--resume", folder=first.folder)
    assert run.trained == [(22, 8)], run.output


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Each file's, and when it was written."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in paths
    }
