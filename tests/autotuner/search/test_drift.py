from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import AGAIN_SUFFIX
from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.search.repeats import at_level
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record
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


def without_drift(records: tuple[Record, ...], repeats: list[Record]) -> tuple[Record, ...]:
    return drift(records, repeats).records


def seconds(records: tuple[Record, ...]) -> list[float]:
    return [record.measurement.mean_step_s for record in records if record.measurement]


@given(st.lists(SECONDS, min_size=1, max_size=8))
def test_without_a_repeat_nothing_is_corrected(times: list[float]) -> None:
    records = trials(*times)
    assert without_drift(records, []) == records


@given(st.lists(SECONDS, min_size=2, max_size=8), st.floats(0.95, 1.05), st.data())
def test_repeats_that_agree_correct_nothing(
    times: list[float], factor: float, data: st.DataObject
) -> None:
    records = trials(*times)
    place = data.draw(st.integers(0, len(records) - 1))
    repeat = again(records[place], len(records), steps_of(factor * times[place]))
    found = without_drift(records, [repeat])
    assert all(one is other for one, other in zip(found, records, strict=True))


@given(st.lists(SECONDS, min_size=3, max_size=8), st.floats(0.1, 10.0))
def test_order_and_number_of_trials_stay(times: list[float], factor: float) -> None:
    records = trials(*times)
    found = without_drift(records, [again(records[0], 2, steps_of(factor * times[0]))])
    assert [record.trial for record in found] == [record.trial for record in records]


def test_a_load_corrects_no_trial_and_is_the_level_of_the_baselines_last_repeat() -> None:
    records = trials(1.0, 1.0, LOADED, LOADED)
    found = drift(records, [again(records[0], 4, steps_of(LOADED))])
    assert found.records == records
    assert math.exp(found.now) == pytest.approx(LOADED, rel=0.1)
    records = trials(1.0, 1.0, LOADED, 1.0)
    repeats = [
        again(records[0], 3, steps_of(LOADED)),
        again(records[0], 4, steps_of(1.0)),
    ]
    assert drift(records, repeats).now == 0.0
    records = trials(1.0, 1.0, 1.0)
    assert drift(records, [again(records[1], 3, steps_of(LOADED))]).now == 0.0


def test_a_surprise_counts_as_it_was_the_second_time_if_that_contradicts_it() -> None:
    records = trials(1.0, 1.0, LOADED, 1.0)
    found = drift(records, [again(records[2], 4, steps_of(1.0), doubted=True)])
    assert seconds(found.records) == pytest.approx([1.0] * 4)
    assert [repeat.trial.name for _, repeat in found.doubted] == ["t2_again"]
    assert (
        without_drift(records, [again(records[2], 3, steps_of(LOADED), doubted=True)]) == records
    )
    records = trials(1.0, 2.0)
    assert without_drift(records, [again(records[1], 2, CRASH)]) == records
    records = trials(1.0, 1.0, LOADED, 1.0, 1.0, 9.0, 1.0)
    repeat = again(records[2], 3, steps_of(1.0), doubted=True)
    for count in range(3, 8):
        assert drift(records[:count], [repeat]).doubted == ((records[2], repeat),)


@pytest.mark.parametrize(("trial_s", "repeat_s"), [(LOADED, 1.0), (0.5, 1.0)])
def test_a_repeat_that_contradicts_a_surprise_counts(trial_s: float, repeat_s: float) -> None:
    records = trials(1.0, 1.0, trial_s, 1.0)
    found = drift(records, [again(records[2], 4, steps_of(repeat_s), doubted=True)])
    assert seconds(found.records) == pytest.approx([1.0, 1.0, repeat_s, 1.0])


@given(st.floats(-3.0, 3.0))
def test_a_record_at_another_level_and_back_is_as_it_was(level: float) -> None:
    (record,) = trials(1.0)
    there = at_level(record, level)
    assert seconds((there,)) == pytest.approx([math.exp(level)])
    assert seconds((at_level(there, -level),)) == pytest.approx([1.0])
