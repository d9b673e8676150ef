"""Files that a script's source names."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.script.source import hydra_values, own_modules, script_path

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


def test_modules_beside_the_script_are_its_own(script: Path) -> None:
    text = "import torch\nfrom options import get\nfrom parts.model import Net\nimport parts"
    assert sorted(own_modules(script, text)) == ["a", "b", "c"]


def test_what_hydra_composes_has_the_keys_of_its_groups(script: Path) -> None:
    keys = dict(hydra_values(script, HYDRA))
    assert keys == {"trainer.batch_size": 8, "lr": 0.1, "data.bs": 4}


def test_a_group_may_be_of_the_whole(script: Path) -> None:
    group = script.parent / "conf" / "trainer" / "small.yaml"
    group.write_text("# @package _global_\nbatch_size: 8\n")
    assert ("batch_size", 8) in hydra_values(script, HYDRA)


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
