"""Whole inference searches of small models on this machine, by the command."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.launcher.results import FolderState, read_results

pytest.importorskip("hydra")
pytest.importorskip("transformers")

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}
INFERENCE = "search_config.inference_settings"
TRAIN = "search_config.train_settings"
POINTS = (
    f"{TRAIN}.model_size_in_b=0.003",
    f"{TRAIN}.vocab_size=500",
    f"{TRAIN}.seq_length=64",
    f"{TRAIN}.gpus_per_node=2",
    f"{INFERENCE}.run.model_train_name=tiny",
    f"{INFERENCE}.benchmark.input_len=8",
    f"{INFERENCE}.benchmark.output_len=4",
)


def search(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "autoconf_launch.launcher.cli", "search", "cluster_type=local"),
        *("search_config=gpt3/unknown_size", f"base_results_dir={folder}"),
        *("run_training_hp_search=False", *POINTS, *words),
    ]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=600
    )


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "final_summary" / "final_output.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def lists(tensor: str, pipeline: str, batches: str) -> tuple[str, ...]:
    return (
        f"{INFERENCE}.run.tensor_parallel_sizes={tensor}",
        f"{INFERENCE}.run.pipeline_parallel_sizes={pipeline}",
        f"{INFERENCE}.benchmark.batch_sizes={batches}",
    )


def test_a_search_measures_what_it_can_and_says_why_of_the_rest(tmp_path: Path) -> None:
    """Lengths beyond the model's positions leave the others searched."""
    sizes = (*lists("[1,2]", "[1,3]", "[2]"), f"{INFERENCE}.benchmark.input_len=[8,100]")
    done = search(tmp_path, *sizes)
    assert done.returncode == 3, done.stderr
    assert "tiny has 64 positions, but 100 tokens are read" in done.stderr.splitlines()[-1]
    assert "Recommended: tiny_tp" in done.stdout
    folder = tmp_path / "gpt3" / "unknown_size_80gb" / "inference" / "in8_out4"
    table = rows(folder)
    measured = [row for row in table if row["Latency [ms]"]]
    assert {(row["TP"], row["PP"]) for row in measured} == {("1", "1"), ("2", "1")}
    for row in measured:
        parts_ms = float(row["TTFT [ms]"]) + 3 * float(row["Time per Token [ms]"])
        assert parts_ms == pytest.approx(float(row["Latency [ms]"]), rel=0.02)
        assert float(row["Peak Memory [GiB]"]) > 0
    assert [row["Reason"].rpartition(": ")[2] for row in table[2:]] == [
        "needs 3 ranks, but there are 2 slots",
        "needs 6 ranks, but there are 2 slots",
    ]
    names = {"inference_sweep_configs.csv", "analysis_summary.log", "pareto.csv"}
    assert names < {path.name for path in (folder / "final_summary").iterdir()}
    shown = read_results(folder)
    assert shown.state is FolderState.FINISHED
    assert shown.summary_text == done.stdout
    before = (folder / "journal.jsonl").read_text()
    again = search(tmp_path, *sizes, f"{INFERENCE}.max_latency_ms=0.001", "--json")
    assert again.returncode == 3
    (document,) = json.loads(again.stdout)["searches"]
    assert len(document["runs"]) == 4
    assert document["recommended"] == []
    assert (folder / "journal.jsonl").read_text() == before, "measured twice"


@pytest.mark.slow
def test_a_training_and_an_inference_search_end_in_both_recommendations(tmp_path: Path) -> None:
    words = (
        "run_training_hp_search=True",
        f"{TRAIN}.global_batch_size=4",
        f"{TRAIN}.num_tokens_in_b=0.01",
        f"{TRAIN}.limit_search_runs=2",
        f"{TRAIN}.max_steps_per_run=4",
    )
    done = search(tmp_path, *words, *lists("[1]", "[1]", "[1,2]"))
    assert done.returncode == 0, done.stderr
    assert "Optimal config" in done.stdout
    assert "Recommended: tiny_tp1_pp1_bs" in done.stdout


@pytest.mark.slow
def test_several_lengths_have_a_folder_each(tmp_path: Path) -> None:
    words = (*lists("[1]", "[1]", "[1]"), f"{INFERENCE}.benchmark.input_len=[4,8]")
    done = search(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "gpt3" / "unknown_size_80gb" / "inference"
    assert [len(rows(folder / name)) for name in ("in4_out4", "in8_out4")] == [1, 1]
