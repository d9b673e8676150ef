import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results import is_held
from autoconf_launch.launcher.results.lease import STALE_AFTER_S, Lease


def write_lease(folder: Path, **holder: object) -> Path:
    path = folder / "controller.lease"
    path.write_text(json.dumps(holder))
    return path


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


def test_where_locks_fail_the_holders_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    path = tmp_path / "controller.lease"
    with Lease(path), pytest.raises(ResultsFolderError, match=f"process {os.getpid()} on"):
        Lease(path).__enter__()
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with pytest.raises(ResultsFolderError, match="process 1 on elsewhere"):
        Lease(path).__enter__()
    then = time.time() - 2 * STALE_AFTER_S
    os.utime(path, (then, then))
    with Lease(path):
        assert is_held(path)


def test_a_lease_that_was_removed_while_we_opened_it_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "controller.lease"
    first, lock = Lease(path).__enter__(), fcntl.flock

    def end_before(descriptor: int, operation: int) -> None:
        first.__exit__(None, None, None)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", end_before)
    with Lease(path), pytest.raises(ResultsFolderError, match="in use by process"):
        Lease(path).__enter__()


def test_a_lease_whose_folder_was_moved_leaves_that_of_the_next_holder(tmp_path: Path) -> None:
    path = tmp_path / "results" / "controller.lease"
    path.parent.mkdir()
    first = Lease(path).__enter__()
    path.parent.rename(tmp_path / "results.1")
    path.parent.mkdir()
    with Lease(path):
        first.__exit__(None, None, None)
        assert is_held(path)


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


def test_looking_does_not_keep_a_controller_out(tmp_path: Path) -> None:
    path = write_lease(tmp_path, host=socket.gethostname(), pid=os.getpid())
    assert is_held(path)
    with Lease(path):
        pass


def test_a_dead_holder_on_this_host_holds_nothing(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert not is_held(write_lease(tmp_path, host=socket.gethostname(), pid=dead.pid))


def test_a_killed_holder_that_nobody_waited_for_holds_nothing(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert not is_held(write_lease(tmp_path, host=socket.gethostname(), pid=dead.pid))
    dead.wait()


def test_a_process_that_got_the_number_of_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    with Lease(path):
        holder = json.loads(path.read_bytes())
    assert not is_held(write_lease(tmp_path, **{**holder, "start_ticks": 1}))


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (120.0, False)])
def test_a_holder_elsewhere_lives_as_long_as_its_heart_beats(
    tmp_path: Path, silent_s: float, held: bool
) -> None:
    path = write_lease(tmp_path, host="another host", pid=1)
    os.utime(path, (time.time() - silent_s,) * 2)
    assert is_held(path) is held


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": "x"}'])
def test_a_lease_that_says_nothing_holds_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "controller.lease").write_text(content)
    assert not is_held(tmp_path / "controller.lease")
