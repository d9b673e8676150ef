"""The launcher's side of the probe: how it is injected, and why it may stay silent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoconf_launch.core import PROBE_VARIABLE, Mode, RankTask, Sign, sign_path
from autoconf_launch.launcher.launch import probe_environment, why_silent
from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.launcher.machine import deaf_flag


@pytest.fixture
def task(tmp_path: Path) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a1")


def test_the_injected_folder_holds_nothing_to_import_but_sitecustomize() -> None:
    names = {path.name for path in INJECTED.glob("*.py")}
    assert names == {"__init__.py", "sitecustomize.py"}


def test_the_script_learns_its_task(task: RankTask, tmp_path: Path) -> None:
    variables = dict(probe_environment(task, tmp_path))
    assert RankTask.from_variable(variables[PROBE_VARIABLE]) == task


def test_the_users_search_path_is_kept_behind_ours(
    task: RankTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/users/own", str(INJECTED)]))
    variables = dict(probe_environment(task, tmp_path))
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(INJECTED), "/users/own"]


def test_an_empty_entry_of_the_search_path_still_means_the_current_folder(
    task: RankTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/users/own")
    variables = dict(probe_environment(task, tmp_path))
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(INJECTED), "", "/users/own"]


def test_an_empty_search_path_adds_no_folder(
    task: RankTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    assert dict(probe_environment(task, tmp_path))["PYTHONPATH"] == str(INJECTED)


def test_our_packages_are_not_on_the_scripts_path(task: RankTask, tmp_path: Path) -> None:
    path = dict(probe_environment(task, tmp_path))["PYTHONPATH"].split(os.pathsep)
    assert not any(Path(entry, "autoconf_launch").exists() for entry in path)


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
def test_silence_is_explained_by_how_far_the_probe_came(
    task: RankTask, tmp_path: Path, signs: tuple[Sign, ...], said: str
) -> None:
    probe_environment(task, tmp_path)
    for sign in signs:
        sign_path(task, sign.value).write_text("why")
    assert said in why_silent(task)


def test_signs_of_an_earlier_attempt_explain_nothing(task: RankTask, tmp_path: Path) -> None:
    earlier = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a0")
    probe_environment(task, tmp_path)
    sign_path(earlier, Sign.INJECTED.value).write_text("")
    assert "never started" in why_silent(task)
