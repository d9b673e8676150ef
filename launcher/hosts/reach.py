"""The command that runs a program on another host; which hosts are this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from autoconf_launch.core import ConfigError

from ..request import RemoteAccess

LOCAL = "localhost"
CONNECT_S = 20
"""How long a host may take to answer."""
_Words: TypeAlias = tuple[str, ...]
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
_PACKAGES = {
    "ssh": "openssh-client",
    "srun": "slurm-client",
    "sbatch": "slurm-client",
    "pdsh": "pdsh",
    "mpirun": "openmpi-bin or mpich",
}
_PROGRAMS = {
    "pdsh": "pdsh",
    "openmpi": "mpirun",
    "mpich": "mpirun",
    "impi": "mpirun",
    "mvapich": "mpirun",
    "bcprun": "bcprun",
}
_Reach: TypeAlias = Callable[[str, RemoteAccess, str, _Words], _Words]
_PDSH_SSH = "PDSH_SSH_ARGS_APPEND"
_MPIS = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "Intel(R) MPI": "Intel MPI"}
"""What ``mpirun --version`` prints -> whose it is."""
_PATIENCE_S = 20.0
_ReachAll: TypeAlias = Callable[
    [_Words, RemoteAccess, _Words, _Words], tuple[_Words, dict[str, str]]
]


def reach_host(host: str, access: RemoteAccess, folder: str, command: Sequence[str]) -> _Words:
    """Argv of a local process whose standard streams are those of a command on that host.

    ``folder`` is where the command starts there.

    Raises:
        ConfigError: the engine is not installed, or the host's name could be read as an option.
    """
    _require_name(host)
    program, reach = ENGINES[access.engine]
    require_program(program, f"--launcher {access.engine}")
    return reach(host, access, folder, tuple(command))


def reach_all(
    hosts: Sequence[str], access: RemoteAccess, command: Sequence[str], exported: Sequence[str]
) -> tuple[_Words, dict[str, str]]:
    """Argv and variables of a local process that runs a command once on every host.

    A last word is added that says which host it is on; ``exported`` are names of variables that
    go along by name where the engine can.

    Raises:
        ConfigError: the engine is not installed, or cannot take a host's name.
    """
    for host in hosts:
        _require_name(host)
    require_program(_PROGRAMS[access.engine], f"--launcher {access.engine}")
    return GROUP_ENGINES[access.engine](tuple(hosts), access, tuple(command), tuple(exported))


def require_program(program: str, caller: str) -> None:
    """Check that a program of an engine is there.

    Raises:
        ConfigError: it is not installed.
    """
    if shutil.which(program) is None and program not in _PACKAGES:
        raise ConfigError(
            f"{caller} needs {program}, which only its own cluster has; run it there."
        )
    if shutil.which(program) is None:
        raise ConfigError(
            f"{caller} needs {program}, which is not installed; install it "
            f"(Debian: {_PACKAGES[program]}) or take another launcher."
        )


def _require_name(host: str) -> None:
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f"Host {host!r} is not a name or an address of a host; fix the hostfile."
        )


def _by_ssh(host: str, access: RemoteAccess, folder: str, command: _Words) -> _Words:
    """No password is ever asked for, and ssh's own settings decide on host keys."""
    port = ("-p", str(access.port)) if access.port else ()
    options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
    there = _in_shell(access, folder, command)
    return ("ssh", *options, *port, *access.arguments, "--", host, there)


def _by_srun(host: str, access: RemoteAccess, folder: str, command: _Words) -> _Words:
    """A step inside our allocation, with cores and GPUs of its own or, by default, beside others.

    Memory is not divided: with ``--mem=0`` each step may use all of the job's.
    """
    place: _Words = ("--nodes=1", "--ntasks=1", f"--nodelist={host}", f"--chdir={folder}")
    if step := access.step:
        gpus = f"gpu:{step.gpus}" if step.gpus else "none"
        own = ("--exact", "--mem=0", f"--cpus-per-task={step.cores}", f"--gres={gpus}")
        place = (*own, *place)
    else:
        place = ("--overlap", *place)
    if access.venv_script:
        command = ("/bin/sh", "-c", _in_shell(access, folder, command))
    return ("srun", *place, "--unbuffered", *access.arguments, *command)


def _in_shell(access: RemoteAccess, folder: str, command: _Words) -> str:
    steps = [shlex.join(("cd", folder))]
    if access.venv_script:
        steps.append(shlex.join((".", access.venv_script)))
    return " && ".join((*steps, "exec " + shlex.join(command)))


ENGINES: MappingProxyType[str, tuple[str, _Reach]] = MappingProxyType(
    {"ssh": ("ssh", _by_ssh), "slurm": ("srun", _by_srun)}
)
"""Value of ``--launcher`` -> the program that it needs, and how that reaches a host."""


