from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoconf_launch.core import TASK_VARIABLE, ConfigError
from autoconf_launch.launcher.first_forward import command_of_plan, split_command
from autoconf_launch.launcher.first_forward.command import script_command
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with the programs that start ranks."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("torchrun", "deepspeed", "accelerate", "python"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nothing"))
    return folder


def test_the_command_stands_after_two_dashes() -> None:
    own, words = split_command(["--cluster", "T4", "--", "python", "train.py", "--", "x"])
    assert (own, words) == (["--cluster", "T4"], ("python", "train.py", "--", "x"))


def test_without_two_dashes_there_is_no_command() -> None:
    assert split_command(["--model", "gpt2"]) == (["--model", "gpt2"], None)


def test_a_script_alone_is_run_by_our_python() -> None:
    assert script_command(["train.py", "--lr", "1"]).argv == (
        sys.executable,
        "train.py",
        "--lr",
        "1",
    )


def test_another_python_stays() -> None:
    assert script_command([sys.executable, "-u", "train.py"]).argv[0] == sys.executable


@pytest.mark.parametrize(
    "words",
    [
        ["torchrun", "--nproc_per_node=8", "--nnodes", "1", "train.py", "--lr", "1"],
        ["accelerate", "launch", "--num_processes", "8", "train.py", "--lr", "1"],
        ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "--lr", "1"],
    ],
)
def test_launchers_are_taken_off(launchers: Path, words: list[str]) -> None:
    command = script_command(words)
    assert command.argv == (str(launchers / "python"), "train.py", "--lr", "1")
    assert dict(command.environment)["WORLD_SIZE"] == "1"
    assert command.name == "train.py"


def test_deepspeed_tells_its_scripts_their_rank(launchers: Path) -> None:
    argv = script_command(["deepspeed", "--num_gpus", "4", "train.py", "--lr", "1"]).argv
    assert argv[1:] == ("train.py", "--local_rank=0", "--lr", "1")


def test_modules_are_run_as_modules(launchers: Path) -> None:
    assert script_command(["torchrun", "-m", "my.train", "x"]).argv[1:] == ("-m", "my.train", "x")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Nothing follows --"),
        (["no-such-program"], "cannot be run as a command"),
        (["elsewhere.py"], "elsewhere.py does not exist in"),
        (["python3", "elsewhere.py"], "elsewhere.py does not exist in"),
        ([sys.executable, "-I", "train.py"], "start it without -I"),
    ],
)
def test_what_cannot_be_run_is_said(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        script_command(words)


def test_a_rank_of_a_launch_is_alone_in_its_world_and_has_no_task() -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "8", "LR": "1", TASK_VARIABLE: "{}"}
    ranks = tuple(
        RankPlan(
            rank=rank,
            local_rank=rank,
            argv=("python", "train.py", "--batch_size", "4"),
            environment=tuple({**variables, "RANK": str(rank)}.items()),
        )
        for rank in range(8)
    )
    command = command_of_plan(LaunchPlan(name="profile", ranks=ranks, working_directory="."))
    assert (command.name, command.argv) == ("train.py", ranks[0].argv)
    environment = dict(command.environment)
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["LR"]) == ("0", "1", "1")
    assert TASK_VARIABLE not in environment
