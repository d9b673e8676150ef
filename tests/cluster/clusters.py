"""The engines that reach several hosts, each with a cluster on this machine: one row each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from . import kubernetes_cluster, namespaces, ray_cluster, slurm
from .launching import COMMAND, HOST, launch

PROGRAMS = {"ssh": "ssh", "pdsh": "pdsh", "openmpi": "mpirun"}
"""The engines for hosts with sshd, and the program of each."""


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """A cluster of at least two hosts with two slots each.

    Attributes:
        flags: of a launch; its size follows.
        variables: environment of a launch.
        is_idle_within: true if nothing of a launch lives after so many seconds.
        running: the cluster itself.
        host: expression by which a rank names its host.
        names_host: part of doctor's text on the second host; empty: each job gets other hosts.
        whole: flags of a launch that leaves no room for another; empty: there is no queue.
        after_kill: ends what a killed launcher leaves to a later one or to a deadline.
    """

    engine: str
    flags: tuple[str, ...]
    variables: dict[str, str]
    is_idle_within: Callable[[float], bool]
    running: Any
    host: str = HOST
    names_host: str = ""
    whole: tuple[str, ...] = ()
    after_kill: Callable[[], object] = lambda: None

    def size_flags(self, nodes: int, ranks: int) -> tuple[str, ...]:
        """Flags of a launch on so many hosts, with so many ranks on each."""
        return (*self.flags, "--num_nodes", str(nodes), "--num_gpus", str(ranks))

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            (*COMMAND, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=self.variables,
        )

    def launch(
        self, script: Path, *words: str, flags: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        flags = flags or self.size_flags(2, 2)
        return launch(flags, script, *words, variables=self.variables)


@contextmanager
def on_slurm() -> Iterator[Scheduler]:
    with slurm.running() as running:
        yield Scheduler(
            engine="sbatch",
            flags=("--launcher", "sbatch"),
            variables=running.variables,
            is_idle_within=running.is_idle_within,
            running=running,
            host="os.environ['SLURMD_NODENAME']",
            after_kill=partial(running.run, "scancel", "--user", "root"),
        )


@contextmanager
def on_ray() -> Iterator[Scheduler]:
    with ray_cluster.running() as running:
        flags = ("--launcher", "ray")
        yield Scheduler(
            engine="ray",
            flags=flags,
            variables=running.variables,
            is_idle_within=running.is_idle_within,
            running=running,
            host="os.environ['AUTOCONF_LAUNCH_NODE']",
            names_host="w1",
            whole=(*flags, "--num_nodes", "3", "--num_gpus", "2"),
        )


@contextmanager
def on_kubernetes(*, real: bool) -> Iterator[Scheduler]:
    with kubernetes_cluster.running(real=real) as running:
        yield Scheduler(
            engine="kubernetes",
            flags=running.flags(),
            variables=running.variables,
            is_idle_within=running.is_empty_within,
            running=running,
            names_host="node-1",
            whole=(*running.flags(gpus=4), "--num_nodes", "3", "--num_gpus", "1"),
            after_kill=running.end_killed_launch,
        )


@contextmanager
def on_hosts(engine: str) -> Iterator[Scheduler]:
    with namespaces.running() as running:
        yield Scheduler(
            engine=engine,
            flags=running.flags_of(engine),
            variables=running.variables,
            is_idle_within=running.are_idle_within,
            running=running,
            names_host=running.names[1],
        )


def _row(name: str, start: Callable[[], Any], is_there: object, reason: str) -> Any:
    skip = pytest.mark.skipif(not is_there, reason=reason)
    return pytest.param(start, id=name, marks=[pytest.mark.cluster, skip])


SCHEDULERS = (
    _row("slurm", on_slurm, slurm.IS_INSTALLED, slurm.REASON),
    _row("ray", on_ray, ray_cluster.IS_INSTALLED, ray_cluster.REASON),
    _row(
        "kubernetes",
        partial(on_kubernetes, real=True),
        kubernetes_cluster.HAS_SERVER,
        kubernetes_cluster.SERVER_REASON,
    ),
    _row(
        "stand_in",
        partial(on_kubernetes, real=False),
        kubernetes_cluster.CAN_STAND_IN,
        kubernetes_cluster.CLIENT_REASON,
    ),
)
HOSTS = tuple(
    _row(
        engine,
        partial(on_hosts, engine),
        namespaces.CAN_RUN and shutil.which(program),
        f"{namespaces.REASON}, and {program}",
    )
    for engine, program in PROGRAMS.items()
)
