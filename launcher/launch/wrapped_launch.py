"""Wrapped launchers, such as ``accelerate launch`` and ``torchrun``: what they would start.

Their flags become ours and variables, so that one launcher starts the ranks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from autoconf_launch.core import ConfigError, visible
from autoconf_launch.core import config_keys as keys

from ..config_file import read_config
from ..dialects import accelerate as names
from ..flags import parse_request
from ..input_file import is_file
from ..machine import LOCAL, other_python, python_beside, python_of, split_python_flags
from ..request import LOCAL_RANK_FLAG, HostChoice, LaunchRequest
from ..script import facts_of, is_python, own_sources, plain_text

_LIKE_OURS = ("torchrun", "deepspeed")
"""Launchers whose flags are ours."""
_OTHERS = (
    *("mpirun", "mpiexec", "srun", "horovodrun", "bash", "sh", "uv", "poetry", "conda"),
    *("fabric", "composer", "colossalai"),
)
_SHELLS = ("bash", "sh", "zsh")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PLACING = ("nice", "ionice", "numactl", "taskset", "chrt", "stdbuf", "nohup")
"""Programs that place the program behind their flags and do nothing else."""
_RUNNERS = dict.fromkeys(("uv", "poetry", "pdm", "pipenv", "hatch", "conda", "mamba"), "run")
"""Programs that start another in their environment, with the word that does so."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_TELLS_RANKS = "torch.distributed.launch"
_MODULES = {
    "accelerate.commands.launch": ("accelerate", "launch"),
    "torch.distributed.run": ("torchrun",),
    _TELLS_RANKS: ("torchrun",),
}


def unwrap_launcher(request: LaunchRequest) -> LaunchRequest:
    """The launch that a wrapped launcher would make; the same request if there is none.

    Raises:
        ConfigError: its flags cannot be read, or name several machines.
    """
    words = (request.script, *request.script_args)
    if request.kind == "script":
        _refuse_shell_script(words)
    if request.kind != "module" and (inner := _without_wrapper(request)) is not None:
        return inner
    if request.kind == "module":
        words = (*_MODULES.get(request.script, (request.script,)), *request.script_args)
    elif Path(request.script).suffix and not _PYTHON.fullmatch(Path(request.script).name):
        return request
    program, rest = Path(words[0]).name, words[1:]
    if program == "accelerate" and rest[:1] == ("launch",):
        return _accelerate(_beside(request), rest[1:])
    if program in _LIKE_OURS:
        inner = parse_request(rest)
        usual = 1 if program == "torchrun" else None  # as many as it starts if nobody says
        tells = usual is None or request.script == _TELLS_RANKS
        told = LOCAL_RANK_FLAG if tells and inner.local_rank_flag is None else ""
        inner = replace(inner, processes=inner.processes or usual, local_rank_flag=told)
        return _merge(_beside(request), inner)
    if _PYTHON.fullmatch(program) and request.kind != "module":
        return _python(request, rest)
    return _installed_command(request) if request.kind == "script" else request


def _refuse_shell_script(words: tuple[str, ...]) -> None:
    """Raise ConfigError for a shell script, with the command that it would start."""
    named = words[1:] if words[0] in _SHELLS else words[:1]
    path = Path(next((word for word in named if not word.startswith("-")), ""))
    text = plain_text(path) if words[0] in _SHELLS or path.suffix == ".sh" else ""
    if not text:
        return
    lines = (line.split("#")[0].strip() for line in text.replace("\\\n", " ").splitlines())
    commands = [" ".join(line.split()) for line in lines if _is_training(line)]
    shown = f": {visible(commands[-1])}" if commands else "."
    raise ConfigError(
        f"{path} is a shell script; write the command in it that trains, with its variables "
        f"filled in{shown}"
    )


def _is_training(line: str) -> bool:
    words = [word for word in line.split() if not _ASSIGNMENT.fullmatch(word)]
    program = Path(words[words[0] == "exec"]).name if len(words) > 1 else ""
    return program in (*_LIKE_OURS, "accelerate") or bool(_PYTHON.fullmatch(program))


def _installed_command(request: LaunchRequest) -> LaunchRequest:
    """The launch of a Python program on PATH; the same request if it is a file.

    Raises:
        ConfigError: it is another program.
    """
    if is_file(request.script):
        return request
    program, found = Path(request.script).name, shutil.which(request.script)
    if found and program not in _OTHERS and is_python(plain_text(Path(found))):
        return _started_once(replace(_beside(request), script=found))
    if found or program in _OTHERS:
        raise ConfigError(
            f"{program} is not a launcher known here; give the script itself, and the number "
            "of its ranks by --num_gpus N."
        )
    return request


