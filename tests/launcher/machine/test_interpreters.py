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


def test_another_file_or_a_link_in_another_folder_is_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(sys.executable)
    assert other_python(sys.executable) is None
    (tmp_path / "bin").symlink_to(ours.parent)
    assert other_python(str(tmp_path / "bin" / ours.name)) is None
    link = tmp_path / "python"
    link.symlink_to(ours.resolve())
    assert other_python(str(link)) == str(link)
    path = program(tmp_path / "env" / "python")
    monkeypatch.chdir(tmp_path)
    assert other_python("env/python") == str(path)


@pytest.mark.parametrize("has_another", [False, True])
def test_a_name_that_no_shell_finds_means_ours_which_is_called_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_another: bool
) -> None:
    if has_another:
        program(tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert other_python("python3") is None
    assert our_python() == sys.executable


def test_a_path_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a Python that can be run; give the path of one"):
        other_python(str(tmp_path / "python"))


def test_a_launcher_has_the_python_beside_it(tmp_path: Path) -> None:
    launcher = program(tmp_path / "torchrun")
    assert python_beside(str(launcher)) is None
    python = program(tmp_path / "python")
    assert python_beside(str(launcher)) == str(python)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=b = c \n", ("A", "b = c ")),
        ("\n# A=1\n  \nB=2", ("B", "2")),
        ("A='64(x2)'", ("A", "64(x2)")),
        ('A="64(x2)"', ("A", "64(x2)")),
    ],
)
def test_a_value_keeps_its_equals_signs_and_blanks_and_quotes_are_no_part_of_it(
    text: str, found: tuple[str, str]
) -> None:
    assert parse_environment(text, "file") == (found,)


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
