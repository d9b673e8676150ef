"""A GPU as the launcher finds it, and a tune on a GPU that another process uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoconf_launch.launcher.machine import list_gpus

HOLD = """
import sys, time, torch
held = torch.empty(int(0.4 * torch.cuda.mem_get_info()[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
TRAIN = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=2)
size = parser.parse_args().batch_size
net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
card = torch.cuda.mem_get_info()[1]
rows = card // (64 * 160)  # a layer keeps 1/160 of the card for a sample
unforeseen = torch.empty(int(0.3 * card) if size > 6 else 0, dtype=torch.uint8, device="cuda")
for _ in range(20):
    net(torch.zeros(size, rows, 16, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_torch_finds_what_the_driver_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    listed = list_gpus()
    monkeypatch.setenv("PATH", str(tmp_path))
    counted = list_gpus()
    assert [gpu.name for gpu in counted] == [gpu.name for gpu in listed]
    for one, other in zip(counted, listed, strict=True):
        assert one.memory_bytes == pytest.approx(other.memory_bytes, rel=0.02)
        assert one.free_bytes
        assert one.free_bytes <= one.memory_bytes


@pytest.fixture
def holder() -> Iterator[int]:
    """A process that holds two fifths of the card."""
    with subprocess.Popen(
        (sys.executable, "-c", HOLD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process.pid


def test_what_does_not_fit_beside_another_process_is_launched_once(
    tmp_path: Path, holder: int
) -> None:
    if not any(gpu.is_in_use for gpu in list_gpus()):
        pytest.skip("nvidia-smi does not say how much memory is free")
    (tmp_path / "train.py").write_text(TRAIN)
    flags = ("--num_gpus=1", "--allow-global-batch-change", "--fresh", "--soak-steps=0")
    tune = ("tune", *flags, "--effort=quick", "--budget=2trials", "train.py", "--batch_size=4")
    done = subprocess.run(
        (sys.executable, "-m", "autoconf_launch.launcher.cli", *tune),
        cwd=tmp_path,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    named = [line for line in said.splitlines() if " are used by " in line]
    assert len(named) == 1, said
    assert f"pid {holder} (" in named[0], "this process may have memory on the card, too"
    journal = (tmp_path / "autotuning_results" / "journal.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, journal) if "failure" in record]
    full = [record["name"] for record in records]
    assert full, "no trial ran out of memory"
    assert {record["failure"]["kind"] for record in records} == {"out_of_memory"}
    assert len(full) == len(set(full)), said
