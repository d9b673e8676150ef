"""The launcher's side of the probe: how it is injected, and why it may stay silent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import PROBE_VARIABLE, Mode, RankTask, RawConfig, Sign, sign_path
from autoconf_launch.launcher.dialects import DATALOADER_BATCH_VARIABLE
from autoconf_launch.launcher.launch import in_training, probe_environment, why_silent
from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.launcher.machine import deaf_flag
from autoconf_launch.launcher.spelling import Rendered


@pytest.fixture
def task(tmp_path: Path) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a1")


def test_the_script_learns_its_task_and_can_import_nothing_else_of_ours(
    task: RankTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    variables = dict(probe_environment(task, tmp_path))
    assert RankTask.from_variable(variables[PROBE_VARIABLE]) == task
    assert variables["PYTHONPATH"] == str(INJECTED)
    names = {path.name for path in INJECTED.glob("*.py")}
    assert names == {"__init__.py", "sitecustomize.py"}
    assert not (INJECTED / "autoconf_launch").exists()


@pytest.mark.parametrize(
    ("given", "behind"),
    [(f"/own:{INJECTED}", ["/own"]), (":/own", ["", "/own"]), ("", [])],  # "": this folder
)
def test_the_users_search_path_is_kept_behind_ours(
    task: RankTask,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    behind: list[str],
) -> None:
    monkeypatch.setenv("PYTHONPATH", given)
    variables = dict(probe_environment(task, tmp_path))
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(INJECTED), *behind]


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python -I train.py", "-I"),
        ("python3.11 -u -E train.py", "-E"),
        ("/opt/bin/python -uS train.py", "-S"),
        ("python -W ignore -I train.py", "-I"),
        ("python -Xdev -I train.py", "-I"),
        ("python -u train.py -I", None),
        ("python -m train -E", None),
        ("python -c pass -S", None),
        ("python -s -P -O train.py", None),
        ("train.sh -I", None),
        ("python", None),
    ],
)
def test_flags_that_keep_the_probe_out_are_found(command: str, flag: str | None) -> None:
    assert deaf_flag(command.split()) == flag


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        ((), "never started"),
        ((Sign.INJECTED,), "no process of the script imported torch"),
        ((Sign.INJECTED, Sign.ARMED), "ran a backward pass or a step of a torch.optim.Optimizer"),
        ((Sign.INJECTED, Sign.BROKEN), "failed inside the script: why"),
    ],
)
def test_silence_is_explained_by_how_far_the_probe_of_this_attempt_came(
    task: RankTask, tmp_path: Path, signs: tuple[Sign, ...], said: str
) -> None:
    probe_environment(task, tmp_path)
    sign_path(replace(task, attempt="a0"), Sign.ARMED.value).write_text("")
    for sign in signs:
        sign_path(task, sign.value).write_text("why")
    assert said in why_silent(task)


@pytest.mark.parametrize(("name", "has_ours"), [(DATALOADER_BATCH_VARIABLE, True), ("A", False)])
def test_a_training_has_our_code_only_if_it_sets_the_batch(name: str, has_ours: bool) -> None:
    given = Rendered(config=RawConfig({}), script_args=(), environment=((name, "8"),))
    found = dict(in_training(given).environment)
    assert found.get("PYTHONPATH", "").startswith(str(INJECTED)) is has_ours
    assert found[name] == "8"
