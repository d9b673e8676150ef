"""Ranks that make shared memory as DeepSpeed does, and end in every way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import LocalJob
from autoconf_launch.launcher.engines.agents import shared_memory
from autoconf_launch.launcher.machine import free_port
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

from .conftest import Lab, eventually

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
