from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import JOB_VARIABLE, Failure, FailureKind
from autoconf_launch.launcher.engines import LocalJob
from autoconf_launch.launcher.engines.agents import shared_memory
from autoconf_launch.launcher.engines.local import await_agent, kill_strays
from autoconf_launch.launcher.launch import agent
from autoconf_launch.launcher.machine import free_port
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

from .conftest import Lab, eventually

NO_SESSION = -1


def marked_sleeper(token: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        (sys.executable, "-c", "print(flush=True); import time; time.sleep(100)"),
        env={**os.environ, JOB_VARIABLE: token},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as output:
        output.readline()
    return child


def test_a_process_with_the_token_is_killed() -> None:
    token = uuid.uuid4().hex
    child = marked_sleeper(token)
    assert kill_strays(token, NO_SESSION)
    assert child.wait(5) == -9


def test_a_process_of_the_session_is_killed() -> None:
    child = marked_sleeper("")
    assert kill_strays(uuid.uuid4().hex, child.pid)
    assert child.wait(5) == -9


def test_a_token_that_only_begins_alike_is_spared() -> None:
    token = uuid.uuid4().hex
    child = marked_sleeper(token)
    found = kill_strays(token[:-1], NO_SESSION)
    child.kill()
    child.wait()
    assert not found


def test_an_orphaned_agent_is_waited_for(lab: Lab) -> None:
    job = lab.start_and_await("ready(); time.sleep(0.3)")
    assert isinstance(job, LocalJob)
    start_s = time.monotonic()
    assert await_agent(job.pid, 10)
    assert 0.1 < time.monotonic() - start_s < 5
    lab.end_of(job)


def test_a_wait_for_an_agent_has_an_end(lab: Lab) -> None:
    job = lab.start_and_await("ready(); time.sleep(0.5)")
    assert isinstance(job, LocalJob)
    assert not await_agent(job.pid, 0.05)
    lab.end_of(job)


def test_a_number_that_another_program_has_taken_is_not_waited_for() -> None:
    assert await_agent(os.getpid(), 10)


def test_a_number_that_nobody_has_is_not_waited_for() -> None:
    child = subprocess.Popen(("true",))
    child.wait()
    assert await_agent(child.pid, 10)


MAKE = """
name = "_".join((
    "deepspeed_allreduce_buffer", str(os.getuid()), os.environ["MASTER_ADDR"],
    os.environ["MASTER_PORT"], os.environ["RANK"],
))
open("/dev/shm/" + name, "w").close()
"""
CANCELLED = Failure(kind=FailureKind.TIMED_OUT, detail="took too long")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def neighbour(port: int) -> Iterator[Path]:
    """Shared memory of another launch whose port begins alike."""
    path = Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_127.0.0.1_{port}0_0")
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def plan_of(lab: Lab, script: str, port: int, ranks: int = 2) -> LaunchPlan:
    plan = lab.plan(MAKE + script, ranks=ranks)
    meeting = (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(port)))
    return replace(
        plan,
        ranks=tuple(
            replace(rank, environment=(*rank.environment, *meeting)) for rank in plan.ranks
        ),
    )


def left(port: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"*_{port}_*"))


def await_all_made(lab: Lab, plan: LaunchPlan) -> LocalJob:
    job = lab.backend.submit(plan)
    for rank in plan.ranks:
        eventually((lab.folder / f"ready{rank.rank}").exists)
    return job


def test_nothing_is_left_of_ranks_that_end_by_themselves(lab: Lab, port: int) -> None:
    lab.end_of(lab.backend.submit(plan_of(lab, "report()", port)))
    assert left(port) == []


def test_nothing_is_left_of_a_launch_that_is_cancelled(lab: Lab, port: int) -> None:
    job = await_all_made(lab, plan_of(lab, "ready(); time.sleep(100)", port))
    assert len(left(port)) == 2
    lab.backend.cancel(job, CANCELLED)
    lab.end_of(job)
    assert left(port) == []


def test_nothing_is_left_when_the_agent_is_killed(lab: Lab, port: int) -> None:
    job = await_all_made(lab, plan_of(lab, "ready(); time.sleep(100)", port))
    os.kill(job.pid, signal.SIGKILL)
    lab.end_of(job)
    assert left(port) == []


def test_what_another_launch_has_made_stays(lab: Lab, port: int, neighbour: Path) -> None:
    lab.end_of(lab.backend.submit(plan_of(lab, "report()", port)))
    assert neighbour.exists()


def test_a_launch_without_a_rendezvous_has_none() -> None:
    rank = RankPlan(rank=0, local_rank=0, argv=("true",), environment=(("RANK", "0"),))
    assert shared_memory(rank) is None


HELD_BY_A_PROCESS = """
import os, sys
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "py313_cpu" / "fused_adam"
    folder.mkdir(parents=True)
    return folder / "lock"


def remove(lock: Path) -> list[str]:
    return agent.remove_dead_locks([str(lock.parents[2])], set())


@pytest.mark.parametrize("depth", [1, 2])
def test_a_lock_that_nobody_holds_is_removed(lock: Path, depth: int) -> None:
    lock.touch()
    assert agent.remove_dead_locks([str(lock.parents[depth])], set()) == [str(lock)]
    assert not lock.exists()


def test_a_lock_that_a_living_process_holds_is_kept(lock: Path) -> None:
    holder = subprocess.Popen(
        (sys.executable, "-c", HELD_BY_A_PROCESS, str(lock)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert (remove(lock), lock.exists()) == ([], True)
    holder.communicate()
    assert remove(lock) == [str(lock)]


def test_a_lock_that_changes_hands_between_two_looks_is_kept(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock.touch()

    held = list[int]()

    def another_takes_it(seconds: float) -> None:
        lock.unlink()
        held.append(os.open(lock, os.O_CREAT | os.O_EXCL))

    monkeypatch.setattr(time, "sleep", another_takes_it)
    assert (remove(lock), lock.exists()) == ([], True)
    os.close(held.pop())


@pytest.mark.parametrize("make", [lambda p: p.write_text("pid 7"), Path.mkdir, os.mkfifo])
def test_what_is_no_lock_of_torch_is_kept(lock: Path, make: Callable[[Path], object]) -> None:
    make(lock)
    assert (remove(lock), lock.exists()) == ([], True)


def test_on_a_disk_of_other_machines_only_locks_of_the_killed_are_removed(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LOCAL_DISKS", frozenset())
    with closing(os.fdopen(os.open(lock, os.O_CREAT | os.O_EXCL))):
        held = agent.held_locks([os.getpid()])
    held = {found for found in held if found[0] == str(lock)}
    assert remove(lock) == []
    assert agent.remove_dead_locks([], held) == [str(lock)]


def test_a_rank_that_is_killed_in_a_build_leaves_no_lock_and_it_is_said(
    lab: Lab, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(lab.backend, "_notify", lambda note: told.append(note.text))
    plan = lab.plan(f"os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL); os.kill(os.getpid(), 9)")
    cache = ("TORCH_EXTENSIONS_DIR", str(lock.parents[1]))
    rank = replace(plan.ranks[0], environment=(*plan.ranks[0].environment, cache))
    lab.end_of(lab.backend.submit(replace(plan, ranks=(rank,))))
    assert not lock.exists()
    assert told == [
        f"Removed {lock}: the build of this torch extension was killed, and every later build "
        "would wait forever."
    ]
