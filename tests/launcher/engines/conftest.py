"""Launches of small real processes. The ranks are scripts that use only the standard library."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.core import TASK_VARIABLE, Mode, RankTask
from autoconf_launch.launcher.engines import Job, JobEnd, LocalEngine
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

PREAMBLE = """
import json, os, signal, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
task = json.loads(os.environ.get("AUTOCONF_LAUNCH_TASK", "{}"))

def report(kind=None, seconds=(9, 9, 1, 2, 3)):
    steps = [
        {"rank": rank, "step": n, "wall_s": s, "samples": 4} for n, s in enumerate(seconds, 1)
    ]
    result = {
        "rank": rank, "world_size": world, "attempt": task["attempt"],
        "ended_unix_s": time.time(), "steps": [] if kind else steps,
        "failure": kind and {"kind": kind, "detail": "it is so"},
    }
    name = "result.json" if rank == 0 else f"result_rank{rank}.json"
    with open(os.path.join(task["folder"], f".{name}.{os.getpid()}"), "w") as file:
        json.dump(result, file)
    os.replace(file.name, os.path.join(task["folder"], name))

def ready():
    open(f"ready{rank}", "w").close()
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); time.sleep(100)"
LEAVE_BEHIND = """
for apart in (False, True):
    if os.fork() == 0:
        if apart: os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"left{apart}", "w").close()
        time.sleep(100)
while not (os.path.exists("leftFalse") and os.path.exists("leftTrue")): time.sleep(0.01)
"""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A folder to launch in, and a mark that all processes of the launches carry."""

    folder: Path
    mark: str
    backend: LocalEngine

    def plan(self, script: str, *, ranks: int = 1, task: bool = True) -> LaunchPlan:
        """A plan whose ranks all run ``script`` after the preamble."""
        started = RankTask(mode=Mode.MEASURE, folder=str(self.folder), attempt="now")
        variables = {"WORLD_SIZE": str(ranks)}
        if task:
            variables[TASK_VARIABLE] = started.to_variable()
        return LaunchPlan(
            name="z0_gas1_tmbspg1",
            ranks=tuple(
                RankPlan(
                    rank=rank,
                    local_rank=rank,
                    argv=(sys.executable, "-I", "-S", "-c", PREAMBLE + script),
                    environment=(*variables.items(), ("RANK", str(rank))),
                )
                for rank in range(ranks)
            ),
            working_directory=str(self.folder),
            folder=str(self.folder),
            task=started if task else None,
        )

    def run(self, script: str, *, ranks: int = 1, task: bool = True) -> JobEnd:
        """Launch ``script`` and wait for its end."""
        return self.end_of(self.backend.submit(self.plan(script, ranks=ranks, task=task)))

    def end_of(self, job: Job, timeout_s: float = 10.0) -> JobEnd:
        """Wait for the end of a job."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            self.backend.wait([job], until_s - time.monotonic())
            end = self.backend.poll([job])[0]
            if end is not None:
                return end
        raise AssertionError(f"no end within {timeout_s} s")

    def start_and_await(self, script: str, *, ranks: int = 1, task: bool = True) -> Job:
        """Launch ``script`` and wait until each rank has called ``ready()``."""
        job = self.backend.submit(self.plan(script, ranks=ranks, task=task))
        for rank in range(ranks):
            eventually((self.folder / f"ready{rank}").exists)
        return job

    def living(self) -> list[int]:
        """Processes of any launch here that still live."""
        return living_with(self.mark)


def living_with(mark: str) -> list[int]:
    """Processes whose environment has this mark, zombies left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (path / "environ").read_bytes()
            zombie = (path / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            continue
        if marked and not zombie and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def eventually(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Fail unless the condition comes true in time."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, "it never came true"
        time.sleep(0.005)


def in_child(run: Callable[[], int]) -> int:
    """Do this in a child of this process, which ends with its code; the child's number."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = run()
        finally:
            os._exit(code)
    return child


def order_of(folder: Path, *ranks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A launcher's order to the agent of a host."""
    return {
        "working_directory": str(folder),
        "environment": {},
        "address": "",
        "orphans": [],
        "linger_s": 0,
        "grace_s": 1,
        "attempt": None,
        "extension_caches": [],
        "folder": None,
        "marker": "",
        "may_leave": True,
        "files": {},
        "ranks": [{"environment": {}, "result": None, "rank": 0, **rank} for rank in ranks],
        **more,
    }


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    mark = uuid.uuid4().hex
    backend = LocalEngine(environment={**os.environ, "LAB": mark}, linger_s=0.5, grace_s=0.3)
    made = Lab(folder=tmp_path, mark=mark, backend=backend)
    yield made
    eventually(lambda: not made.living())
