import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results.lease import STALE_AFTER_S, Lease


def test_a_second_controller_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    with Lease(path), pytest.raises(ResultsFolderError, match=f"process {os.getpid()} on"):
        Lease(path).__enter__()


def test_a_released_lease_can_be_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    with Lease(path):
        pass
    with Lease(path):
        assert path.exists()


def test_the_lease_of_a_killed_holder_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    code = (
        "import os, pathlib, signal, sys\n"
        "from autoconf_launch.launcher.results.lease import Lease\n"
        "Lease(pathlib.Path(sys.argv[1])).__enter__()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    with Lease(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_fresh_heartbeat_of_another_host_keeps_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with pytest.raises(ResultsFolderError, match="process 1 on elsewhere"):
        Lease(path).__enter__()


def test_an_old_heartbeat_of_another_host_does_not(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    then = time.time() - 2 * STALE_AFTER_S
    os.utime(path, (then, then))
    with Lease(path):
        assert path.exists()
