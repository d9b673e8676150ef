import errno
import fcntl
import json
import os
import socket
import subprocess
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


def test_a_process_that_got_the_number_of_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "controller.lease"
    with Lease(path):
        holder = json.loads(path.read_bytes())
    assert not is_held(write_lease(tmp_path, **{**holder, "start_ticks": 1}))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": "x"}'])
def test_a_lease_that_says_nothing_holds_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "controller.lease").write_text(content)
    assert not is_held(tmp_path / "controller.lease")


@pytest.mark.parametrize(("silent_s", "is_held_there"), [(0.0, True), (120.0, False)])
def test_a_holder_elsewhere_keeps_the_folder_as_long_as_its_heart_beats(
    tmp_path: Path, silent_s: float, is_held_there: bool
) -> None:
    path = write_lease(tmp_path, host="elsewhere", pid=1)
    os.utime(path, (time.time() - silent_s,) * 2)
    assert is_held(path) is is_held_there
    if is_held_there:
        with pytest.raises(ResultsFolderError, match="process 1 on elsewhere"):
            Lease(path).__enter__()
    else:
        with Lease(path):
            assert is_held(path)


def test_a_holder_here_keeps_the_folder_as_long_as_it_lives(tmp_path: Path) -> None:
    host = socket.gethostname()
    path = write_lease(tmp_path, host=host, pid=os.getpid())
    assert is_held(path)  # to look does not keep a controller out
    with Lease(path):
        pass
    dead = subprocess.Popen(("true",))
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert not is_held(write_lease(tmp_path, host=host, pid=dead.pid))
    dead.wait()
    assert not is_held(write_lease(tmp_path, host=host, pid=dead.pid))
