"""Whole searches of small models on this machine, by the command."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autoconf_launch.launcher.results import FolderState, read_results

pytest.importorskip("hydra")
pytest.importorskip("transformers")

SIZES = {"gpt3": 0.001, "t5": 0.0005, "mt5": 0.0005, "bert": 0.001, "llama": 0.002}
PRICE_USD = 2.0
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}


def search(
    folder: Path, family: str, words: tuple[str, ...] = (), **settings: object
) -> subprocess.CompletedProcess[str]:
    values = {
        "model_size_in_b": SIZES[family],
        "vocab_size": 512,
        "seq_length": 32,
        "global_batch_size": 8,
        "gpus_per_node": 2,
        "num_tokens_in_b": 0.01,
        "limit_search_runs": 2,
        "max_steps_per_run": 5,
        "max_minutes_per_run": 5,
        **settings,
    }
    command = [
        *(sys.executable, "-m", "autoconf_launch.launcher.cli", "search", "cluster_type=local"),
        *(f"search_config={family}/unknown_size", f"base_results_dir={folder}"),
        "run_inference_hp_search=False",
        *(f"search_config.train_settings.{key}={value}" for key, value in values.items()),
        *words,
    ]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=900
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("family", SIZES)
def test_a_search_ends_in_final_results(family: str, tmp_path: Path) -> None:
    done = search(tmp_path, family, (f"cluster.usd_per_gpu_hour={PRICE_USD}",))
    assert done.returncode == 0, done.stderr
    logs = tmp_path / family / "unknown_size_80gb"
    base = yaml.safe_load((logs / f"base_cfg_{SIZES[family]}b.yaml").read_text())
    final = logs / "final_results"
    best = yaml.safe_load((final / f"optimal_config_{SIZES[family]}b_1nodes.yaml").read_text())
    measured = rows(final / "final_summary_1nodes.csv")
    names = {path.stem for path in (logs / "candidate_configs").iterdir()}
    assert len(measured) == len(names) == 2
    assert all((logs / "training_logs" / name / "steps.jsonl").is_file() for name in names)
    assert best.get("run") == base.get("run")  # a recipe has none
    for document in (best, base):
        document["trainer"].pop("strategy", None)  # a recipe's degrees of parallelism
    assert best["trainer"] == base["trainer"]
    assert base["trainer"]["max_steps"] > 5
    candidates = [
        yaml.safe_load(path.read_text()) for path in (logs / "candidate_configs").iterdir()
    ]
    assert best["model"] in [one["model"] for one in candidates]
    assert {one["trainer"]["max_steps"] for one in candidates} == {5}
    times = [float(row["Time per Step"]) for row in measured]
    assert times == sorted(times)
    for row in measured:
        days = 0.01e9 / (8 * int(row["Seq Length"])) * float(row["Time per Step"]) / 86400
        assert float(row["Days to Train"]) == pytest.approx(days, rel=0.01)
        assert float(row["Cost [USD]"]) == pytest.approx(
            days * 24 * 2 * PRICE_USD, rel=0.01, abs=0.01
        )
    assert all(
        "not started" in row["Error Message"] for row in rows(final / "failed_jobs_1nodes.csv")
    )
    assert "Optimal config:" in done.stdout
    shown = read_results(logs / "training_logs")
    assert shown.state is FolderState.FINISHED
    assert shown.summary_text == done.stdout
    assert re.search(r"candidates?: \d+ measured, \d+ failed, \d+ not run\.\nBest: ", done.stdout)


@pytest.mark.slow
def test_layouts_of_every_kind_are_measured_here(tmp_path: Path) -> None:
    """Two ranks as replicas, tensor ranks and pipeline stages."""
    done = search(
        tmp_path,
        "llama",
        model_size_in_b=0.005,
        micro_batch_sizes="[4]",
        act_ckpt_layers="[0]",
        context_parallel_sizes="[1]",
        limit_search_runs=0,
        max_steps_per_run=3,
    )
    assert done.returncode == 0, done.stderr
    final = tmp_path / "llama/unknown_size_80gb/final_results"
    degrees = {(row["TP"], row["PP"]) for row in rows(final / "final_summary_1nodes.csv")}
    assert degrees == {("1", "1"), ("2", "1"), ("1", "2")}
    assert not rows(final / "failed_jobs_1nodes.csv")


@pytest.mark.slow
def test_a_step_with_no_time_is_extrapolated_from_its_micro_batches(tmp_path: Path) -> None:
    done = search(
        tmp_path,
        "gpt3",
        global_batch_size=32768,
        micro_batch_sizes="[1]",
        limit_search_runs=1,
        max_minutes_per_run=0.2,
    )
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "gpt3/unknown_size_80gb/final_results/final_summary_1nodes.csv")
    made, of, whole, _ = row["Extrapolated from"].split()
    assert (row["Steps"], of, whole) == ("0", "of", "16384")
    assert 2 <= int(made) < 16384
    assert float(row["Time per Step"]) > 12.0
    assert f"extrapolated from {made} of 16384 micro-batches" in done.stdout


@pytest.mark.slow
def test_the_seeds_own_line_runs_here_with_its_paths_replaced(tmp_path: Path) -> None:
    """On a machine that is small for 126 million parameters: with a smaller model."""
    for name in ("auto_configurator", "the_pile_gpt3"):
        (tmp_path / name).mkdir()
    small = {"model_size_in_b": 0.001, "vocab_size": 512, "seq_length": 32, "gpus_per_node": 2}
    short = {"limit_search_runs": 1, "max_steps_per_run": 5, "global_batch_size": 8}
    command = [
        *(sys.executable, "-m", "autoconf_launch.launcher.cli", "search"),
        *("search_config=gpt3/0.126b", "run_inference_hp_search=False"),
        f"auto_configurator_path={tmp_path}/auto_configurator",
        f"data_dir={tmp_path}/the_pile_gpt3",
        f"base_results_dir={tmp_path}/results/auto_configurator",
        *("search_config.train_settings.num_nodes=1", "cluster_type=local"),
        *(f"search_config.train_settings.{key}={value}" for key, value in (small | short).items()),
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=900
    )
    assert done.returncode == 0, done.stderr
    final = tmp_path / "results/auto_configurator/gpt3/0.126b_80gb/final_results"
    assert rows(final / "final_summary_1nodes.csv")


@pytest.mark.slow
def test_the_same_search_again_measures_nothing_twice(tmp_path: Path) -> None:
    first = search(tmp_path, "gpt3", limit_search_runs=1)
    assert first.returncode == 0, first.stderr
    journal = tmp_path / "gpt3" / "unknown_size_80gb" / "training_logs" / "journal.jsonl"
    before = journal.read_text()
    again = search(tmp_path, "gpt3", limit_search_runs=1)
    assert again.returncode == 0, again.stderr
    assert journal.read_text() == before


@pytest.mark.slow
def test_every_run_of_a_search_is_a_run_of_wandb_and_the_key_stays_in_its_file(
    tmp_path: Path,
) -> None:
    pytest.importorskip("wandb")
    key = tmp_path / "key.txt"
    key.write_text("0123456789abcdef" * 3 + "\n")
    words = ("wandb.enable=True", "wandb.project=sizes", f"wandb.api_key_file={key}")
    done = search(tmp_path / "results", "gpt3", words)
    assert done.returncode == 0, done.stderr
    logs = tmp_path / "results" / "gpt3" / "unknown_size_80gb"
    assert len(list((logs / "training_logs").rglob("*.wandb"))) >= 2
    said = [path for path in logs.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in said if b"0123456789abcdef" in path.read_bytes()]
