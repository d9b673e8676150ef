"""The machine's GPU as the launcher sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from autoconf_launch.launcher.hosts import local_cluster
from autoconf_launch.launcher.machine import Weather

COMMAND = (sys.executable, "-m", "autoconf_launch")


def test_the_launcher_finds_the_gpu_that_torch_sees() -> None:
    gpu, seen = local_cluster().devices[0], torch.cuda.get_device_properties(0)
    assert 0.98 < gpu.memory_bytes / seen.total_memory < 1.02


def test_the_driver_reports_clocks_and_throttling_during_a_trial() -> None:
    weather = Weather()
    weather.look()
    (gpu, *_) = weather.conditions().gpus
    assert gpu.sm_clock_mhz
    assert gpu.throttle_reasons is not None


def test_fit_answers_for_the_gpu_at_hand_without_a_cluster(tmp_path: Path) -> None:
    words = ("fit", "--model", "gpt2", "--seq=512", "--global-batch=1", "--json")
    done = subprocess.run(
        (*COMMAND, *words), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "yes"


def test_doctor_finds_the_gpu_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        (*COMMAND, "doctor"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert torch.cuda.get_device_name(0) in done.stdout
