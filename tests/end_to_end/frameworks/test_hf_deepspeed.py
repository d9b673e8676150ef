"""Trainer with ``--deepspeed FILE`` on real DeepSpeed, and the documented blocks with it.

The files are those of DeepSpeed's Autotuning page, as they are printed there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ...launcher.dialects.documented_blocks import BLOCKS, HUGGING_FACE
from .conftest import LaunchIt, Run, as_asked, script

pytestmark = [pytest.mark.slow, pytest.mark.deepspeed]
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "03_hf_trainer" / "train.py")
ON_CPU = {"DS_ACCELERATOR": "cpu"}
"""Without an accelerator DeepSpeed must be told so."""
QUICK = (
    *("--num_gpus=2", "--max-parallel-trials=1", "--soak_steps=0", "--end_profile_step=4"),
    "--trial-timeout=300",  # DeepSpeed compiles an extension in its first launch on a machine
)
IN_ORDER = ("--tuner_type=gridsearch", "--strategy=global", "--tuner-early-stopping=50")
MOST = "--max_train_micro_batch_size_per_gpu="
FILE = ("--deepspeed", "ds.json")
SIZES = ("--use_cpu", "--output_dir", "out", "--hidden_size", "32", "--num_train_epochs", "1")
SMALL = (*SIZES, "--layers", "1", "--sequence", "16", "--samples", "64")
NARROWED = {"stages_2_and_3": {2, 3}, "override": {1}}
COMPLETE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {
            "lr": "auto",
            "betas": "auto",
            "eps": "auto",
            "weight_decay": "auto",
            "torch_adam": True,
        },
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "total_num_steps": 16,
            "warmup_num_steps": 3,
            "warmup_min_lr": 0,
            "warmup_max_lr": "auto",
        },
    },
    "zero_optimization": {
        "stage": [2, 3],
        "reduce_bucket_size": "auto",
        "offload_param": {"device": "cpu"},
    },
    "aio": {"block_size": 262144, "queue_depth": 16},
}
"""Keys that Trainer compares with its arguments: one of each kind, as "auto" or as a number."""


def tune(launched: LaunchIt, text: str, *words: str) -> Run:
    return launched(*words, files={"ds.json": text}, variables=ON_CPU)


def apply(run: Run) -> set[tuple[int, int]]:
    """Stage and micro-batch of each launch that a rank reported."""
    ranks = [rank["applied"] for _, rank in run.ranks() if rank["applied"]]
    return {(rank["zero_stage"], rank["micro_batch"]) for rank in ranks}


def optimum(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run.results / "ds_config_optimal.json").read_text())
    return content


@pytest.fixture(scope="module")
def guide(launched: LaunchIt) -> Run:
    """The page's own example, in which nothing says a stage."""
    words = (script("hf_trainer"), *FILE, *SIZES, "--samples", "64")
    flags = ("--autotuning=run", *QUICK, *IN_ORDER, f"{MOST}2")
    return tune(launched, HUGGING_FACE, *flags, *words, "--per_device_train_batch_size", "2")


def test_the_guides_own_example_tries_every_stage(guide: Run) -> None:
    assert guide.code == 0, guide.output
    assert apply(guide) == {(stage, 2) for stage in range(4)}
    assert as_asked(guide), guide.output


def test_trainer_hands_every_stage_to_deepspeed(guide: Run) -> None:
    described = {rank["applied"]["description"] for _, rank in guide.ranks()}
    assert all("DeepSpeed" in text for text in described), described


def test_it_trains_with_the_winner_to_the_scripts_own_end(guide: Run) -> None:
    ((steps, samples),) = guide.trained
    assert steps * samples == 64
    assert (guide.folder / "out" / "model.safetensors").exists()
    assert guide.left() == {"out", "ds.json"}


def test_the_best_file_leaves_the_batch_to_the_arguments(guide: Run) -> None:
    document = optimum(guide)
    assert document.pop("zero_optimization").keys() == {"stage"}
    assert set(document.values()) == {"auto"}


def test_all_that_trainer_compares_stays_consistent(launched: LaunchIt) -> None:
    """With another batch, too, of which the steps of the schedule follow."""
    larger = "--knob=train_micro_batch_size_per_gpu=[4]"
    words = (EXAMPLE, *FILE, *SMALL, "--warmup_steps", "3", "--per_device_train_batch_size", "2")
    run = tune(
        launched, json.dumps(COMPLETE), "--autotuning=run", *QUICK, *IN_ORDER, larger, *words
    )
    assert run.code == 0, run.output
    assert apply(run) == {(2, 2), (2, 4), (3, 4)}
    document = optimum(run)
    assert (
        document["zero_optimization"].items()
        >= {
            "reduce_bucket_size": "auto",
            "offload_param": {"device": "cpu"},
        }.items()
    )
    assert document["aio"] == COMPLETE["aio"]
    assert document["optimizer"] == COMPLETE["optimizer"]


@pytest.mark.parametrize("name", sorted(BLOCKS.keys() - {"space_of_stage_1"}))
def test_each_block_of_the_page_is_tuned(launched: LaunchIt, name: str) -> None:
    flags = ("--autotuning=tune", *QUICK, "--budget=2trials", f"{MOST}4")
    words = (EXAMPLE, *FILE, *SMALL, "--per_device_train_batch_size", "2")
    run = tune(launched, BLOCKS[name], *flags, *words)
    assert run.code == 0, run.output
    tried = apply(run)
    assert {stage for stage, _ in tried} <= NARROWED.get(name, {0, 1, 2, 3})
    assert len(tried) == 2 or name == "override", tried
    assert isinstance(optimum(run)["zero_optimization"]["stage"], int)
