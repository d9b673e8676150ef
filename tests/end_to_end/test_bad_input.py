"""Each ends with one sentence, the right exit code and no process left (see ``place``)."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from .conftest import SCRIPT, SMALL, Place

USAGE, INFEASIBLE, HARDWARE = 2, 3, 4
FEW = ("--tuner-num-trials=1",)
HERE = ("--autotuning=tune", str(SCRIPT), "--config", "config.json")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("this is no json", "config.json cannot be read"),
        ({**SMALL, "autotuning": {"tuner_typ": 1}}, "did you mean 'tuner_type'"),
        ({**SMALL, "parallelism": {"tenser": 1}}, "did you mean 'tensor'"),
        ({**SMALL, "train_batch_size": 5}, "train_batch_size is 5, but train_micro_batch"),
        ({**SMALL, "autotuning": {"tuner_type": "gridserch"}}, "did you mean 'gridsearch'"),
        ({"layers": 3}, "names no configuration file with keys that can be tuned"),
        ({**SMALL, "train_micro_batch_size_per_gpu": [None]}, "size_per_gpu lists null"),
        ({**SMALL, "gradient_accumulation_steps": [None]}, "accumulation_steps lists null"),
        ({**SMALL, "zero_optimization": {"stage": [None]}}, "optimization.stage lists null"),
        ({**SMALL, "zero_optimization": [None]}, "zero_optimization is [None], but must be"),
        ({**SMALL, "autotuning": [None]}, "autotuning is [None], but must be a section"),
        ({**SMALL, "train_micro_batch_size_per_gpu": 10**19}, "at most 2147483648"),
        (
            {
                **SMALL,
                "train_micro_batch_size_per_gpu": 2**31,
                "gradient_accumulation_steps": 2**31,
            },
            "samples (micro-batch, accumulation, data parallelism) are more than a step can have",
        ),
        ({**SMALL, "mine": 10**400}, "config.json cannot be read: mine is a whole number beyond"),
        ({**SMALL, "mine": {"a": float("nan")}}, "config.json cannot be read: mine.a is NaN"),
        ({**SMALL, "autotuning": {"results_dir": "a\0"}}, "results_dir is 'a\\x00', which has"),
    ],
)
def test_a_wrong_configuration_is_a_usage_error(place: Place, document: Any, says: str) -> None:
    place.write_config(document)
    code, output = place.refusal(*HERE)
    assert code == USAGE, output
    assert says in output


@pytest.mark.parametrize(
    "words",
    [
        ("--autotuning=tune", str(SCRIPT), "--config", "{}.json"),
        ("--autotuning=tune", "--hostfile={}", str(SCRIPT), "--config", "config.json"),
        ("--autotuning=tune", "--tuning-space={}.json", str(SCRIPT), "--config", "config.json"),
        ("validate", "{}"),
        ("fit", "--model=llama3.1-8b", "--cluster={}.json", "--seq=8", "--global-batch=8"),
    ],
)
def test_a_pipe_and_an_endless_file_are_no_input(place: Place, words: tuple[str, ...]) -> None:
    for name in ("pipe", "endless"):
        for path in (place.folder / name, place.folder / f"{name}.json"):
            os.mkfifo(path) if name == "pipe" else path.symlink_to("/dev/zero")
        code, output = place.refusal(*(word.format(name) for word in words))
        assert (code, len(output.splitlines())) == (USAGE, 1), output
        assert "it is not a regular file" in output


def test_all_that_is_wrong_with_a_configuration_is_told_at_once(place: Place) -> None:
    warm_up = {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}
    wrong = {"scheduler": warm_up, "zero_optimization": {"stage": 9}}
    without = {key: value for key, value in SMALL.items() if key != "optimizer"}
    place.write_config({**without, **wrong})
    code, output = place.refusal(*HERE)
    assert (code, output) == (
        USAGE,
        "autoconf-launch: scheduler.params.warmup_max_lr and scheduler.params.warmup_num_steps "
        'are "auto", but autotuning.arg_mappings maps no given argument to them; give each of '
        'them a value. config.json has no optimizer; add "optimizer": {"type": "AdamW", "params": '
        '{"lr": 1e-4}} or pass optimizer= to initialize. zero_optimization.stage is 9, but ZeRO '
        "has stages 0 to 3.",
    )


def test_an_error_ends_the_command_with_its_line_and_code(place: Place) -> None:
    code, output = place.tune_here(script="nowhere.py")
    assert code == USAGE
    assert output.startswith("autoconf-launch: Script nowhere.py does not exist")
    assert len(output.splitlines()) == 1


def test_a_silence_between_steps_is_a_stall(place: Place) -> None:
    code, output = place.tune_here("--stall-timeout=1s", fault="hang")
    assert code == INFEASIBLE, output
    assert "stalled: made 1 step, then none" in output


@pytest.mark.parametrize(
    ("limit", "says", "is_launched"),
    [
        ("120MB", "out_of_memory", True),
        pytest.param(
            "100MB",
            "The model does not fit: 16.8 M parameters with their gradients and optimizer state "
            "take at least 134 MB per rank, and its memory is 100 MB.",
            False,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_model_that_does_not_fit_at_micro_batch_1_is_said_not_to_fit(
    place: Place, limit: str, says: str, is_launched: bool
) -> None:
    script = place.folder / "large.py"
    script.write_text(SCRIPT.read_text().replace("default=32", "default=4096"))
    code, output = place.tune_here(f"--memory-limit={limit}", script=str(script))
    assert code == INFEASIBLE, output
    assert says in output
    assert (place.results / "z0_gas4_tmbspg1").exists() is is_launched


def test_an_unwritable_results_folder_is_a_usage_error(place: Place) -> None:
    code, output = place.tune_here("--results-dir=/proc/results")
    assert code == USAGE, output
    assert "cannot be written" in output


def test_a_full_disk_is_said(place: Place) -> None:
    disk = place.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a test mount a small disk")
    try:
        (disk / "full").write_bytes(b"x" * 4096)
        code, output = place.tune_here(f"--results-dir={disk}/results")
        assert code == HARDWARE, output
        assert "the disk is full" in output
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_a_torn_journal_line_costs_one_trial_and_no_more(place: Place) -> None:
    assert place.tune(*FEW)[0] == 0
    journal = place.results / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: whole.rstrip().rindex(b"\n") + 40])
    code, output = place.tune(*FEW)
    assert code == 0, output
    assert "resumed" in output
