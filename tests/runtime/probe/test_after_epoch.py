"""Ranks go on after a soak's steps: rank 0 decides, and any rank can be in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from autoconf_launch.core import Mode, RankTask
from autoconf_launch.runtime.probe_report import claim
from autoconf_launch.runtime.probe_report.claim import Agreement
from autoconf_launch.runtime.rank import Ranks

STEPS = 6


@pytest.fixture
def task(tmp_path: Path) -> RankTask:
    return RankTask(
        mode=Mode.MEASURE,
        folder=str(tmp_path),
        attempt="a1",
        end_step=STEPS,
        soak=True,
        ends_epoch=True,
    )


def ranks_of(task: RankTask, ranks: int = 2, endless: int | None = None) -> list[Agreement]:
    """All of them after their steps; the data of ``endless`` cannot be ended."""
    cpu = torch.device("cpu")
    places = [Ranks(rank=rank, world_size=ranks, device=cpu) for rank in range(ranks)]
    made = [Agreement(task, place, lead=1) for place in places]
    for number in range(1, STEPS + 1):
        for rank, each in enumerate(made):
            each.on_step(number, can_end=rank != endless)
    return made


@pytest.mark.parametrize("wanted", [True, False])
def test_every_rank_does_what_rank_0_wants(task: RankTask, wanted: bool) -> None:
    first, second = ranks_of(task)
    assert [first.agree_to_go_on(wanted), second.agree_to_go_on(not wanted)] == [wanted, wanted]


@pytest.mark.parametrize("endless", [0, 1])
def test_none_goes_on_where_the_data_of_one_cannot_be_ended(task: RankTask, endless: int) -> None:
    first, second = ranks_of(task, endless=endless)
    assert [first.agree_to_go_on(True), second.agree_to_go_on(True)] == [False, False]


def test_one_rank_asks_nobody(task: RankTask) -> None:
    (alone,) = ranks_of(task, ranks=1)
    assert (alone.agree_to_go_on(True), alone.agree_to_go_on(False)) == (True, False)


def test_who_is_not_asked_to_go_on_does_not(task: RankTask) -> None:
    again = replace(task, ends_epoch=False)
    assert [each.agree_to_go_on(True) for each in ranks_of(again)] == [False, False]


def test_a_soak_of_two_steps_does_not_go_on(task: RankTask) -> None:
    short = replace(task, end_step=2)
    (one,) = ranks_of(short, ranks=1)
    assert not one.agree_to_go_on(True)


def test_the_word_of_another_attempt_does_not_count(
    task: RankTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_WAIT_S", 0.05)
    ranks_of(replace(task, attempt="a0"))[0].agree_to_go_on(True)
    assert not ranks_of(task)[1].agree_to_go_on(False)
