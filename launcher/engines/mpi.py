"""Engines ``openmpi``, ``mpich``, ``impi`` and ``mvapich``: the ``mpirun`` of an MPI."""

from __future__ import annotations

import contextlib
import subprocess

from autoconf_launch.core import ConfigError

from .over_hosts import GroupEngine, without_shell

_PATIENCE_S = 20.0
_OPEN_MPI = "Open MPI"
_MPIS = {_OPEN_MPI: _OPEN_MPI, "HYDRA": "MPICH", "Intel(R) MPI": "Intel MPI"}
"""Sign in the output of ``mpirun --version`` -> the MPI that it belongs to."""


class OpenMpiEngine(GroupEngine):
    """A process on each host, in their order, bound to no core."""

    program = "mpirun"

    def reach_all(
        self, hosts: tuple[str, ...], command: tuple[str, ...], exported: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        _require_mpi(self._access.engine, is_open=True)
        places = ",".join(f"{host}:1" for host in hosts)
        words = ("mpirun", "-np", str(len(hosts)), "--host", places, "--map-by", "ppr:1:node")
        names = tuple(word for name in exported for word in ("-x", name))
        there = without_shell(self._access, (*command, "OMPI_COMM_WORLD_RANK"))
        return (*words, "--bind-to", "none", *names, *self._access.arguments, *there), {}


class HydraEngine(GroupEngine):
    """The process manager of MPICH, which Intel MPI and MVAPICH2 have as well."""

    program = "mpirun"

    def reach_all(
        self, hosts: tuple[str, ...], command: tuple[str, ...], exported: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        _require_mpi(self._access.engine, is_open=False)
        words = ("mpirun", "-n", str(len(hosts)), "-ppn", "1", "-hosts", ",".join(hosts))
        names = ("-genvlist", ",".join(exported)) if exported else ()
        there = without_shell(self._access, (*command, "PMI_RANK"))
        return (*words, *names, *self._access.arguments, *there), {}


def _require_mpi(engine: str, *, is_open: bool) -> None:
    """Refuse an ``mpirun`` of the other kind, which knows none of these options."""
    printed = ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ("mpirun", "--version")
        printed = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        ).stdout
    name = next((name for sign, name in _MPIS.items() if sign in printed), None)
    if name is not None and (name == _OPEN_MPI) != is_open:
        fitting = "mpich" if is_open else "openmpi"
        raise ConfigError(
            f"--launcher {engine} cannot start ranks by the mpirun of {name} that is found here; "
            f"use --launcher {fitting}, or put the other one first in PATH."
        )
