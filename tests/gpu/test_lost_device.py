"""A script that breaks its GPU's context, after which every further call to the GPU raises."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoconf_launch.core import TASK_VARIABLE, Mode, RankTask

LOST = """
import argparse, ctypes, torch
def lose_the_gpu(code):
    libraries = ctypes.CDLL(None)
    if hasattr(libraries, "nullgpu_poison"):
        libraries.nullgpu_poison(code)
    else:  # an index out of range, whatever the code
        torch.nn.Embedding(10, 4).cuda()(torch.full((2,), 99, device="cuda"))
"""
PLAIN = (
    LOST
    + """
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=2)
parser.add_argument("--at")
parser.add_argument("--code", type=int, default=710)
asked = parser.parse_args()
model = torch.nn.Embedding(10, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(9):
    loss = model(torch.randint(5, (asked.batch_size,), device="cuda")).sum()
    if (number, asked.at) == (1, "forward"):
        lose_the_gpu(asked.code)
    loss.backward()
    if (number, asked.at) == (1, "backward"):
        lose_the_gpu(asked.code)
    optimizer.step()
    if (number, asked.at) == (1, "step"):
        lose_the_gpu(asked.code)
"""
)
ENGINE = (
    LOST
    + """
import os, sys
from autoconf_launch.runtime import initialize
def loss(model, batch):
    value = model(batch).sum()
    if len(seen) == 2:
        lose_the_gpu(710)
    seen.append(value)
    return value
seen = []
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
engine = initialize(torch.nn.Linear(4, 1), config, loss_fn=loss)
for _ in range(9):
    engine.step(torch.ones(2, 4))
"""
)


def tune(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "autoconf_launch", "tune", "--num_gpus=1", "--budget=1trials"]
    script = [str(folder / "train.py"), "--batch_size=2", *arguments]
    ended = subprocess.run(
        [*command, "--allow-global-batch-change", *script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout + ended.stderr


IS_NULL = hasattr(ctypes.CDLL(None), "nullgpu_poison")


@pytest.mark.parametrize(
    ("at", "code", "words"),
    [
        ("forward", 710, "device-side assert triggered"),
        ("backward", 700, "an illegal memory access was encountered"),
        ("step", 719, "unspecified launch failure"),
    ],
)
def test_a_lost_gpu_is_the_scripts_own_failure(
    tmp_path: Path, at: str, code: int, words: str
) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    said = tune(tmp_path, f"--at={at}", f"--code={code}")
    assert f"crashed: AcceleratorError: CUDA error: {words if IS_NULL else ''}" in said, said
    assert "train.py" in said[said.index("Traceback") :], said
    assert "the probe failed" not in said
    assert "CUDA_LAUNCH_BLOCKING" not in said


def test_our_engine_reports_what_was_recorded_without_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENGINE)
    task = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a", end_step=9)
    subprocess.run(
        [sys.executable, str(tmp_path / "train.py")],
        cwd=tmp_path,
        env={**os.environ, TASK_VARIABLE: task.to_variable()},
        capture_output=True,
        timeout=120,
        check=False,
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["failure"]["kind"] == "crashed"
    assert result["failure"]["detail"].endswith("CUDA error: device-side assert triggered")
    assert any("train.py" in line for line in result["failure"]["log_tail"])
    assert len(result["steps"]) == 2
    assert result["memory"] is None
