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
    assert split_command(["--model", "gpt2"]) == (["--model", "gpt2"], None)


@pytest.mark.parametrize("words", [("train.py", "--lr"), (sys.executable, "train.py", "--lr")])
def test_a_script_alone_is_run_by_our_python(words: tuple[str, ...]) -> None:
    assert script_command(words).argv == (sys.executable, "train.py", "--lr")


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["torchrun", "--nproc_per_node=8", "--nnodes", "1", "train.py"], ("train.py",)),
        (["accelerate", "launch", "--num_processes", "8", "train.py"], ("train.py",)),
        (
            ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"],
            ("train.py",),
        ),
        (["deepspeed", "--num_gpus", "4", "train.py"], ("train.py", "--local_rank=0")),
        (["torchrun", "-m", "my.train"], ("-m", "my.train")),
    ],
)
def test_launchers_are_taken_off(launchers: Path, words: list[str], argv: tuple[str, ...]) -> None:
    command = script_command([*words, "--lr", "1"])
    assert command.argv == (str(launchers / "python"), *argv, "--lr", "1")
    assert dict(command.environment)["WORLD_SIZE"] == "1"
    assert command.name == argv[-1] or words[0] == "deepspeed"


def test_what_cannot_be_run_is_said() -> None:
    with pytest.raises(ConfigError, match="Nothing follows --"):
        script_command([])
    with pytest.raises(ConfigError, match="start it without -I"):
        script_command([sys.executable, "-I", "train.py"])


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
