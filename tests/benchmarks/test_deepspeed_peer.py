"""The parts of the benchmark that need neither tuner: its space, its arithmetic, its children."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import BENCHMARKS, import_benchmark

blocks = import_benchmark("deepspeed_peer.blocks")
children = import_benchmark("deepspeed_peer.children")
choice = import_benchmark("deepspeed_peer.choice")
measure = import_benchmark("deepspeed_peer.measure")
report = import_benchmark("deepspeed_peer.report")
tools = import_benchmark("deepspeed_peer.tools")
SPACE = choice.whole_space()
speeds_st = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=6)


def test_the_space_is_every_stage_with_every_split_and_no_other_choice() -> None:
    assert len(set(SPACE)) == 24
    assert {one.global_batch for one in SPACE} == {64}
    assert max(one.micro_batch for one in SPACE) == 32
    document = SPACE[-1].document()
    document["zero_optimization"]["overlap_comm"] = True
    with pytest.raises(ValueError, match="overlap_comm"):
        choice.read_choice(document)
    theirs = tools._for_deepspeed(SPACE[0])
    assert theirs["optimizer"]["params"].pop("torch_adam") is True
    assert theirs == SPACE[0].document()


@pytest.mark.parametrize("one", SPACE, ids=lambda one: one.name)
def test_a_choice_is_read_back_from_its_configuration(one: Any) -> None:
    assert choice.read_choice(one.document()) == one


@given(arms=st.lists(st.integers(), min_size=1, unique=True))
def test_each_arm_is_first_in_one_block_and_once_in_each(arms: list[int]) -> None:
    order = [blocks.in_turn(arms, block) for block in range(len(arms))]
    assert sorted(block[0] for block in order) == sorted(arms)
    assert all(sorted(block) == sorted(arms) for block in order)


@given(speeds=speeds_st, drift=st.floats(0.1, 10.0))
def test_a_drift_that_both_arms_share_does_not_change_their_ratio(
    speeds: list[float], drift: float
) -> None:
    drifting = [speed * drift**number for number, speed in enumerate(speeds)]
    found = blocks.ratio([2.0 * speed for speed in drifting], drifting)
    assert (found.low, found.median, found.high) == pytest.approx((2.0, 2.0, 2.0))


def findings(with_deepspeed: bool) -> Any:
    fast, slow = SPACE[4], SPACE[5]
    ours, theirs = tools.Ours(), tools.DeepSpeed(Path("python"), without_pdsh=Path("none"))

    def tuning(tool: Any, chosen: Any, wall_s: float) -> Any:
        return report.Tuning(tool=tool, tuned=tools.Tuned(wall_s=wall_s, trials=3, choice=chosen))

    arms = [measure.Arm(tool, chosen) for tool in (ours, theirs) for chosen in (slow, fast)]
    return report.Findings(
        ours=tuning(ours, slow, 10.0),
        deepspeed=tuning(theirs, fast, 40.0) if with_deepspeed else None,
        explored=measure.Explored(
            reference=slow, relative={slow: 1.0, fast: 1.1}, blocks=(3,), wall_s=1.0
        ),
        speeds={arm: [100.0 + 10 * number] * 3 for number, arm in enumerate(arms)},
    )


@pytest.mark.parametrize("name", ["ours", "deepspeed"])
def test_the_document_tells_of_each_tuner(name: str) -> None:
    row = report.document(findings(with_deepspeed=True))[name]
    assert row.keys() >= {"wall_s", "trials", "choice", "samples_per_s"}


def test_without_deepspeed_its_part_is_null_and_the_best_is_the_fastest_finalist() -> None:
    assert report.document(findings(with_deepspeed=False))["deepspeed"] is None
    best = report.document(findings(with_deepspeed=True))["best"]
    assert best == {"choice": SPACE[4].name, "samples_per_s": 110.0}


@pytest.mark.parametrize("with_deepspeed", [True, False])
def test_people_read_the_choices_and_what_was_to_be_reached(with_deepspeed: bool) -> None:
    text = report.as_text(report.document(findings(with_deepspeed)))
    assert SPACE[5].name in text
    assert "to reach: 0.98" in text


def child(tmp_path: Path, script: str, *, deadline_s: float) -> Any:
    return children.Child(
        argv=("sh", "-c", script), folder=tmp_path, environment={}, deadline_s=deadline_s
    )


def test_children_end_with_all_their_processes(tmp_path: Path) -> None:
    script = "setsid sleep 317 & echo $! > pid; sleep 317"
    with pytest.raises(children.ChildError, match="took over"):
        children.run(child(tmp_path, script, deadline_s=0.5))
    assert ended_soon(int((tmp_path / "pid").read_text()))
    children.run(child(tmp_path, "setsid sleep 317 & echo $! > pid", deadline_s=20.0))
    assert ended_soon(int((tmp_path / "pid").read_text()))
    with pytest.raises(children.ChildError, match="exit code 3:\nwhat went wrong"):
        children.run(child(tmp_path, "echo what went wrong >&2; exit 3", deadline_s=20.0))


def ended_soon(pid: int) -> bool:
    limit_s = time.monotonic() + 10.0
    while time.monotonic() < limit_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


class Fake:
    """A tool whose ranks report as many steps as a turn has, of 0.5 s each."""

    name = "fake"

    def __init__(self, script: str) -> None:
        self.script = script

    def training(self, chosen: Any, folder: Path) -> Any:
        folder.mkdir()
        return child(folder, self.script, deadline_s=20.0)


OBEDIENT = """
for rank in 0 1; do
  while read steps; do
    echo "[$(yes 0.5 | head -n $steps | paste -sd,)]" > rank$rank.done
  done < rank$rank.go &
