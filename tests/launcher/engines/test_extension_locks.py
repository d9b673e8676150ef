"""Locks of killed builds of torch extensions; with a real build: end_to_end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.launcher.launch import agent

from .conftest import Lab

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