def _by_pdsh(
    hosts: _Words, access: RemoteAccess, command: _Words, exported: _Words
) -> tuple[_Words, dict[str, str]]:
    """By ssh on all hosts at once, each with its number; no secret goes along.

    ``pdsh`` reads ``%`` itself, and a colon or an at sign in a name as a choice of its own.
    """
    if odd := next((host for host in hosts if re.search("[:%@]", host)), None):
        raise ConfigError(
            f"pdsh cannot reach {odd}, as it reads colons, % and @ itself; give the host a plain "
            "name in ssh's settings, or use --launcher ssh."
        )
    options = [os.environ.get(_PDSH_SSH, ""), "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}"]
    options += [f"-p{access.port}"] if access.port else []
    there = _in_shell(access, str(Path.cwd()), command).replace("%", "%%") + " %n"
    words = ("pdsh", "-S", "-R", "ssh", "-f", str(len(hosts)), "-w", ",".join(hosts))
    return (*words, *access.arguments, there), {_PDSH_SSH: " ".join(options).strip()}


def _require_mpi(engine: str, *, is_open: bool) -> None:
    """Refuse an ``mpirun`` of the other kind, which knows none of these options."""
    said = ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ("mpirun", "--version")
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        ).stdout
    name = next((name for sign, name in _MPIS.items() if sign in said), None)
    if name is not None and (name == "Open MPI") != is_open:
        fitting = "mpich" if is_open else "openmpi"
        raise ConfigError(
            f"--launcher {engine} cannot start ranks by the mpirun of {name} that is found here; "
            f"use --launcher {fitting}, or put the other one first in PATH."
        )


def _by_openmpi(
    hosts: _Words, access: RemoteAccess, command: _Words, exported: _Words
) -> tuple[_Words, dict[str, str]]:
    """One process on each host, in their order, bound to no core."""
    _require_mpi(access.engine, is_open=True)
    places = ",".join(f"{host}:1" for host in hosts)
    words = ("mpirun", "-np", str(len(hosts)), "--host", places, "--map-by", "ppr:1:node")
    names = tuple(word for name in exported for word in ("-x", name))
    there = without_shell(access, (*command, "OMPI_COMM_WORLD_RANK"))
    return (*words, "--bind-to", "none", *names, *access.arguments, *there), {}


def _by_hydra(
    hosts: _Words, access: RemoteAccess, command: _Words, exported: _Words
) -> tuple[_Words, dict[str, str]]:
    """The process manager of MPICH, which Intel MPI and MVAPICH2 have as well."""
    _require_mpi(access.engine, is_open=False)
    words = ("mpirun", "-n", str(len(hosts)), "-ppn", "1", "-hosts", ",".join(hosts))
    names = ("-genvlist", ",".join(exported)) if exported else ()
    there = without_shell(access, (*command, "PMI_RANK"))
    return (*words, *names, *access.arguments, *there), {}


def _by_bcprun(
    hosts: _Words, access: RemoteAccess, command: _Words, exported: _Words
) -> tuple[_Words, dict[str, str]]:
    """One command on each replica of a job of Base Command, whose shell reads it."""
    there = f"{_in_shell(access, str(Path.cwd()), command)} NGC_ARRAY_INDEX"
    size = ("--nnodes", str(len(hosts)), "--npernode", "1")
    return ("bcprun", *size, *access.arguments, "--cmd", there), {}


def without_shell(access: RemoteAccess, command: _Words) -> _Words:
    """The command itself, but for a script of the environment, which only a shell can source."""
    if access.venv_script is None:
        return command
    return ("/bin/sh", "-c", _in_shell(access, str(Path.cwd()), command))


GROUP_ENGINES: MappingProxyType[str, _ReachAll] = MappingProxyType(
    {
        "pdsh": _by_pdsh,
        "openmpi": _by_openmpi,
        "mpich": _by_hydra,
        "impi": _by_hydra,
        "mvapich": _by_hydra,
        "bcprun": _by_bcprun,
    }
)
"""Value of ``--launcher`` -> how one process reaches all hosts."""


@cache
def is_this_machine(host: str) -> bool:
    """Whether a name or an address is one of this machine's own."""
    own = socket.gethostname()
    if host in (LOCAL, own, own.partition(".")[0]):
        return True
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    import psutil  # the flags start without it

    interfaces = psutil.net_if_addrs().values()
    addresses = {a.address.partition("%")[0] for interface in interfaces for a in interface}
    return any(
        a.startswith("127.") or a == "::1" or a.partition("%")[0] in addresses for a in found
    )