done
wait
"""


def test_arms_take_their_turns_in_blocks_over_the_whole_space(
    tmp_path: Path, workload: Any
) -> None:
    arms = [measure.Arm(Fake(OBEDIENT), one) for one in SPACE[:2]]
    runner = measure.Runner(folder=tmp_path, steps=3, say=lambda _: None)
    speeds = runner.interleave(arms, lambda block: block < 2)
    assert list(speeds.values()) == [[128.0, 128.0]] * 2
    clock = workload.Clock(None, rank=0)
    assert all(clock.tick() for _ in range(3))
    ranks = [[9.0, 1.0, 2.0], [9.0, 3.0, 1.0]]
    assert blocks.samples_per_s(ranks, samples_per_step=10, warmup=1) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="no step is left"):
        blocks.samples_per_s([[1.0]], samples_per_step=1, warmup=1)


def test_the_whole_space_is_explored_beside_the_reference(tmp_path: Path) -> None:
    reference = measure.Arm(Fake(OBEDIENT), SPACE[3])
    runner = measure.Runner(folder=tmp_path, steps=1, say=lambda _: None)
    explored = measure.explore(reference, runner, 0.0)
    assert explored.relative == dict.fromkeys(SPACE, 1.0)


def test_a_training_that_ends_in_its_turn_is_an_error(tmp_path: Path) -> None:
    arm = measure.Arm(Fake("echo gone; exit 0"), SPACE[0])
    runner = measure.Runner(folder=tmp_path, steps=1, say=lambda _: None)
    with pytest.raises(children.ChildError, match="ended in its turn:\ngone"):
        runner.interleave([arm], lambda block: block < 1)


@pytest.fixture(scope="module")
def workload() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS / "deepspeed_peer"))
    try:
        return import_module("workload")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize(("size", "per_step"), [(4, 1), (2, 2), (1, 4)])
def test_every_split_sees_the_same_samples_in_a_step(
    workload: Any, size: int, per_step: int
) -> None:
    def samples(size: int, per_step: int) -> list[int]:
        ranks = [workload.Batches(size, per_step, steps=1, place=(rank, 2)) for rank in range(2)]
        return [sample for rank in ranks for batch in rank for sample in batch]

    assert samples(size, per_step) == samples(4, 1)
