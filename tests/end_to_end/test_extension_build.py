"""Launches that are ended while torch compiles an extension, with torch's own builder."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Place, wait_until

SCRIPT = str(Path(__file__).parent / "scripts" / "extension.py")


@pytest.fixture
def lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(place.folder / "cache"))
    return place.folder / "cache" / "tiny" / "lock"


def in_the_build(place: Place, lock: Path) -> subprocess.Popen[str]:
    """A plain launch, once its compiler runs."""
    (place.folder / "compiler.hangs").touch()
    started = place.start("--num_gpus=1", SCRIPT)
    wait_until((lock.parent / "build.ninja").exists, "it never began to build")
    assert lock.exists()
    (place.folder / "compiler.hangs").unlink()
    return started


@pytest.mark.slow
def test_a_build_that_is_stopped_leaves_no_lock(place: Place, lock: Path) -> None:
    started = in_the_build(place, lock)
    started.terminate()
    output, _ = started.communicate(timeout=30)
    assert f"Removed {lock}: " in output
    assert not lock.exists()


@pytest.mark.slow
def test_a_launch_removes_the_lock_of_one_that_was_killed_whole(place: Place, lock: Path) -> None:
    started = in_the_build(place, lock)
    for pid in place.living():
        os.kill(pid, signal.SIGKILL)
    started.communicate(timeout=30)
    assert lock.exists()
    code, output = place.run("--num_gpus=1", SCRIPT)
    assert code == 0, output
    assert "built" in output
    assert f"Removed {lock}: " in output
