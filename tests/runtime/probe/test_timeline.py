"""Step records from marks in time, and the lines that follow a running trial."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import STEPS_FILE, Mode, RankTask, StepRecord, encode
from autoconf_launch.runtime.observe import Made, Timeline, first_not_finite
from autoconf_launch.runtime.observe.timeline import line_of

MADE = Made(micro_batch=4, accumulation=2)


class FakeClock:
    """Counts its marks as seconds."""

    lags = True

    def __init__(self) -> None:
        self.now = 0.0
        self.marks: list[float] = []
        self.waits: list[tuple[float, float]] = []
        """Each awaited mark, with the last one taken before it."""

    def mark(self) -> float:
        self.marks.append(self.now)
        return self.now

    def has_passed(self, mark: float) -> bool:
        return True

    def between_s(self, start: float, end: float) -> float:
        return end - start

    def wait(self, mark: float) -> None:
        self.waits.append((mark, self.marks[-1]))

    def settle(self) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timeline(tmp_path: Path, clock: FakeClock) -> Timeline:
    task = RankTask(mode=Mode.MEASURE, folder=str(tmp_path), attempt="a1")
    timeline = Timeline(task, 0, clock, began_s=0.0)
    timeline.end(MADE, None)  # the first step is timed by the host
    return timeline


def ends(timeline: Timeline, clock: FakeClock, after_s: float) -> None:
    clock.now += after_s
    timeline.end(MADE, torch.tensor(1.5))


def test_a_step_lasts_from_the_end_of_the_one_before(timeline: Timeline, clock: FakeClock) -> None:
    ends(timeline, clock, 2.0)
    timeline.settle()
    assert (timeline.records[1].wall_s, timeline.records[1].samples) == (2.0, 8)


def test_the_end_of_a_step_is_marked_before_the_step_before_it_is_waited_for(
    timeline: Timeline, clock: FakeClock
) -> None:
    ends(timeline, clock, 2.0)
    ends(timeline, clock, 2.0)
    assert clock.waits[1:] == [(0.0, 2.0), (2.0, 4.0)]


def test_an_evaluation_before_a_step_is_left_out(timeline: Timeline, clock: FakeClock) -> None:
    clock.now += 10.0
    timeline.on_pause()
    ends(timeline, clock, 2.0)
    timeline.settle()
    assert timeline.records[1].wall_s == 2.0


def test_what_looks_like_an_evaluation_in_every_step_belongs_to_it(
    timeline: Timeline, clock: FakeClock
) -> None:
    for _ in range(3):
        clock.now += 10.0
        timeline.on_pause()
        ends(timeline, clock, 2.0)
    timeline.settle()
    assert [record.wall_s for record in timeline.records[1:]] == [2.0, 12.0, 12.0]


def test_a_restart_numbers_from_one(timeline: Timeline, clock: FakeClock) -> None:
    timeline.restart()
    ends(timeline, clock, 2.0)
    timeline.settle()
    assert [(record.step, record.wall_s) for record in timeline.records] == [(1, 2.0)]


def test_all_steps_are_appended_to_the_trials_file(
    timeline: Timeline, clock: FakeClock, tmp_path: Path
) -> None:
    ends(timeline, clock, 2.0)
    timeline.settle()
    lines = (tmp_path / STEPS_FILE).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


@given(
    st.floats(allow_nan=False, min_value=0),
    st.integers(0, 1 << 40),
    st.none() | st.floats(allow_nan=True),
)
def test_lines_are_what_the_codec_writes(wall_s: float, samples: int, loss: float | None) -> None:
    record = StepRecord(rank=1, step=2, wall_s=wall_s, samples=samples, loss=loss)
    if math.isfinite(wall_s):
        assert json.loads(line_of(record)) == encode(record)


def test_the_first_loss_that_is_not_finite_is_found() -> None:
    losses = [None, 1.0, math.inf, math.nan]
    records = [
        StepRecord(rank=0, step=step, wall_s=1.0, samples=1, loss=loss)
        for step, loss in enumerate(losses)
    ]
    found = first_not_finite(records)
    assert found
    assert found.step == 2


@pytest.mark.parametrize("how", [("early", "backward"), ("late", "frozen")], ids="-".join)
def test_a_script_that_replaces_the_clocks_is_timed_all_the_same(
    probed: Any, how: tuple[str]
) -> None:
    result = probed("clocks.py", *how).result()
    assert [0.02 <= record.wall_s < 2.0 for record in result.steps[1:]] == [True] * 4
    assert result.ended_unix_s > 1e9
