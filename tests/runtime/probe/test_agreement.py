"""The common end: announced by rank 0, taken by every rank, moved by the launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from autoconf_launch.core import END_FILE, Mode, RankTask
from autoconf_launch.runtime.probe_report.claim import Agreement
from autoconf_launch.runtime.rank import Ranks


@pytest.fixture
def task(tmp_path: Path) -> RankTask:
    return RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a1", end_step=5)


def agreement(task: RankTask, rank: int, ranks: int = 2, lead: int = 1) -> Agreement:
    place = Ranks(rank=rank, world_size=ranks, device=torch.device("cpu"))
    return Agreement(task, place, lead=lead)


def moving(task: RankTask, end: str = "") -> RankTask:
    if end:
        Path(task.folder, END_FILE).write_text(end)
    return RankTask(
        mode=task.mode, folder=task.folder, attempt=task.attempt, end_step=5, most_steps=20
    )


def last_step(each: Agreement, most: int = 60) -> int:
    return next(step for step in range(1, most) if each.is_last(step))


def test_one_rank_ends_where_it_was_told(task: RankTask) -> None:
    assert last_step(agreement(task, 0, ranks=1)) == 5


def test_the_others_end_after_the_step_that_rank_0_announced(task: RankTask) -> None:
    first, second = agreement(task, 0), agreement(task, 1)
    assert [(first.is_last(n), second.is_last(n)) for n in (1, 4, 5)] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def test_an_end_that_is_too_near_is_announced_for_a_coming_step(task: RankTask) -> None:
    near = RankTask(mode=task.mode, folder=task.folder, attempt="a1", start_step=1, end_step=1)
    assert last_step(agreement(near, 0, lead=2)) == 3


def test_a_rank_that_hears_nothing_ends_a_few_steps_later(task: RankTask) -> None:
    assert last_step(agreement(task, 1)) == 5 + 3


def test_a_profile_ends_after_the_step_that_is_looked_into(task: RankTask) -> None:
    profile = RankTask(mode=Mode.PROFILE, folder=task.folder, attempt="a1")
    assert last_step(agreement(profile, 0, ranks=1)) == 2


def test_the_launcher_can_move_the_end(task: RankTask) -> None:
    first = agreement(moving(task, "a1 12"), 0)
    assert last_step(first) == 12


def test_the_launcher_moves_it_for_every_rank(task: RankTask) -> None:
    first, second = agreement(moving(task, "a1 12"), 0), agreement(moving(task), 1)
    ends = [(first.is_last(step), second.is_last(step)) for step in range(1, 13)]
    assert ends == [(False, False)] * 11 + [(True, True)]


def test_the_end_never_goes_beyond_the_most_steps(task: RankTask) -> None:
    assert last_step(agreement(moving(task, "a1 99"), 0)) == 20


@pytest.mark.parametrize("word", ["a0 12", "12", "a1 soon", ""])
def test_a_word_that_is_not_for_this_attempt_moves_nothing(task: RankTask, word: str) -> None:
    assert last_step(agreement(moving(task, word), 0)) == 5


def test_a_restart_forgets_what_was_announced(task: RankTask) -> None:
    first = agreement(task, 0)
    first.is_last(4)
    first.restart()
    assert last_step(first) == 5


def test_ranks_wait_until_the_others_of_the_host_have_ended(
    task: RankTask, monkeypatch: Any
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    first = agreement(task, 0)
    first.on_end()
    first.wait_for_peers()  # returns at once: the other rank is elsewhere
