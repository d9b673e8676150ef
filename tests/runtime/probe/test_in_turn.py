"""Foreign launches that live side by side and take their steps in turn."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

import pytest

from autoconf_launch.core import Mode, RankTask
from autoconf_launch.launcher.launch import probe_environment
from autoconf_launch.launcher.launch.planning import INJECTED

from ..forked import ForkServer, Order
from .conftest import SCRIPTS, Ended, places

END = 8


class TurnGroup:
    """Outcomes of the launches of a group."""

    def __init__(self, ended: tuple[Ended, ...], log: Path) -> None:
        self.ended = ended
        self._lines = [line.split() for line in log.read_text().splitlines()]

    @property
    def overlapping(self) -> int:
        """Steps that began while another launch was in one, the first ones not counted."""
        inside: set[str] = set()
        found = 0
        for place, what, *number in self._lines:
            if what == "begins" and number != ["1"]:
                found += bool(inside - {place})
                inside.add(place)
            elif what == "ends":
                inside.discard(place)
        return found

    def order(self, number: int) -> list[int]:
        """In which they made a step."""
        return [int(line[0]) for line in self._lines if line[1:] == ["begins", str(number)]]

    def places(self, first_step: int) -> list[int]:
        begun = (line for line in self._lines if line[1] == "begins")
        return [int(line[0]) for line in begun if int(line[2]) >= first_step]

    def steps(self, place: int, rank: int = 0) -> list[int]:
        return self.ended[place].steps(rank)

    def step_s(self, place: int) -> list[float]:
        records = self.ended[place].result().steps
        return [record.wall_s for record in records if record.step > 2]


RunGroup: TypeAlias = Callable[..., TurnGroup]


@pytest.fixture
def run_group(probe_fork_server: ForkServer, tmp_path: Path) -> RunGroup:
    """``run_group(*names, ranks=1)``: a launch of each, side by side."""

    def run(*names: str, ranks: int = 1, turn_steps: int = 1) -> TurnGroup:
        log = tmp_path / "log"
        log.touch()
        tasks = [
            replace(task_of(tmp_path, place, len(names)), turn_steps=turn_steps)
            for place in range(len(names))
        ]
        environments = [
            {**dict(probe_environment(task, Path(task.folder))), **rank, **of(place, log)}
            for place, task in enumerate(tasks)
            for rank in places(ranks)
        ]
        left = probe_fork_server.launch(
            Order(
                argv=[str(SCRIPTS / "turn_group.py"), *names],
                folder=tmp_path,
                environments=environments,
                working_directory=tmp_path,
                injected=str(INJECTED / "sitecustomize.py"),
            )
        )
        ended = [
            Ended(
                exit_codes=left.exit_codes[place * ranks :][:ranks],
                output="".join(left.outputs[place * ranks :][:ranks]),
                errors="".join(left.errors[place * ranks :][:ranks]),
                task=task,
            )
            for place, task in enumerate(tasks)
        ]
        return TurnGroup(tuple(ended), log)

    return run


def task_of(folder: Path, place: int, launches: int) -> RankTask:
    own, after = (folder / str(n) for n in (place, (place + 1) % launches))
    return RankTask(
        mode=Mode.MEASURE,
        folder=str(own),
        attempt="a1",
        end_step=END,
        next_folder=str(after),
        first_turn=place == 0,
    )


def of(place: int, log: Path) -> dict[str, str]:
    return {"PLACE": str(place), "LOG": str(log)}


ALL = list(range(1, END + 1))


def test_one_computes_at_a_time_after_the_first_step(run_group: RunGroup) -> None:
    group = run_group("plain", "plain", "plain")
    assert group.overlapping == 0
    assert [group.order(number) for number in range(2, END + 1)] == [[0, 1, 2]] * (END - 1)


def test_a_turn_of_several_steps_is_passed_after_them(run_group: RunGroup) -> None:
    group = run_group("plain", "plain", turn_steps=3)
    assert group.places(first_step=3) == [0, 0, 0, 1, 1, 1] * 2


def test_all_make_the_steps_asked_for(run_group: RunGroup) -> None:
    group = run_group("plain", "plain")
    assert [group.steps(place) for place in range(2)] == [ALL, ALL]
    assert [ended.result().end_step for ended in group.ended] == [END, END]


def test_the_time_of_a_step_is_its_own_alone(run_group: RunGroup) -> None:
    group = run_group("plain", "long_steps")
    assert min(group.step_s(0)) < 0.15 <= min(group.step_s(1))


def test_ranks_of_a_launch_compute_together(run_group: RunGroup) -> None:
    group = run_group("two_ranks", "two_ranks", ranks=2)
    assert group.overlapping == 0
    assert [group.steps(place, rank) for place in range(2) for rank in range(2)] == [ALL] * 4


@pytest.mark.parametrize("how", ["short", "exits", "leaves_suddenly"])
def test_who_ends_early_by_itself_holds_up_nobody(run_group: RunGroup, how: str) -> None:
    group = run_group("plain", how, "plain")
    assert group.overlapping == 0
    assert [group.steps(place) for place in range(3)] == [ALL, ALL[:4], ALL]
    assert group.ended[1].result().ended_early


@pytest.mark.parametrize("how", ["catches", "slow_start"])
def test_odd_ones_take_their_turns_all_the_same(run_group: RunGroup, how: str) -> None:
    group = run_group(how, "plain")
    assert group.overlapping == 0
    assert [group.steps(place) for place in range(2)] == [ALL, ALL]


def test_steps_that_were_not_the_trainings_hold_up_nobody(run_group: RunGroup) -> None:
    group = run_group("plain", "gan", "gan")
    assert group.overlapping == 0
    assert [group.steps(place) for place in range(3)] == [ALL, ALL, ALL]


def test_a_worker_loads_nothing_in_the_turns_of_others(run_group: RunGroup) -> None:
    group = run_group("data_bound", "long_steps")
    assert median(group.step_s(0)) > 0.015  # the first batches are drawn ahead of the first turn
