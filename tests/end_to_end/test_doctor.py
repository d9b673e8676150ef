"""``doctor`` on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autoconf_launch.launcher.machine import OUR_COMMAND

from ..fake_driver import put_driver


def test_two_processes_of_this_machine_are_measured_in_seconds(tmp_path: Path) -> None:
    done = subprocess.run(
        (
            *(sys.executable, "-m", "autoconf_launch.launcher.cli"),
            *("doctor", "--num_gpus", "2", "--json"),
        ),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["problems"]) == (0, []), done.stderr
    assert len(found["hosts"]) == 2
    assert all(slot["flops_per_s"] > 1e8 and slot["sees_folder"] for slot in found["hosts"])
    assert found["links"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the safe path needs Python 3.11")
def test_no_module_of_the_current_folder_is_imported(tmp_path: Path) -> None:
    for name in ("autoconf_launch", "json", "torch"):
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'w').write({name!r})\n")
    done = subprocess.run(
        (*OUR_COMMAND, "doctor", "--num_gpus", "1", "--json"),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, []), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_gpu_that_torch_cannot_use_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_driver(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    done = subprocess.run(
        (*OUR_COMMAND, "doctor", "--num_gpus", "1"),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
    assert "GPU 0 of host" in done.stdout
    assert "is built without CUDA" in done.stdout
