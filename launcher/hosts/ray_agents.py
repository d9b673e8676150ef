"""Agents on the nodes of a Ray cluster that runs, and what nodes it has.

Ray is spoken to by a process of its own, ``ray_driver.py``; the lines are files of a folder.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError, visible

from ..request import RemoteAccess
from .folder_line import AGENT_COMPLAINT, FolderLine, StartingProcess, last_line, make_line_folder
from .line import agent_command
from .reach import without_shell

ANY_NODE = ""
"""A host that Ray chooses."""
_DRIVER = Path(__file__).with_name("ray_driver.py")
_NODE_VARIABLE = "AUTOCONF_LAUNCH_NODE"
_PATIENCE_S = 60.0
"""How long Ray may take to say what nodes it has, and an agent to be heard once it has a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A node of the cluster, with the CPUs and GPUs that Ray counts there."""

    name: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySize:
    """What a launch reserves of a host; nothing for an agent that only says what its host is."""

    ranks: int = 0
    gpus: int = 0


@cache
def find_ray_nodes() -> tuple[RayNode, ...]:
    """The nodes that run tasks, by name: of the cluster at ``RAY_ADDRESS``, else of this host's.

    Raises:
        ConfigError: ray is not installed.
        HardwareError: no cluster answers, or it has no such node.
    """
    _require_ray()
    try:
        answer = subprocess.run(
            _command({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HardwareError(
            f"The Ray cluster does not answer within {_PATIENCE_S:.0f} s; see `ray status`."
        ) from None
    if answer.returncode:
        why = last_line(answer.stderr).removeprefix(AGENT_COMPLAINT)
        raise HardwareError(f"{why[:1].upper()}{why[1:]}.")
    found = tuple(
        RayNode(name=node["name"], cpus=node["cpus"], gpus=node["gpus"])
        for node in json.loads(answer.stdout)
    )
    if not found:
        raise HardwareError("No node of the Ray cluster has CPUs or GPUs; see `ray status`.")
    return found


def open_ray(
    hosts: Sequence[str],
    access: RemoteAccess,
    *,
    sizes: Sequence[RaySize] = (),
    folder: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> tuple[FolderLine, ...]:
    """Start an agent on each of these nodes; ``sizes`` are what it reserves of each.

    Raises:
        ConfigError: ray is not installed, or words are given for it.
    """
    _require_ray()
    if access.arguments:
        raise ConfigError(
            f"--launcher ray has no program that --launcher_args {access.arguments[0]} could go "
            "to; omit them (RAY_ADDRESS says which cluster)."
        )
    own = make_line_folder(folder or str(Path.cwd()))
    order = {
        "folder": str(own),
        "hosts": list(hosts),
        "sizes": [asdict(size) for size in sizes or [RaySize() for _ in hosts]],
        "command": without_shell(access, (*agent_command(), str(own), _NODE_VARIABLE)),
        "node_variable": _NODE_VARIABLE,
        "secrets": list(secrets or ()),
    }
    try:
        return RayStarter(_command(order), own, secrets or {}).lines(hosts)
    except OSError:
        shutil.rmtree(own, ignore_errors=True)
        raise


def _command(order: Mapping[str, object]) -> tuple[str, ...]:
    return (sys.executable, "-I", str(_DRIVER), json.dumps(order))


def _require_ray() -> None:
    try:
        metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "--launcher ray needs the package ray, which is not installed; install it "
            "(pip install 'autoconf-launch[ray]') in the version of the cluster."
        ) from None


class RayStarter(StartingProcess):
    """A driver of Ray, which says of each host what became of it."""

    def __init__(self, words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(words, folder, variables)
        self._created_s = time.monotonic()
        self._placed_s: float | None = None

    def lines(self, hosts: Sequence[str]) -> tuple[FolderLine, ...]:
        """The lines to the agents; when the last one is closed, so is this."""
        self._open_lines = len(hosts)
        return tuple(
            FolderLine(host or "chosen by Ray", self._folder, number, _RayHost(self, number))
            for number, host in enumerate(hosts)
        )

    @property
    def is_waiting(self) -> bool:
        """Whether Ray has no place for it yet."""
        if self._placed_s is None and (self._folder / "placed").exists():
            self._placed_s = time.monotonic()
        return self._placed_s is None and self._process.poll() is None

    def why_lost(self, number: int) -> Failure | None:
        """What Ray said of a host, or why nothing will be said any more."""
        try:
            said = json.loads((self._folder / f"{number}.lost").read_text())
        except (OSError, ValueError):
            return self.why_over()
        return Failure(kind=FailureKind(said["kind"]), detail=visible(said["detail"]))

    def patience_s(self) -> float:
        """As long as it waits, and a while after it has a place."""
        if self.is_waiting or self._placed_s is None:
            return math.inf
        return self._placed_s - self._created_s + _PATIENCE_S


class _RayHost:
    """The starter of one host."""

    def __init__(self, starter: RayStarter, number: int) -> None:
        self._starter, self._number = starter, number
        self.pid = starter.pid

    @property
    def is_queued(self) -> bool:
        return self._starter.is_waiting

    def why_queued(self) -> str:
        return "Ray has no room for the launch yet, see `ray status`"

    def why_over(self) -> Failure | None:
        return self._starter.why_lost(self._number)

    def patience_s(self) -> float:
        return self._starter.patience_s()

    def close(self) -> None:
        self._starter.close()
