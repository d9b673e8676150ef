import os
from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results import saved_pid
from autoconf_launch.launcher.results.paths import pid_file


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_file_holds_our_number_while_we_live(temporary: Path) -> None:
    with saved_pid(True):
        assert (temporary / f"{os.getpid()}.ds").read_text() == f"{os.getpid()}\n"
    assert list(temporary.iterdir()) == []


def test_nothing_is_written_unasked(temporary: Path) -> None:
    with saved_pid(False):
        assert list(temporary.iterdir()) == []


def test_a_file_of_a_dead_process_is_replaced() -> None:
    pid_file(os.getpid()).write_text("1")
    with saved_pid(True):
        assert pid_file(os.getpid()).read_text() == f"{os.getpid()}\n"


def test_a_link_in_its_place_is_not_followed(temporary: Path) -> None:
    victim = temporary / "victim"
    victim.write_text("mine")
    pid_file(os.getpid()).symlink_to(victim)
    with saved_pid(True):
        assert victim.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    with pytest.raises(ResultsFolderError, match="set TMPDIR"), saved_pid(True):
        pass
