"""Engine ``bcprun``: the replicas of a job of NVIDIA's Base Command Platform."""

from __future__ import annotations

from pathlib import Path

from ..asked import HostSource
from ..request import LaunchRequest
from .base import HostSlots
from .over_hosts import GroupEngine, in_shell, unnamed_hosts


class BcprunEngine(GroupEngine):
    """A command on each replica, whose shell reads it."""

    host_source = HostSource.LAUNCH
    program = "bcprun"

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...]:
        return self.slots_of(unnamed_hosts(request), request)

    def reach_all(
        self, hosts: tuple[str, ...], command: tuple[str, ...], exported: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        there = f"{in_shell(self._access, str(Path.cwd()), command)} NGC_ARRAY_INDEX"
        size = ("--nnodes", str(len(hosts)), "--npernode", "1")
        return ("bcprun", *size, *self._access.arguments, "--cmd", there), {}
