"""Files that a script's source names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.script import hydra_values, own_sources, script_path

HYDRA = """
import hydra

@hydra.main(config_path="conf", config_name="config")
def main(config): ...
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    files = {
        "options.py": "a",
        "parts/__init__.py": "b",
        "parts/model.py": "c",
        "conf/config.yaml": "defaults:\n- trainer: small\n- _self_\nlr: 0.1\ndata: {bs: 4}\n",
        "conf/trainer/small.yaml": "batch_size: 8\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "train.py"


def modules_of(script: Path, text: str) -> tuple[str, ...]:
    """Sources of the modules of a script with this text."""
    script.write_text(text)
    return own_sources(LaunchRequest(script=str(script))).modules


def test_modules_beside_the_script_are_its_own(script: Path) -> None:
    text = "import torch\nfrom options import get\nfrom parts.model import Net\nimport parts"
    assert sorted(modules_of(script, text)) == ["a", "b", "c"]


SAVER = "batch_size: 2\nsaver: {_target_: a.ModelCheckpoint}\n"


@pytest.mark.parametrize(
    ("files", "words", "keys"),
    [
        ({}, (), {"trainer.batch_size": 8, "lr": 0.1, "data.bs": 4}),
        (
            {"trainer/small": "# @package _global_\nbatch_size: 8\n"},
            (),
            {"batch_size": 8, "lr": 0.1, "data.bs": 4},
        ),
        (
            {"trainer/large": "batch_size: 64\n"},
            ("trainer=large", "lr=1"),
            {"trainer.batch_size": 64},
        ),
        # as callbacks and trainers of Lightning's templates are
        (
            {"trainer/base": SAVER, "trainer/small": "defaults:\n- base\nbatch_size: 8\n"},
            (),
            {"trainer.batch_size": 8, "trainer.saver._target_": "a.ModelCheckpoint"},
        ),
        (
            {"trainer/small": "defaults:\n- small\nbatch_size: 8\n"},
            (),
            {"trainer.batch_size": 8},
        ),
        (
            {"config": "defaults:\n- trainer@fit.trainer: small\n"},
            (),
            {"fit.trainer.batch_size": 8, "lr": None},
        ),
    ],
    ids=["groups", "whole", "command_line", "own_files", "named_by_itself", "package"],
)
def test_hydra_composes_the_keys_of_groups(
    script: Path, files: dict[str, str], words: tuple[str, ...], keys: dict[str, object]
) -> None:
    for name, text in files.items():
        (script.parent / "conf" / f"{name}.yaml").write_text(text)
    found = dict(hydra_values(script, HYDRA, words))
    assert {name: found.get(name) for name in keys} == keys


@pytest.mark.parametrize("text", ["import hydra", "", HYDRA.replace('config")', 'nope")')])
def test_a_script_without_such_a_file_composes_nothing(script: Path, text: str) -> None:
    assert hydra_values(script, text) == ()


def test_a_package_is_started_by_its_main_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    paths = [script_path(LaunchRequest(script=name, kind="module")) for name in ("pkg", "pkg.a")]
    assert paths == [Path("pkg/__main__.py"), Path("pkg/a.py")]


PACKAGE = {
    "__init__.py": "",
    "__main__.py": "from .cli import main\nmain()\n",
    "cli.py": "import argparse, os\nfrom .loop import train\ndef main():\n    pass\n",
    "loop.py": "import torch\nfrom toy import models\nfrom .deep.er import x\n",
    "models/__init__.py": "from ..loss import bce\n",
    "loss.py": "LOSS = 1\n",
    "deep/er.py": "DEEP = 1\n",
    "unused.py": "UNUSED = 1\n",
}


def write_package(folder: Path) -> None:
    for name, text in PACKAGE.items():
        path = folder / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_package_is_read_from_the_module_that_its_entry_file_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = own_sources(LaunchRequest(script="toy", kind="module"))
    assert found.text == PACKAGE["cli.py"]
    names = {"loop.py", "models/__init__.py", "loss.py", "deep/er.py"}
    assert set(found.modules) == {PACKAGE[name] for name in names}


def test_an_installed_command_is_read_from_the_module_that_it_calls(tmp_path: Path) -> None:
    write_package(tmp_path / "site")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    command = tmp_path / "toytrain"
    command.write_text(
        f"#!{python}\nimport re\nimport sys\nfrom toy.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    found = own_sources(LaunchRequest(script=str(command), python=str(python)))
    assert found.script == tmp_path / "site" / "toy" / "cli.py"
    assert PACKAGE["loss.py"] in found.modules


def test_a_folder_without_an_init_file_is_part_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "toy"
    (package / "cli").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "loss.py").write_text("LOSS = 1\n")
    (package / "cli" / "train.py").write_text("TRAIN = 1\n")
    text = "from toy.cli.train import train\nfrom toy import loss\n"
    assert sorted(modules_of(package / "cli" / "main.py", text)) == ["LOSS = 1\n", "TRAIN = 1\n"]


@pytest.mark.parametrize(("count", "is_whole"), [(10, True), (100, False)])
def test_a_large_program_is_read_in_part(tmp_path: Path, count: int, is_whole: bool) -> None:
    for number in range(count):
        (tmp_path / f"m{number}.py").write_text(f"N = {number}\n")
    script = tmp_path / "a.py"
    script.write_text("".join(f"import m{number}\n" for number in range(count)))
    found = own_sources(LaunchRequest(script=str(script)))
    assert found.is_whole == is_whole
    assert (len(found.modules) == count) == is_whole


def test_a_script_that_does_something_itself_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("def main(): pass\n")
    script = tmp_path / "a.py"
    script.write_text("from b import main\ndef train():\n    main()\ntrain()\n")
    found = own_sources(LaunchRequest(script=str(script)))
    assert (found.script, found.modules) == (script, ("def main(): pass\n",))


def test_a_script_that_only_calls_a_library_is_read_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("from argparse import ArgumentParser\nfrom pytest import main\nmain()\n")
    assert own_sources(LaunchRequest(script=str(script))).script == script


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("import c, b\n")
    (tmp_path / "c.py").write_text("import b\n")
    assert modules_of(tmp_path / "a.py", "import b\nprint(b)") == ("import c, b\n", "import b\n")


RUNNER = """
import runpy
import sys
from pathlib import Path
import toy
def main():
    file = str(Path(toy.__file__).parent.parent / "recipes" / f"{sys.argv[2]}.py")
    sys.argv = [file, *sys.argv[3:]]
    runpy.run_path(file, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "full", "--config", "x.yaml", "batch_size=2"), "full.py"),
        (("run", "--nproc_per_node", "2", "full", "--config", "x.yaml"), "full.py"),
        (("run", "own.py", "--config", "x.yaml"), "own.py"),
        (("ls",), "cli.py"),
    ],
)
def test_a_recipe_that_a_program_executes_by_its_name_is_read_as_the_script(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy" / "cli.py").write_text(RUNNER)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "full.py").write_text("FULL = 1\n")
    (tmp_path / "own.py").write_text("OWN = 1\n")
    found = own_sources(LaunchRequest(script="toy", kind="module", script_args=words))
    assert found.script.name == name
    assert found.text == found.script.read_text()


def command_of(folder: Path, place: str, *, has_module: bool = True) -> LaunchRequest:
    """An installed command that adds a folder to its path and calls a function of a package."""
    for part in ("bin", "lib/fit"):
        (folder / part).mkdir(parents=True)
    (folder / "lib/fit/__init__.py").touch()
    if has_module:
        (folder / "lib/fit/cli.py").write_text("p.add_argument('--batch-size', '-b', default=16)")
    adds = f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {place})\n"
    command = folder / "bin" / "fit"
    command.write_text(f"#!/usr/bin/python\n{adds}from fit.cli import main\nsys.exit(main())\n")
    return LaunchRequest(script=str(command), kind="script", script_args=("-b", "16"))


@pytest.mark.parametrize(
    "place", ["'{folder}/lib'", "str(Path(__file__).resolve().parent.parent / 'lib')"]
)
def test_a_folder_that_a_command_adds_to_its_path_is_searched(tmp_path: Path, place: str) -> None:
    found = own_sources(command_of(tmp_path, place.format(folder=tmp_path)))
    assert found.script == tmp_path / "lib/fit/cli.py"
    assert found.is_whole


def test_a_command_whose_module_is_not_found_is_not_read_whole(tmp_path: Path) -> None:
    assert not own_sources(command_of(tmp_path, "find()", has_module=False)).is_whole


def test_a_folder_that_a_script_adds_to_its_path_holds_modules_of_its_own(script: Path) -> None:
    text = "import sys\nsys.path.append(Path(__file__).parent / 'parts')\nimport model"
    assert modules_of(script, text) == ("c",)
