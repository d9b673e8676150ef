from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.machine import other_python, our_python, python_beside


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
