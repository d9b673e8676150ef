"""The command that runs a program on another host, for each engine that can."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TypeAlias

from autoconf_launch.core import ConfigError

from ..request import RemoteAccess

CONNECT_S = 20
"""How long a host may take to answer."""

_Words: TypeAlias = tuple[str, ...]
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
_PACKAGES = {"ssh": "openssh-client", "srun": "slurm-client"}


def reach_host(host: str, access: RemoteAccess, folder: str, command: Sequence[str]) -> _Words:
    """Argv of a local process whose standard streams are those of a command on that host.

    ``folder`` is where the command starts there.

    Raises:
        ConfigError: the engine is not installed, or the host's name could be read as an option.
    """
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f"Host {host!r} is not a name or an address of a host; fix the hostfile."
        )
    if access.engine not in ENGINES:
        raise ConfigError(
            f"--launcher {access.engine} cannot start ranks on other hosts so far; give "
            f"{' or '.join(ENGINES)}."
        )
    program, reach = ENGINES[access.engine]
    if shutil.which(program) is None:
        raise ConfigError(
            f"--launcher {access.engine} needs {program}, which is not installed; install it "
            f"(Debian: {_PACKAGES[program]}) or take another launcher."
        )
    return reach(host, access, folder, tuple(command))


def _by_ssh(host: str, access: RemoteAccess, folder: str, command: _Words) -> _Words:
    """No password is ever asked for, and ssh's own settings decide on host keys."""
    port = ("-p", str(access.port)) if access.port else ()
    options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
    there = _in_shell(access, folder, command)
    return ("ssh", *options, *port, *access.arguments, "--", host, there)


def _by_srun(host: str, access: RemoteAccess, folder: str, command: _Words) -> _Words:
    """A step inside our allocation; slots are ours to give, so steps overlap."""
    place = ("--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", f"--chdir={folder}")
    if access.venv_script:
        command = ("/bin/sh", "-c", _in_shell(access, folder, command))
    return ("srun", *place, "--unbuffered", *access.arguments, *command)


def _in_shell(access: RemoteAccess, folder: str, command: _Words) -> str:
    steps = [shlex.join(("cd", folder))]
    if access.venv_script:
        steps.append(shlex.join((".", access.venv_script)))
    return " && ".join((*steps, "exec " + shlex.join(command)))


_Reach: TypeAlias = Callable[[str, RemoteAccess, str, _Words], _Words]

ENGINES: MappingProxyType[str, tuple[str, _Reach]] = MappingProxyType(
    {"ssh": ("ssh", _by_ssh), "slurm": ("srun", _by_srun)}
)
"""Value of ``--launcher`` -> the program that it needs, and how that reaches a host."""
