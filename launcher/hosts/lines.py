"""The lines to all hosts of a launch, by whatever engine reaches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..request import RemoteAccess
from .folder_line import FolderLine, open_all
from .line import HostLine, open_line
from .reach import GROUP_ENGINES

AgentLine: TypeAlias = HostLine | FolderLine


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
    if access.engine in GROUP_ENGINES:
        return open_all(hosts, access, folder=folder, secrets=secrets)
    return tuple(open_line(host, access) for host in hosts)
