"""The words after ``--``, or a launch, to one process that runs the script. Not: its start."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import TASK_VARIABLE, ConfigError

from ..flags import parse_request
from ..launch import read_script, unwrap_launcher
from ..machine import deaf_flag, free_port
from ..plan import LaunchPlan
from ..request import LaunchRequest
from ..script import ScriptSource

_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "autoconf-launch")
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
_DIVIDER = "--"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCommand:
    """One process.

    Attributes:
        name: of the script, for people.
        argv: as it is executed.
        environment: beyond ours.
    """

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def split_command(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """A verb's own arguments, and the command after ``--``; None where there is none."""
    words = list(arguments)
    if _DIVIDER not in words:
        return words, None
    place = words.index(_DIVIDER)
    return words[:place], tuple(words[place + 1 :])


def script_command(words: Sequence[str]) -> ScriptCommand:
    """What is to be started; a launcher of ranks is taken off, and one rank is left.

    Raises:
        ConfigError: there is no command, no such file, or its Python would not read the probe.
    """
    if not words:
        raise ConfigError("Nothing follows --; give the command, such as -- python train.py.")
    if words[0].endswith(".py"):
        words = (sys.executable, *words)
    program = _program(words[0])
    if _is_launcher(words):
        return _one_rank(program, words)
    if _PYTHON.fullmatch(Path(words[0]).name):
        _check_script(words)
    if flag := deaf_flag(words):
        raise ConfigError(
            f"{words[0]} is started with {flag}, so it reads neither PYTHONPATH nor "
            f"sitecustomize and cannot be inspected; start it without {flag}."
        )
    return ScriptCommand(name=_name(words), argv=(program, *words[1:]))


def script_source(words: Sequence[str]) -> ScriptSource:
    """What can be read of the script that a command starts, without running it.

    Raises:
        ConfigError: the command is wrong, or starts no script.
    """
    _, source = read_script(parse_request(list(words)))
    return source


def _program(word: str) -> str:
    found = shutil.which(word)
    if found is None:
        raise ConfigError(
            f"{word} cannot be run as a command; give one after --, such as -- python train.py."
        )
    return found


def _is_launcher(words: Sequence[str]) -> bool:
    if Path(words[0]).name in _LAUNCHERS:
        return True
    inside = _PYTHON.fullmatch(Path(words[0]).name) and list(words[1:2]) == ["-m"]
    return bool(inside and words[2:3] and words[2] in _LAUNCHER_MODULES)


def _one_rank(program: str, words: Sequence[str]) -> ScriptCommand:
    """The first of the ranks that the launcher would start, alone in its world."""
    ours = Path(words[0]).name == "autoconf-launch"
    request = parse_request(words[1:]) if ours else unwrap_launcher(parse_request(list(words)))
    python = _python_beside(program)
    module = ("-m",) if request.kind == "module" else ()
    start = () if request.kind == "program" else (python, *module)
    if request.kind == "script":
        _check_script((python, request.script))
    return ScriptCommand(
        name=_name((request.script,)),
        argv=(*start, request.script, *_local_rank(words, request), *request.script_args),
        environment=tuple({**dict(request.variables), **_variables_of_one_rank()}.items()),
    )


def command_of_plan(plan: LaunchPlan) -> ScriptCommand:
    """The first rank of a launch, alone in its world and without its task."""
    rank = plan.ranks[0]
    variables = dict(rank.environment)
    if "RANK" in variables:
        variables |= _variables_of_one_rank()
    variables.pop(TASK_VARIABLE, None)
    return ScriptCommand(
        name=_name(rank.argv), argv=rank.argv, environment=tuple(variables.items())
    )


def _variables_of_one_rank() -> dict[str, str]:
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }


def _local_rank(words: Sequence[str], request: LaunchRequest) -> tuple[str, ...]:
    """DeepSpeed gives its scripts this argument, unless it is told not to."""
    given = Path(words[0]).name == "deepspeed" and request.local_rank_flag
    return (f"{given}=0",) if given else ()


def _python_beside(program: str) -> str:
    """The Python of the environment that a launcher is installed in."""
    if _PYTHON.fullmatch(Path(program).name):
        return program
    beside = Path(program).parent / "python"
    return str(beside) if beside.exists() else sys.executable


def _check_script(words: Sequence[str]) -> None:
    script = next((word for word in words[1:] if not word.startswith("-")), None)
    if script is None or "-m" in words[1:] or "-c" in words[1:]:
        return
    if script.endswith(".py") and not Path(script).is_file():
        raise ConfigError(f"Script {script} does not exist in {Path.cwd()}; give its path.")


def _name(words: Sequence[str]) -> str:
    script = next((word for word in words if word.endswith(".py")), words[-1])
    return Path(script).name
