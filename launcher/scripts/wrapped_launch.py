"""``accelerate launch``, ``torchrun`` and the like in our place: what they would have started.

Their flags become ours and variables, so that one launcher starts the ranks. Not: any start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError

from ..command_line.flags import parse_request
from ..config_file import read_config
from ..dialects.script_facts import facts_of
from ..dialects.spellings import accelerate as names
from ..request import HostChoice, LaunchRequest
from .plain_text import plain_text
from .script_files import script_path

_LIKE_OURS = ("torchrun", "deepspeed")
"""Launchers whose flags are ours."""
_OTHERS = ("mpirun", "mpiexec", "srun", "horovodrun", "bash", "sh", "uv", "poetry", "conda")
_PYTHON = ("python", "python3")
_MODULES = {
    "accelerate.commands.launch": ("accelerate", "launch"),
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
}


def unwrapped(request: LaunchRequest) -> LaunchRequest:
    """The launch of what a launcher would start; the same request where there is none.

    Raises:
        ConfigError: its flags cannot be read, or name several machines.
    """
    words = (request.script, *request.script_args)
    if request.kind == "module":
        words = (*_MODULES.get(request.script, (request.script,)), *request.script_args)
    elif Path(request.script).suffix:
        return request
    program, rest = Path(words[0]).name, words[1:]
    if program == "accelerate" and rest[:1] == ("launch",):
        return _accelerate(request, rest[1:])
    if program in _LIKE_OURS:
        inner = parse_request(rest)
        usual = 1 if program == "torchrun" else None  # as many as it starts if nobody says
        return _merged(request, replace(inner, processes=inner.processes or usual))
    if program in _OTHERS and request.kind == "script" and not Path(request.script).is_file():
        raise ConfigError(
            f"{program} is no launcher that is known here; give the script itself, and the number "
            "of its ranks by --num_gpus N."
        )
    if program in _PYTHON and request.kind != "module":
        return _python(request, rest)
    return request


def accelerate_variables(config: dict[str, Any]) -> dict[str, str]:
    """The variables that ``accelerate launch`` makes of its configuration file."""
    kind = str(config.get("distributed_type", ""))
    found = dict(names.KINDS.get(kind, ()))
    if config.get("parallelism_config"):
        found[names.USE_PARALLELISM] = "true"
    for key, value in config.items():
        if key in names.KEYS:
            found[names.KEYS[key]] = _text(value)
        prefix = names.SECTIONS.get(key)
        for inner, held in (value if isinstance(value, dict) else {}).items():
            if prefix is not None:
                found[names.KEYS.get(inner, f"{prefix}{inner.upper()}")] = _text(held)
    return found


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
    processes = flags[names.PROCESSES]
    module = bool({"-m", "--module"} & flags.keys())
    return replace(
        request,
        script=rest[0],
        script_args=tuple(rest[1:]),
        kind="module" if module else "program" if "--no_python" in flags else "script",
        processes=request.processes or (int(processes) if processes.isdigit() else None),
        variables=(*request.variables, *sorted(variables.items())),
    )


def _split(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """Flags with their values, and the script with its arguments."""
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
    """The named file, or the user's default one."""
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


def _merged(request: LaunchRequest, inner: LaunchRequest) -> LaunchRequest:
    """Our own flags weigh more than those of the launcher in our place."""
    return replace(
        request,
        script=inner.script,
        script_args=inner.script_args,
        kind=inner.kind,
        processes=request.processes or inner.processes,
        hosts=inner.hosts if request.hosts == HostChoice() else request.hosts,
    )


def _python(request: LaunchRequest, words: Sequence[str]) -> LaunchRequest:
    words = [word for word in words if word != "-u"]
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words or words[0].startswith("-"):
        raise ConfigError(
            f"{request.script} {' '.join(words)} cannot be launched; give the script itself."
        )
    inner = replace(request, script=words[0], script_args=tuple(words[1:]))
    inner = replace(inner, kind="module" if module else "script")
    found = unwrapped(inner) if module else inner
    if found is not inner or request.kind == "program":
        return found
    facts = facts_of(plain_text(script_path(inner)))
    alone = request.processes in (None, 1) or facts.starts_ranks or facts.spreads
    return replace(inner, alone=alone)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
