"""Modules that ``python -m`` cannot run, and the words that it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.script import module_problem


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "mypkg"
    (package / "tools").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cli.py").write_text("if __name__ == '__main__':\n    print('hello')\n")
    (package / "data.py").write_text("ROWS = 3\n")
    (package / "tools" / "__init__.py").touch()
    (package / "tools" / "__main__.py").touch()
    return tmp_path


def problem_of(module: str) -> str:
    request = LaunchRequest(script=module, kind="module", script_args=("--lr", "1 2"))
    return module_problem(request)


@pytest.mark.parametrize(
    "written", ["mypkg/cli.py", "./mypkg/cli.py", "mypkg/cli", "mypkg.cli.py"]
)
def test_a_file_after_m_is_refused_with_its_modules_name(written: str) -> None:
    assert problem_of(written) == (
        f"-m takes the name of a module, not {written}; write -m mypkg.cli --lr '1 2'"
    )


def test_a_path_that_no_module_has_is_to_be_given_without_m() -> None:
    assert problem_of("/elsewhere/train.py").endswith("is a path; give it without -m.")


@pytest.mark.parametrize("package", ["mypkg", "json"])
def test_a_package_without_a_main_module_is_refused_with_one_that_runs(package: str) -> None:
    module = {"mypkg": "mypkg.cli", "json": "json.tool"}[package]
    assert problem_of(package) == (
        f"{package} is a package without a __main__.py, which python -m cannot run; "
        f"write -m {module} --lr '1 2'"
    )


@pytest.mark.parametrize(
    "module", ["mypkg.cli", "mypkg.tools", "json.tool", "no_such_module", "no_such.module"]
)
def test_what_python_runs_or_finds_in_ways_of_its_own_is_left_to_it(module: str) -> None:
    assert problem_of(module) == ""


def test_a_folder_of_results_does_not_hide_an_installed_package(folder: Path) -> None:
    (folder / "pip").mkdir()
    assert problem_of("pip") == ""
