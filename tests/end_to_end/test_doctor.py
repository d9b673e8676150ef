"""``doctor`` on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autoconf_launch.launcher.machine import OUR_COMMAND

from ..fake_driver import put_driver


def doctor(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = (*OUR_COMMAND, "doctor", *flags)
    return subprocess.run(
        command, cwd=folder, capture_output=True, check=False, text=True, timeout=60
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
