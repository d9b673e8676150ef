"""Places in a turn group of launches: who computes when, and who leaves when."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import TASK_VARIABLE, Mode, RankTask, result_file
from autoconf_launch.runtime.rank import Turns

from .conftest import SCRIPTS
from .forked import ForkServer, Order, free_port


class TurnGroup:
    """A few launches' places in a turn group, without processes."""

    def __init__(self, folder: Path, launches: int) -> None:
        folders = [str(folder / str(number)) for number in range(launches)]
        self.turns = [
            Turns(
                RankTask(
                    mode=Mode.MEASURE,
                    folder=own,
                    attempt="now",
                    next_folder=folders[(number + 1) % launches],
                    first_turn=number == 0,
                ),
                0,
                settle=lambda: None,
                restart=lambda: None,
            )
            for number, own in enumerate(folders)
        ]
        self.order: list[int] = []
        self.left: list[int] = []

    def take_part(self, number: int, steps: int) -> None:
        for step in range(steps):
            self.turns[number].after_step(step)
            self.order.append(number)
        self.turns[number].end()
        self.left.append(len(self.order))


def play(group: TurnGroup, steps: tuple[int, ...] = (3, 3, 3)) -> None:
    threads = [
        Thread(target=group.take_part, args=place, daemon=True) for place in enumerate(steps)
    ]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(20)


def test_launches_in_a_group_take_steps_one_after_another(tmp_path: Path) -> None:
    group = TurnGroup(tmp_path, 3)
    play(group)
    assert group.order == [0, 1, 2] * 3


def test_none_begins_before_all_are_there(tmp_path: Path) -> None:
    group = TurnGroup(tmp_path, 2)
    first = Thread(target=group.take_part, args=(0, 1), daemon=True)
    first.start()
    first.join(0.2)
    assert group.order == []
    group.take_part(1, 1)
    first.join(20)
    assert group.order == [0, 1]


@given(steps=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_none_leaves_a_group_while_another_one_computes(steps: list[int]) -> None:
    with TemporaryDirectory() as folder:
        group = TurnGroup(Path(folder), len(steps))
        play(group, tuple(steps))
    assert group.left == [sum(steps)] * len(steps)


def test_who_makes_fewer_steps_holds_up_nobody(tmp_path: Path) -> None:
    group = TurnGroup(tmp_path, 3)
    play(group, (1, 3, 2))
    assert group.order == [0, 1, 2, 1, 2, 1]


def test_who_is_ended_while_it_waits_stays_no_longer(tmp_path: Path) -> None:
    group = TurnGroup(tmp_path, 2)
    one = group.turns[1]
    waiting = Thread(target=one.wait, daemon=True)
    waiting.start()
    one.end()
    assert waiting.is_alive()
    group.turns[0].pass_turn()
    waiting.join(20)


@pytest.fixture
def loader() -> Iterator[BaseProcess]:
    """A child as a loader's worker is one."""
    child = get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
    child.start()
    yield child
    child.kill()
    child.join()


def state(child: BaseProcess) -> str:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]


def comes_to(child: BaseProcess, wanted: str) -> bool:
    """Signals take a moment."""
    give_up_s = time.monotonic() + 10
    while (there := (state(child) in wanted)) is False and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return there


def test_who_loads_data_for_a_rank_stops_in_the_turns_of_others(
    tmp_path: Path, loader: BaseProcess
) -> None:
    first, second = TurnGroup(tmp_path, 2).turns
    waiting = Thread(target=first.wait, daemon=True)
    waiting.start()
    assert comes_to(loader, "T")
    second.pass_turn()
    waiting.join(20)
    assert comes_to(loader, "RS")


def test_a_script_that_ends_by_itself_holds_up_nobody(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    tasks = [
        RankTask(
            mode=Mode.MEASURE,
            folder=str(tmp_path / name),
            attempt="now",
            end_step=end_step,
            next_folder=str(tmp_path / after),
            first_turn=name == "a",
        )
        for name, after, end_step in (("a", "b", 3), ("b", "a", 5))
    ]
    for task in tasks:
        Path(task.folder).mkdir()
    left = fork_server.launch(
        Order(
            argv=[str(SCRIPTS / "scenario.py"), "ends_early"],  # after 4 steps
            folder=tmp_path,
            environments=[environment_of(task) for task in tasks],
            working_directory=Path.cwd(),
        )
    )
    assert left.exit_codes == (0, 0), left.errors
    results = [json.loads((tmp_path / name / result_file(0)).read_text()) for name in "ab"]
    assert [len(result["steps"]) for result in results] == [3, 4]


def environment_of(task: RankTask) -> dict[str, str]:
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    return {**place, "MASTER_PORT": str(free_port()), TASK_VARIABLE: task.to_variable()}
