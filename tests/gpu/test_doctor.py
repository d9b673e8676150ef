"""``doctor`` on a machine with a GPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import torch

from autoconf_launch.launcher.machine import OUR_COMMAND


def test_the_gpu_is_named_and_seen_under_load(tmp_path: Path) -> None:
    done = subprocess.run(
        (*OUR_COMMAND, "doctor", "--num_gpus", "1", "--json"),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    (slot,) = json.loads(done.stdout)["hosts"]
    assert slot["gpu"]["name"] == torch.cuda.get_device_name(0), done.stderr
    assert slot["gpu"]["unusable"] == ""
    assert slot["flops_per_s"] > 1e9
