from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from autoconf_launch.core import ResultsFolderError
from autoconf_launch.launcher.results import is_unwritable, saved_pid, sentence_on
from autoconf_launch.launcher.results.paths import is_gone, pid_file


def of(number: int, name: str | bytes | None = "/results/journal.jsonl") -> OSError:
    return OSError(number, os.strerror(number), name)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk is full (/results/journal.jsonl); make room, then run it again."),
        (
            errno.EPERM,
            "/results/journal.jsonl is not accessible (Operation not permitted); check its "
            "permissions and whether its file system can be written, then run it again.",
        ),
        (
            errno.ESTALE,
            "/results/journal.jsonl cannot be reached any more (Stale file handle); check its "
            "disk or file server, then run it again.",
        ),
        (
            errno.ENAMETOOLONG,
            "/results/journal.jsonl cannot be a file (File name too long); give another path.",
        ),
    ],
)
def test_a_file_system_that_fails_is_said_with_the_file_and_what_to_do(
    number: int, says: str
) -> None:
    assert sentence_on(of(number)) == says


@pytest.mark.parametrize(
    ("numbers", "unwritable", "gone"),
    [
        ((errno.EACCES, errno.EPERM, errno.EROFS), True, False),  # for the user to mend
        ((errno.EIO, errno.ESTALE, errno.ENODEV), False, True),
    ],
)
def test_what_may_not_be_written_is_told_from_a_disk_that_is_gone(
    numbers: tuple[int, ...], unwritable: bool, gone: bool
) -> None:
    assert {(is_unwritable(of(number)), is_gone(of(number))) for number in numbers} == {
        (unwritable, gone)
    }


MISTAKES = (errno.ENOENT, errno.EBADF, errno.EEXIST, errno.EISDIR, errno.EMFILE, errno.EINVAL)


@pytest.mark.parametrize(
    ("numbers", "name", "begins"),
    [
        ((errno.EACCES, errno.EPERM, errno.ETIMEDOUT), None, None),  # a process or a socket
        ((errno.EROFS, errno.EIO, errno.ESTALE), None, "a file "),
        (MISTAKES, "/results/journal.jsonl", None),  # are not swallowed
        ((errno.EROFS,), b"/results", "/results is not accessible"),
    ],
)
def test_a_sentence_is_said_of_a_file_system_only(
    numbers: tuple[int, ...], name: str | bytes | None, begins: str | None
) -> None:
    for said in (sentence_on(of(number, name)) for number in numbers):
        assert said is None if begins is None else (said or "").startswith(begins)


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
