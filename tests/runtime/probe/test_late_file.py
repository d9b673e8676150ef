"""A file that is opened for new bytes and keeps the old ones until there are any."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoconf_launch.runtime.probing.late_file import LateFile

OLD = b"what was there, and long"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    return path


def opened(path: Path) -> io.BufferedWriter:
    return io.BufferedWriter(LateFile(path))


def nothing(file: io.BufferedWriter) -> None:
    """As the script that opens it and closes it."""


def writes(file: io.BufferedWriter) -> None:
    file.write(b"new")


def writes_by_its_descriptor(file: io.BufferedWriter) -> None:
    os.write(file.fileno(), b"new")


def grows(file: io.BufferedWriter) -> None:
    file.truncate(5)


def appends(file: io.BufferedWriter) -> None:
    file.seek(0, os.SEEK_END)
    file.write(b"new")


def begins_further_on(file: io.BufferedWriter) -> None:
    file.seek(2)
    file.write(b"new")


EVERY = [nothing, writes, writes_by_its_descriptor, grows, appends, begins_further_on]


@pytest.mark.parametrize("how", EVERY)
def test_it_becomes_what_an_ordinary_file_becomes(
    path: Path, how: Callable[[io.BufferedWriter], None]
) -> None:
    ordinary = path.with_name("ordinary")
    ordinary.write_bytes(OLD)
    with opened(path) as file, ordinary.open("wb") as reference:
        how(file)
        how(reference)
    assert path.read_bytes() == ordinary.read_bytes()


def test_it_is_as_it_was_until_there_are_bytes(path: Path) -> None:
    file = opened(path)
    assert (path.read_bytes(), file.tell(), file.name, file.mode) == (OLD, 0, path, "wb")


def test_what_is_diverted_leaves_it_whole(path: Path) -> None:
    place = path.with_name("place")
    with opened(path) as file:
        file.write(b"new")
        file.raw.divert(place)  # type: ignore[attr-defined]
        file.write(b"er")
    assert (path.read_bytes(), place.read_bytes()) == (OLD, b"newer")


def test_what_cannot_be_opened_is_said_as_ever(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        LateFile(tmp_path)