def _without_wrapper(request: LaunchRequest) -> LaunchRequest | None:
    """The launch behind a word that changes only environment or placement; None: no such word.

    Raises:
        ConfigError: no command follows it.
    """
    words = (request.script, *request.script_args)
    options = _env_options(words)
    skipped = options + (words[0] == "env")
    variables = [*takewhile(_ASSIGNMENT.fullmatch, words[skipped:])]
    start = len(variables) + skipped
    if not start:
        is_wrapper = words[0] in _PLACING or _RUNNERS.get(words[0]) in words[1:2]
        if not is_wrapper or is_file(words[0]):
            return None
        if shutil.which(words[0]) is None:
            raise ConfigError(f"{words[0]} is not on PATH; install it, or omit it.")
        own = 2 if words[0] in _RUNNERS else 1
        start = own + len([*takewhile(lambda word: not _is_command(word), words[own:])])
    wrapper, inside = words[:start], words[start:]
    if not inside or inside[0].startswith("-"):
        raise ConfigError(
            f"{shlex.join(words)} starts no program that can be read here; give the script itself."
        )
    inner = replace(request, script=inside[0], script_args=inside[1:])
    if words[0] in _PLACING or options:
        placed = unwrap_launcher(inner)
        return replace(placed, prefix=(*wrapper, *placed.prefix))
    if words[0] in _RUNNERS:
        return replace(unwrap_launcher(inner), python=python_of(wrapper))
    set_here = tuple((name, value) for name, _, value in (v.partition("=") for v in variables))
    return unwrap_launcher(replace(inner, variables=(*request.variables, *set_here)))


def _env_options(words: tuple[str, ...]) -> int:
    """Number of words after ``env`` that unset variables.

    Raises:
        ConfigError: it has another option, such as ``-i``.
    """
    count = 0
    while words[0] == "env" and words[1 + count : 2 + count] and words[1 + count][0:1] == "-":
        option = words[1 + count]
        if not option.startswith(("-u", "--unset")):
            raise ConfigError(
                f"env {option} cannot be followed, as ranks need the variables that their "
                "launcher sets; only env -u NAME and NAME=VALUE can."
            )
        count += 2 if option in ("-u", "--unset") else 1
    return count


def _is_command(word: str) -> bool:
    if word in (*_LIKE_OURS, "accelerate") or _PYTHON.fullmatch(Path(word).name):
        return True
    return not word.startswith("-") and (is_file(word) or shutil.which(word) is not None)


def accelerate_variables(config: dict[str, Any]) -> dict[str, str]:
    """The variables that ``accelerate launch`` makes from its configuration file."""
    kind = str(config.get("distributed_type", ""))
    found = dict(names.KINDS.get(kind, ()))
    if config.get("parallelism_config"):
        found[names.USE_PARALLELISM] = "true"
    for key, value in config.items():
        if key in names.KEYS:
            found[names.KEYS[key]] = _text(value)
        if key in names.FILE_SECTIONS and isinstance(value, dict):
            found |= {_variable(key, str(inner)): _text(held) for inner, held in value.items()}
    return found


def _variable(section: str, key: str) -> str:
    """The variable of a key in a section of Accelerate's file.

    Raises:
        ConfigError: it would be a variable of another program, such as PYTHONPATH.
    """
    before, own = names.FILE_SECTIONS[section]
    name = names.KEYS.get(key, f"{before}{key.upper()}")
    if key in names.KEYS or re.fullmatch(rf"{own}[A-Z0-9_]+", name):
        return name
    raise ConfigError(
        f"{section} of Accelerate's configuration has {key!r}, but its keys are letters, digits "
        f"and _ and begin with {own.removeprefix(before).lower() or 'a letter'}; remove it."
    )


def _beside(request: LaunchRequest) -> LaunchRequest:
    """Run the script by the Python that the wrapped launcher is installed for."""
    if request.kind == "module":
        return request
    return replace(request, python=python_beside(request.script))


def _accelerate(request: LaunchRequest, words: Sequence[str]) -> LaunchRequest:
    flags, rest = _split(words)
    config = _config(flags.get(names.CONFIG_FILE))
    for flag, key in ((names.MACHINES, "num_machines"), (names.PROCESSES, "num_processes")):
        flags.setdefault(flag, str(config.get(key) or ""))
    if flags[names.MACHINES] not in ("", "1"):
        raise ConfigError(
            f"accelerate launch is given {flags[names.MACHINES]} machines; give hosts to "
            "autoconf-launch itself (--hostfile FILE)."
        )
    variables = {**accelerate_variables(config), **dict(_flag_variables(flags))}
    if file := variables.get(names.DEEPSPEED_FILE):
        variables |= _deepspeed_variables(Path(file), tunes=bool(request.autotuning))
    processes = flags[names.PROCESSES]
    module = bool({"-m", "--module"} & flags.keys())
    return replace(
        request,
        script=rest[0],
        script_args=tuple(rest[1:]),
        kind="module" if module else "program" if "--no_python" in flags else "script",
        local_rank_flag="",
        processes=request.processes or (int(processes) if processes.isdigit() else None),
        variables=(*request.variables, *sorted(variables.items())),
    )


