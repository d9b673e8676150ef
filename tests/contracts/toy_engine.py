"""An engine of another package in one file: a cluster of one host, whose ranks are our children.

The contract suite has it in one line; ``end_to_end/test_toy_engine.py`` installs it by an entry
point and tunes on it.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.core import Failure
from autoconf_launch.launcher.asked import HostSource
from autoconf_launch.launcher.engines import HostDescription, HostSlots, Job, JobEnd, LaunchEngine
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.launch import (
    STDERR_LOG,
    STDOUT_LOG,
    Cancelled,
    RankExit,
    RanksEnd,
    read_outcome,
)
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import LaunchRequest, RemoteAccess


class ToyJob:
    """The ranks of one plan."""

    handle = ""
    is_queued = False

    def __init__(self, plan: LaunchPlan, ranks: Sequence[subprocess.Popen[bytes]]) -> None:
        self.plan, self.ranks = plan, tuple(ranks)
        self.exits: dict[int, RankExit] = {}
        self.cancelled: Cancelled | None = None
        self.end: JobEnd | None = None
        self.started_s = time.monotonic()

    def look(self) -> JobEnd | None:
        """The end once all ranks have ended; one that fails ends the others."""
        for number, rank in enumerate(self.ranks):
            if number not in self.exits and (code := rank.poll()) is not None:
                self.exits[number] = RankExit(code=code, unix_s=time.time())
        if any(one.code for one in self.exits.values()):
            self.kill()
        if self.end is None and len(self.exits) == len(self.ranks):
            exits = tuple(self.exits[number] for number in range(len(self.ranks)))
            told_s = self.cancelled.unix_s if self.cancelled else None
            ends = RanksEnd(exits=exits, terminated_unix_s=told_s, cancelled=self.cancelled)
            outcome = read_outcome(self.plan, ends) if self.plan.task else None
            wall_s = time.monotonic() - self.started_s
            self.end = JobEnd(exit_code=ends.exit_code, outcome=outcome, wall_s=wall_s)
        return self.end

    def kill(self) -> None:
        """End the ranks that live."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()


class ToyEngine(LaunchEngine):
    """Host ``toy`` with one slot."""

    host_source = HostSource.ENGINE
    takes_this_machine = True

    def __init__(
        self,
        access: RemoteAccess,
        *,
        listener: Listener | None = None,
        deadline_s: float = math.inf,
    ) -> None:
        if listener:
            listener(Note(text=f"The toy engine is at work ({access.engine})."))

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...]:
        return (HostSlots(host="toy", slots=(0,)),)

    def describe_hosts(self, hosts: tuple[str, ...]) -> tuple[HostDescription, ...]:
        return tuple(
            HostDescription(
                host=host,
                address="127.0.0.1",
                launcher_address=None,
                cores=2,
                memory_bytes=4 << 30,
                gpus=(),
            )
            for host in hosts
        )

    def submit(self, plan: LaunchPlan) -> ToyJob:
        port = _free_port()
        return ToyJob(plan, [_start(plan, rank, port) for rank in plan.ranks])

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        return tuple(_own(job).look() for job in jobs)

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s and not any(self.poll(jobs)):
            time.sleep(0.02)

    def cancel(self, job: Job, reason: Failure) -> None:
        own = _own(job)
        if own.look() is None:
            own.cancelled = own.cancelled or Cancelled(reason=reason, unix_s=time.time())
            own.kill()

    def send_signal(self, job: Job, number: int) -> None:
        for rank in _own(job).ranks:
            rank.send_signal(number)

    def end_orphan(self, handle: str, host: str) -> None:
        """Do nothing: ranks die of a closed pipe, as toys may."""


def _own(job: Job) -> ToyJob:
    if not isinstance(job, ToyJob):
        raise TypeError(f"job {job!r} was submitted to another engine.")
    return job


def _start(plan: LaunchPlan, rank: RankPlan, port: int) -> subprocess.Popen[bytes]:
    variables = {**os.environ, **dict(rank.environment)}
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(port))):
        if variables.get(name) == "":  # the engine chooses where ranks meet
            variables[name] = value
    out = err = None
    if plan.folder is not None:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        out, err = (folder / STDOUT_LOG).open("ab"), (folder / STDERR_LOG).open("ab")
    return subprocess.Popen(
        rank.argv,
        env=variables,
        cwd=plan.working_directory,
        stdin=subprocess.DEVNULL,
        stdout=out or sys.stdout.fileno(),
        stderr=err or sys.stderr.fileno(),
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
