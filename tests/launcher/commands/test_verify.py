"""``plan`` and ``recommend`` naming runs, and taking their rows back."""

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import ConfigError
from autoconf_launch import plan as python_plan
from autoconf_launch import recommend as python_recommend

from .verb import Run

PLAN = (
    *("--model", "gpt3-5b", "--cluster", "20x8xA100-SXM-80GB", "--seq", "2048"),
    *("--global-batch", "1280", "--tokens", "300B"),
)
RECOMMEND = (
    *("--family", "gpt3", "--cluster", "20x8xA100-SXM-80GB", "--tokens", "300B"),
    *("--model-size", "5"),
)


def fill(path: Path, runs: list[dict[str, Any]], factor: float) -> str:
    """The rows that a document says, with times so much longer than predicted."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, runs[0]["row"].keys())
        writer.writeheader()
        for run in runs:
            seconds = factor * run["step_s"]
            writer.writerow({**run["row"], "step_time_s": seconds})
    return str(path)


@pytest.mark.parametrize(("verb", "factor"), [("plan", 1.0), ("plan", 1.05), ("recommend", 1.1)])
def test_runs_that_were_named_are_taken_back_and_leave_the_band_that_was_said(
    request: pytest.FixtureRequest, tmp_path: Path, verb: str, factor: float
) -> None:
    run: Run = request.getfixturevalue(verb)
    words = PLAN if verb == "plan" else RECOMMEND
    asked = run(*words, "--verify", "2", "--json").document["verifying"]
    file = fill(tmp_path / "runs.csv", asked["runs"], factor)
    after = run(*words, "--measured", file, "--verify", "1", "--json").document
    assert not after["measured"]["skipped"]
    predicted = [one["predicted_s"] for one in after["measured"]["runs"]]
    assert predicted == pytest.approx([one["step_s"] for one in asked["runs"]])
    said = asked["runs"][-1]["narrowing"]
    assert after["verifying"]["narrowing"] == pytest.approx(said)
    assert said < 0.8


def test_the_text_has_money_time_command_and_row(recommend: Run) -> None:
    out = recommend(*RECOMMEND, "--verify-budget", "500").out
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Runs that narrow the band"))
    assert "USD in all" in lines[start]
    assert lines[start + 1].split()[-4:] == ["time", "USD", "band", "then"]
    assert "\nrun 1, Megatron-LM on each of 2 nodes: " in out
    command = next(line for line in lines if line.startswith("run 5, Megatron-LM: "))
    assert "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py" in command
    rows = lines.index(next(line for line in lines if line.startswith("model,layers,hidden")))
    assert lines[rows + 1].startswith("gpt3,")
    assert len(lines[rows].split(",")) == len(lines[rows + 1].split(","))


def test_our_runtime_gets_a_command_that_the_shell_reads(plan: Run) -> None:
    document = plan(*PLAN, "--runnable", "--verify", "1", "--json").document
    (run,) = document["verifying"]["runs"]
    words = shlex.split(run["command"])
    assert run["framework"] == "native"
    assert words[:5] == ["autoconf-launch", "--num_nodes", "2", "--num_gpus", "8"]
    assert words[5:7] == ["-m", "autoconf_launch.runtime.pretraining"]


def test_the_runs_of_other_frameworks_are_written_beside_the_row(
    plan: Run, tmp_path: Path
) -> None:
    export = ("--export", "torchtitan,deepspeed", "-o", str(tmp_path), "--trainer", "deepspeed")
    out = plan(*PLAN, "--verify", "1", *export).out
    assert "run 1: neither our runtime nor Megatron-LM with mock data runs it" in out
    assert f"Run 1 is written to {tmp_path / 'run1.torchtitan.toml'}." in out
    assert "train_batch_size" in (tmp_path / "run1.deepspeed.json").read_text()


def test_a_budget_below_the_cheapest_run_says_what_that_costs(plan: Run) -> None:
    ran = plan(*PLAN, "--verify-budget", "1")
    assert ran.code == 0
    assert "No verifying run for 1 USD: the cheapest costs 6.9" in ran.out


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"verify": 0}, "verify is 0; it must be a whole number"),
        ({"verify": 1, "verify_budget_usd": 5.0}, "verify and verify_budget_usd cannot be given"),
    ],
)
def test_python_asks_the_same(more: dict[str, Any], says: str) -> None:
    cluster = "4x8xA100-SXM-80GB"
    answer = python_plan(cluster=cluster, model="gpt3-5b", seq=2048, global_batch=256, verify=1)
    assert answer.verifying is not None
    assert len(answer.verifying.named) == 1
    asked: dict[str, Any] = {"tokens_b": 300.0, "family": "gpt3", "cluster": cluster}
    with pytest.raises(ConfigError, match=says):
        python_recommend(**asked, model_size_b=5.0, **more)
