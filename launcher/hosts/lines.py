"""The lines to all hosts of a launch, by whatever engine reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from ..request import BATCH, KUBERNETES, RAY, RemoteAccess
from .folder_line import FolderLine, make_line_folder, open_all
from .kubernetes_jobs import open_pods
from .line import HostLine, open_line
from .ray_agents import open_ray
from .reach import GROUP_ENGINES
from .slurm_jobs import SlurmQueue, SlurmStarter

AgentLine: TypeAlias = HostLine | FolderLine

UNSAID_WAIT_S = 10.0
"""Seconds for which hosts are awaited without a word: any queue takes a few."""


class Queued(Protocol):
    """What may wait for a host in a queue."""

    @property
    def is_queued(self) -> bool:
        """Whether it waits."""

    def why_queued(self) -> str:
        """Why it waits, as a phrase; empty where nobody knows."""


def wait_text(queued: Iterable[Queued]) -> str:
    """A sentence on why a launch has no hosts yet."""
    why = next((each.why_queued() for each in queued if each.is_queued), "") or "they are busy"
    return f"Waiting for hosts: {why}."


def open_lines(
    hosts: Sequence[str],
    access: RemoteAccess,
    *,
    folder: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> tuple[AgentLine, ...]:
    """Start an agent on every host.

    An engine without pipes has its files in ``folder``, or the working directory; ``secrets`` are
    variables that it passes on outside of files, if it can.

    Raises:
        ConfigError: a host cannot be reached with this engine.
    """
    if access.engine == BATCH:
        own = make_line_folder(folder or str(Path.cwd()))
        starter = SlurmStarter(own, len(hosts), SlurmQueue())
        starter.submit(access, secrets=secrets or {})
        return starter.lines(hosts)
    if access.engine == KUBERNETES:
        return open_pods(hosts, access, folder=folder, secrets=secrets)
    if access.engine == RAY:
        return open_ray(hosts, access, folder=folder, secrets=secrets)
    if access.engine in GROUP_ENGINES:
        return open_all(hosts, access, folder=folder, secrets=secrets)
    return tuple(open_line(host, access) for host in hosts)
