from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.machine import (
    other_python,
    our_python,
    python_beside,
    read_environment_files,
)
from autoconf_launch.launcher.machine.interpreters import parse_environment


def program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_ours_by_its_path_is_no_other() -> None:
    assert other_python(sys.executable) is None


def test_another_file_is_another_python(tmp_path: Path) -> None:
    path = program(tmp_path / "python3")
    assert other_python(str(path)) == str(path)


def test_a_link_to_our_file_in_another_folder_is_another_environment(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(Path(sys.executable).resolve())
    assert other_python(str(link)) == str(link)


def test_a_folder_that_is_a_link_to_ours_is_ours(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(Path(sys.executable).parent)
    assert other_python(str(tmp_path / "bin" / Path(sys.executable).name)) is None


def test_a_path_from_here_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "env" / "python")
    monkeypatch.chdir(tmp_path)
    assert other_python("env/python") == str(path)


def test_a_path_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a Python that can be run; give the path of one"):
        other_python(str(tmp_path / "python"))


def test_a_name_that_no_shell_finds_means_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert other_python("python3") is None
    assert our_python() == sys.executable


def test_ours_is_called_python_only_where_that_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert our_python() == sys.executable


def test_a_launcher_has_the_python_beside_it(tmp_path: Path) -> None:
    launcher = program(tmp_path / "torchrun")
    assert python_beside(str(launcher)) is None
    python = program(tmp_path / "python")
    assert python_beside(str(launcher)) == str(python)


def test_a_value_keeps_its_equals_signs_and_blanks() -> None:
    assert parse_environment("A=b = c \n", "file") == (("A", "b = c "),)


def test_blank_lines_and_comments_are_left_out() -> None:
    assert parse_environment("\n# A=1\n  \nB=2", "file") == (("B", "2"),)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_around_a_value_are_no_part_of_it(quote: str) -> None:
    assert parse_environment(f"A={quote}64(x2){quote}", "file") == (("A", "64(x2)"),)


@pytest.mark.parametrize("line", ["no equals sign", "=1", "1A=2", "export A=1", "A=\0"])
def test_another_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match="Line 2 of my/file"):
        parse_environment(f"A=1\n{line}\n", "my/file")


def test_the_file_here_wins_over_the_one_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DS_ENV_FILE", "my_env")
    monkeypatch.chdir(here)
    (home / "my_env").write_text("A=home\nB=home")
    (here / "my_env").write_text("A=here")
    assert dict(read_environment_files()) == {"A": "here", "B": "home"}
