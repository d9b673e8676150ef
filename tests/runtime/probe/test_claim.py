"""A single process speaks for a rank; a claim passes on when its holder has ended."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from autoconf_launch.core import Mode, RankTask
from autoconf_launch.runtime.probe_report.claim import Claim


@pytest.fixture
def task(tmp_path: Path) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a1")


@pytest.fixture
def below(task: RankTask) -> Iterator[Callable[[], object]]:
    """A process of ours that has claimed rank 0 and lives; ends it."""
    claimed = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(claimed[1], b"1" if Claim(task, 0).take() else b"0")
        signal.pause()
    assert os.read(claimed[0], 1) == b"1"

    @cache
    def end() -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    yield end
    end()


def test_the_first_gets_each_rank(task: RankTask) -> None:
    assert [Claim(task, rank).take() for rank in range(2)] == [True, True]


def test_nobody_gets_it_while_the_holder_lives(task: RankTask) -> None:
    Claim(task, 0).take()
    pid = os.fork()
    if pid == 0:
        os._exit(int(Claim(task, 0).take()))
    assert os.waitpid(pid, 0)[1] == 0


def test_a_dead_holders_claim_is_passed_on(task: RankTask, below: Callable[[], object]) -> None:
    below()
    assert not Claim(task, 0).take_first()
    claim = Claim(task, 0)
    assert (claim.take(), claim.is_crowded) == (True, True)


def test_a_process_below_gives_way(task: RankTask, below: Callable[[], object]) -> None:
    assert Claim(task, 0).take()


def test_who_was_taken_over_knows_it(task: RankTask) -> None:
    claimed, taken_over = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        claim = Claim(task, 0)
        claim.take()
        os.write(claimed[1], b".")
        os.read(taken_over[0], 1)
        os._exit(int(claim.holds()))
    os.read(claimed[0], 1)
    Claim(task, 0).take()
    os.write(taken_over[1], b".")
    assert os.waitpid(pid, 0)[1] == 0


def test_a_claim_of_an_earlier_attempt_counts_for_nothing(task: RankTask, tmp_path: Path) -> None:
    Claim(task, 0).take()
    later = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a2")
    assert Claim(later, 0).take_first()


def test_a_rank_is_crowded_where_another_process_makes_steps_beside(task: RankTask) -> None:
    claim = Claim(task, 0)
    claim.take()
    assert not claim.is_crowded
    pid = os.fork()
    if pid == 0:
        os._exit(int(Claim(task, 0).take()))
    os.waitpid(pid, 0)
    assert claim.is_crowded
