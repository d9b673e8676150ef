"""An inference search on a real Slurm; pyxis is not here, so srun drops a container's flags."""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra")
pytest.importorskip("transformers")

from . import slurm
from .launching import COMMAND
from .slurm import Slurm
from .test_search import SHARED, SRUN, place

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not slurm.IS_INSTALLED, reason=slurm.REASON),
]
INFERENCE = "search_config.inference_settings"
TRAIN = "search_config.train_settings"
WORDS = (
    *("search_config=gpt3/unknown_size", "run_training_hp_search=False", "engine=native"),
    *(f"{TRAIN}.model_size_in_b=0.003", f"{TRAIN}.vocab_size=500", f"{TRAIN}.seq_length=64"),
    *(f"{TRAIN}.num_nodes=2", f"{TRAIN}.gpus_per_node=2", f"{INFERENCE}.run.gpus_per_node=2"),
    *(f"{INFERENCE}.run.model_train_name=tiny", f"{INFERENCE}.run.data_type=fp32"),
    f"{INFERENCE}.run.tensor_parallel_sizes=[1,2]",
    f"{INFERENCE}.run.pipeline_parallel_sizes=[1,5]",
    *(
        f"{INFERENCE}.benchmark.{one}"
        for one in ("batch_sizes=[2]", "input_len=8", "output_len=4")
    ),
)


def test_points_are_jobs_of_slurm_and_are_read_back(slurm_cluster: Slurm, tmp_path: Path) -> None:
    ours = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    tools = place(tmp_path, srun=SRUN, python3=ours)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    results = tmp_path / "results"
    command = [*COMMAND, "search", f"base_results_dir={results}", *WORDS, *SHARED]
    variables = slurm_cluster.variables | {"PATH": path, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    final = results / "gpt3/unknown_size_80gb/inference/final_summary/final_output.csv"
    with final.open(newline="") as file:
        rows = list(csv.DictReader(file))
    measured = {(row["TP"], row["PP"]) for row in rows if row["Latency [ms]"]}
    assert measured == {("1", "1"), ("2", "1")}, [row["Reason"] for row in rows]
    assert len(rows) == 4
    assert not slurm_cluster.jobs()