def _deepspeed_variables(file: Path, *, tunes: bool) -> dict[str, str]:
    """Numbers of a DeepSpeed file as variables: Accelerate takes the file's numbers.

    Source:
        accelerate 1.x, DeepSpeedPlugin.__post_init__ and Accelerator._prepare_deepspeed.

    Raises:
        ConfigError: a tune could not change the accumulation.
    """
    document = read_config(file)
    stage = document.get(keys.ZERO_STAGE)
    found = {names.DEEPSPEED_STAGE: str(stage)} if type(stage) is int else {}
    steps = document.get(keys.ACCUMULATION, 1)
    if type(steps) is not int:
        return found
    if tunes and steps > 1:
        raise ConfigError(
            f'{file} sets gradient_accumulation_steps to {steps}; write "auto" there and give '
            f"accelerate launch --gradient_accumulation_steps {steps}, so that trials can set it."
        )
    return {**found, names.ACCUMULATION_VARIABLE: str(steps)}


def _split(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    flags: dict[str, str] = {}
    index = 0
    while index < len(words) and words[index].startswith("-"):
        name, equals, value = words[index].partition("=")
        flag = name if len(name) == 2 else f"--{name.lstrip('-').replace('-', '_')}"
        bare = flag in names.LAUNCH_SWITCHES
        if not equals and not bare:
            index += 1
            value = words[index] if index < len(words) else ""
        flags[flag] = value
        index += 1
    if index >= len(words):
        raise ConfigError("accelerate launch is given no script; give one after its flags.")
    return flags, words[index:]


def _config(path: str | None) -> dict[str, Any]:
    if path is not None:
        return read_config(Path(path)).to_dict()
    cache = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    default = Path(cache) / "accelerate" / "default_config.yaml"
    return read_config(default).to_dict() if default.is_file() else {}


def _flag_variables(flags: dict[str, str]) -> Iterator[tuple[str, str]]:
    for flag, value in flags.items():
        if flag in names.TURNED_ON:
            yield names.TURNED_ON[flag], "true"
        elif flag in names.LAUNCH_VARIABLES:
            yield names.LAUNCH_VARIABLES[flag], value
        elif flag.startswith(names.LAUNCH_SAME):
            yield flag.lstrip("-").upper(), value


def _merge(request: LaunchRequest, inner: LaunchRequest) -> LaunchRequest:
    """Our own flags override the wrapped launcher's."""
    return replace(
        request,
        script=inner.script,
        script_args=inner.script_args,
        kind=inner.kind,
        local_rank_flag=inner.local_rank_flag if request.local_rank_flag is None else "",
        processes=request.processes or inner.processes,
        hosts=inner.hosts if request.hosts == HostChoice() else request.hosts,
    )


def _python(request: LaunchRequest, words: Sequence[str]) -> LaunchRequest:
    flags, words = split_python_flags(words)
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words or words[0].startswith("-"):
        raise ConfigError(
            f"{request.script} {' '.join(words)} cannot be launched; give the script itself."
        )
    inner = replace(request, script=words[0], script_args=tuple(words[1:]))
    kind: Literal["module", "script"] = "module" if module else "script"
    kept = tuple(flag for flag in flags if flag != "-u")
    python = other_python(request.script)
    inner = replace(inner, kind=kind, python=python, python_flags=kept)
    found = unwrap_launcher(inner) if module else inner
    if found is not inner or request.kind == "program":
        return found
    return _started_once(inner)


def _started_once(request: LaunchRequest) -> LaunchRequest:
    facts = facts_of(own_sources(request).text)
    alone = request.processes in (None, 1) or facts.starts_ranks or facts.spreads
    return replace(request, alone=alone)


def as_typed(request: LaunchRequest) -> LaunchRequest:
    """The request whose flags mean the same start: a number of ranks would mean as many starts.

    Named slots of this machine leave the script to be started once.
    """
    hosts, ranks = request.hosts, request.processes
    if not request.alone or not isinstance(ranks, int) or _started_once(request).alone:
        return request
    if not (hosts.include or hosts.exclude or hosts.hostfile):
        slots = ",".join(map(str, range(ranks)))
        hosts = replace(hosts, include=f"{LOCAL}:{slots}")
    return replace(request, processes=None, hosts=hosts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
