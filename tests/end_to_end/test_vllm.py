"""A real vLLM on CPU ranks: the searches of this machine, and the commands of jobs as printed."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Measurement
from autoconf_launch.core import DECODE, PREFILL, GenerationTask, Layout, Precision, RawConfig
from autoconf_launch.nemo.inference_search import EngineRun, VllmEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        shutil.which("vllm") is None, reason="no vllm on PATH; make test-vllm installs one"
    ),
]
ENVIRONMENT = {
    **os.environ,
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_CI_ENV": "1",  # nothing is compiled
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
SHAPE = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "ffn_hidden_size": 256,
    "data": {"seq_length": 128},
}
"""Heads of 32, as vLLM's attention on a CPU has none of 16."""
INFERENCE = "search_config.inference_settings"


@pytest.fixture
def run(tmp_path: Path) -> EngineRun:
    task = GenerationTask(
        layout=Layout(micro_batch=2), input_len=16, output_len=8, precision=Precision.FP32
    )
    base = RawConfig({"autoconf": {"family": "gpt3", "vocab_size": 10112}, "model": SHAPE})
    return EngineRun(task=task, base=base, family="gpt3", folder=tmp_path / "run")


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def execute(*commands: tuple[str, ...]) -> None:
    for words in commands:
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=900
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("beam_width", [1, 2])
def test_the_commands_of_a_job_leave_what_is_read(run: EngineRun, beam_width: int) -> None:
    engine, asked = VllmEngine(), replace(run, beam_width=beam_width)
    write(dict(engine.files(asked)))
    execute(*engine.commands(asked))
    outcome = engine.read(asked)
    assert isinstance(outcome, Measurement)
    assert len(outcome.step_s) == 10
    phases = dict(outcome.phases)
    assert 0 < phases[PREFILL] < phases[PREFILL] + phases[DECODE]


def test_the_commands_of_a_load_test_leave_what_is_read(run: EngineRun) -> None:
    engine, folder = VllmEngine(), run.folder / "load_test"
    test = engine.load_test(run, folder)
    write(dict(test.files))
    execute(*test.commands)
    throughput, alone, both = engine.read_load(folder)
    assert throughput.benchmark == "throughput"
    assert (alone.max_concurrency, both.max_concurrency) == (1, 2)
    assert [one.reason for one in (throughput, alone, both)] == ["", "", ""]
    for served in (alone, both):
        assert served.requests_per_s is not None
        assert served.output_tokens_per_s is not None
        assert served.output_tokens_per_s == pytest.approx(8 * served.requests_per_s)
        assert sorted(served.latency_s) == list(served.latency_s)
        assert len(served.ttft_s) == len(served.token_s) == len(served.latency_s) == 3


def test_a_search_on_this_machine_ends_in_its_table(tmp_path: Path) -> None:
    command = (
        *(sys.executable, "-m", "autoconf_launch.launcher.cli", "search", "cluster_type=local"),
        *("search_config=gpt3/0.126b", "engine=vllm", f"base_results_dir={tmp_path}"),
        *("run_training_hp_search=False", "search_config.train_settings.gpus_per_node=2"),
        f"{INFERENCE}.run.tensor_parallel_sizes=[1,2]",
        f"{INFERENCE}.run.pipeline_parallel_sizes=[1]",
        f"{INFERENCE}.benchmark.batch_sizes=[1,2,4]",
        f"{INFERENCE}.benchmark.input_len=16",
        f"{INFERENCE}.benchmark.output_len=4",
    )
    execute(command)
    folder = tmp_path / "gpt3" / "0.126b_80gb" / "inference"
    with (folder / "final_summary" / "final_output.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["TP"], row["BS"]) for row in rows) == [
        *(("1", "1"), ("1", "2"), ("1", "4"), ("2", "1"), ("2", "2"), ("2", "4")),
    ]
    for row in rows:
        parts_ms = float(row["TTFT [ms]"]) + 3 * float(row["Time per Token [ms]"])
        assert parts_ms == pytest.approx(float(row["Latency [ms]"]), rel=0.01)
    starts = [path.parent for path in folder.glob("*/batches.json")]
    assert len(starts) == 2, "a process for each number of ranks"
