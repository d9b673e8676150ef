from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.machine import read_environment_files
from autoconf_launch.launcher.machine.interpreters import parse_environment


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
