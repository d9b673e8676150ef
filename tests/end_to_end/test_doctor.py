"""``doctor`` on this machine."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from autoconf_launch.launcher.cli import main
from autoconf_launch.launcher.machine import OUR_COMMAND

from ..fake_driver import put_driver


def doctor(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = (*OUR_COMMAND, "doctor", *flags)
    return subprocess.run(
        command, cwd=folder, capture_output=True, check=False, text=True, timeout=150
    )


def test_two_processes_of_this_machine_are_measured_in_seconds(tmp_path: Path) -> None:
    """No module of the current folder is imported; that needs the safe path of Python 3.11."""
    traps = ("autoconf_launch", "json", "torch") if sys.version_info >= (3, 11) else ()
    for name in traps:
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'w').write({name!r})\n")
    done = doctor(tmp_path, "--num_gpus=2", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (0, []), done.stderr
    assert len(found["hosts"]) == 2
    assert all(slot["flops_per_s"] > 1e8 and slot["sees_folder"] for slot in found["hosts"])
    assert found["links"] == []
    assert {path.stem for path in tmp_path.iterdir()} == set(traps)


def test_a_measured_machine_is_a_cluster_file_that_plan_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, began_s = tmp_path / "here.yaml", time.perf_counter()
    done = doctor(tmp_path, "--num_gpus=2", "--measure-gpu", f"--save={file}")
    assert (done.returncode, time.perf_counter() - began_s < 120) == (0, True), done.stderr
    assert "causal attention, backward" in done.stdout
    (group,) = yaml.safe_load(file.read_text())["nodes"]
    assert group["gpu"].endswith(" CPU")
    assert group["reached_tflops"] < group["peak_tflops"]
    assert group["all_reduce_gb_per_s"] > 0
    ask = ("--model", "gpt2", "--seq", "128", "--global-batch", "8", "--precision", "fp32")
    assert main(["plan", *ask, "--cluster", str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"Never checked on fp32 or {group['gpu']}" in printed
    assert "are assumed" not in printed


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_gpu_that_torch_cannot_use_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_driver(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = doctor(tmp_path, "--num_gpus=1")
    assert done.returncode == 4, done.stderr
    assert "GPU 0 of host" in done.stdout
    assert "is built without CUDA" in done.stdout
