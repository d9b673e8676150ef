from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX
from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.search.repeats import at_level
from autoconf_launch.autotuner.space import (
    FailedTrial,
    Measurement,
    Outcome,
    Record,
)
from autoconf_launch.core import Failure, FailureKind

from ..builders import launch, measurement, trial_of

CRASH = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))
SECONDS = st.floats(0.01, 100.0)
LOADED = 2.0
"""Factor by which everything takes longer when the machine has other work."""


def steps_of(step_s: float) -> Measurement:
    return measurement(step_s, step_s, samples=8)


def trial(number: int, step_s: float) -> Record:
    what = trial_of(number, {"micro_batch": number + 1})
    return launch(what, steps_of(step_s), 1.0, band=0.2)


def trials(*seconds: float) -> tuple[Record, ...]:
    return tuple(trial(number, step_s) for number, step_s in enumerate(seconds))


def again(record: Record, after: int, outcome: Outcome, *, doubted: bool = False) -> Record:
    name = f"{record.trial.name}{AGAIN_SUFFIX}"
    what = replace(record.trial, name=name, again=after, doubted=doubted)
    return Record(trial=what, outcome=outcome, wall_s=1.0)


def seconds(records: tuple[Record, ...]) -> list[float]:
    return [record.measurement.mean_step_s for record in records if record.measurement]


@given(st.lists(SECONDS, min_size=2, max_size=8), st.floats(0.95, 1.05), st.data())
def test_repeats_that_agree_correct_nothing(
    times: list[float], factor: float, data: st.DataObject
) -> None:
    records = trials(*times)
    place = data.draw(st.integers(0, len(records) - 1))
    repeat = again(records[place], len(records), steps_of(factor * times[place]))
    assert drift(records, [repeat]).records == drift(records, []).records == records


@pytest.mark.parametrize(
    ("times", "repeats", "now"),
    [
        pytest.param((1.0, 1.0, LOADED), [(0, LOADED)], LOADED, id="a load at the end"),
        pytest.param((1.0, LOADED, 1.0), [(0, LOADED), (0, 1.0)], 1.0, id="a load that is over"),
        pytest.param((1.0, 1.0, 1.0), [(1, LOADED)], 1.0, id="of the baseline only"),
    ],
)
def test_the_last_repeat_of_the_baseline_shows_the_level_and_corrects_no_trial(
    times: tuple[float, ...], repeats: list[tuple[int, float]], now: float
) -> None:
    records = trials(*times)
    found = drift(records, [again(records[n], 3, steps_of(s)) for n, s in repeats])
    assert found.records == records
    assert math.exp(found.now) == pytest.approx(now, rel=0.1)


@pytest.mark.parametrize(
    ("trial_s", "repeat_s", "counts_s"),
    [
        pytest.param(LOADED, 1.0, 1.0, id="too slow"),
        pytest.param(0.5, 1.0, 1.0, id="too fast"),
        pytest.param(LOADED, LOADED, LOADED, id="confirmed"),
        pytest.param(LOADED, None, LOADED, id="the repeat failed"),
    ],
)
def test_a_repeat_that_contradicts_a_surprise_counts_in_its_place(
    trial_s: float, repeat_s: float | None, counts_s: float
) -> None:
    records = trials(1.0, 1.0, trial_s, 1.0, 1.0, 9.0, 1.0)
    outcome = CRASH if repeat_s is None else steps_of(repeat_s)
    repeat = again(records[2], 3, outcome, doubted=True)
    for count in range(3, 8):  # trials after it do not change that
        found = drift(records[:count], [repeat])
        assert seconds(found.records)[2] == pytest.approx(counts_s)
        assert bool(found.doubted) == (counts_s != trial_s)
        assert bool(found.failed) == (repeat_s is None)


@given(st.floats(-3.0, 3.0))
def test_a_record_at_another_level_and_back_is_as_it_was(level: float) -> None:
    (record,) = trials(1.0)
    there = at_level(record, level)
    assert seconds((there,)) == pytest.approx([math.exp(level)])
    assert seconds((at_level(there, -level),)) == pytest.approx([1.0])
