from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.search.repeats import Repeats, is_surprise
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    Conditions,
    GpuState,
    Record,
)
from autoconf_launch.core import Layout

from ..builders import launch, measurement, trial_of

THROUGHPUT = OBJECTIVES["throughput"]


def trial(number: int, predicted_s: float, step_s: float) -> Record:
    layout = Layout(micro_batch=number + 1, accumulation=8)
    samples = layout.global_batch
    outcome = measurement(*(samples * step_s,) * 3, samples=samples)
    return launch(trial_of(number, layout), outcome, samples * predicted_s, band=0.1)


def as_predicted(*seconds: float) -> list[Record]:
    """Seconds per sample, predicted and measured alike."""
    return [trial(number, step_s, step_s) for number, step_s in enumerate(seconds)]


OTHERS = as_predicted(2.0, 1.5, 1.2, 1.1, 1.0)


@pytest.mark.parametrize(
    ("predicted_s", "step_s", "surprises"),
    [
        pytest.param(0.9, 0.9, False, id="as predicted"),
        pytest.param(0.9, 0.36, True, id="promising and faster still"),
        pytest.param(0.9, 2.25, True, id="promising but slow"),
        pytest.param(2.0, 5.0, False, id="slow and slower still"),
        pytest.param(6.0, 2.0, False, id="faster but still behind"),
    ],
)
def test_a_trial_far_off_that_is_or_should_be_the_best_is_a_surprise(
    predicted_s: float, step_s: float, surprises: bool
) -> None:
    assert is_surprise(trial(5, predicted_s, step_s), OTHERS, THROUGHPUT) == surprises


@pytest.mark.parametrize(("predicted", "surprises"), [(True, True), (False, False)])
def test_one_trial_and_predictions_let_expect_something(predicted: bool, surprises: bool) -> None:
    pair = [OTHERS[0], trial(5, 0.9, 5.0)]
    known, new = pair if predicted else [replace(one, prediction=None) for one in pair]
    assert is_surprise(new, [known], THROUGHPUT) == surprises


def test_nothing_can_be_expected_of_the_first() -> None:
    assert not is_surprise(OTHERS[0], [], THROUGHPUT)


def test_predictions_that_are_all_off_by_the_same_surprise_nobody() -> None:
    others = [trial(n, 0.1 * s, s) for n, s in enumerate((2.0, 1.5, 1.2, 1.1, 1.0))]
    assert not is_surprise(trial(5, 0.09, 0.9), others, THROUGHPUT)


IDLE, POWER_CAP, HOT, POWER_BRAKE = 0x1, 0x4, 0x20, 0x80


def under(record: Record, reasons: int) -> Record:
    """A trial whose second GPU had these reasons for its clocks."""
    gpus = (GpuState(slot=0, throttle_reasons=0), GpuState(slot=1, throttle_reasons=reasons))
    return replace(record, conditions=Conditions(gpus=gpus))


@pytest.mark.parametrize(
    ("reasons", "again"), [(IDLE, False), (POWER_CAP, False), (HOT, True), (POWER_BRAKE, True)]
)
def test_a_trial_whose_gpu_was_throttled_is_measured_again_once(reasons: int, again: bool) -> None:
    repeats = Repeats(THROUGHPUT)
    record = under(trial(5, 0.9, 0.9), reasons)
    known = [*OTHERS, record]
    repeats.tell(record, OTHERS)
    assert repeats.is_in_doubt == again
    if again:
        due = repeats.due(len(known))
        assert due
        assert (due.name, due.doubted) == ("t5_again", True)
        repeats.tell_again(under(replace(record, trial=due), reasons))
        repeats.tell(trial(6, 0.9, 0.9), known)
        assert not repeats.is_in_doubt


@pytest.mark.parametrize(("then_s", "counts"), [(0.45, True), (0.9, False), (1.8, False)])
def test_the_repeat_of_a_throttled_trial_counts_if_it_is_faster(
    then_s: float, counts: bool
) -> None:
    hot = under(trial(5, 0.45, 0.9), HOT)
    known = [*OTHERS, hot]
    launch = replace(hot.trial, name="t5_again", again=len(known), doubted=True)
    cool = replace(trial(5, 0.45, then_s), trial=launch)
    assert bool(drift(known, [cool]).doubted) == counts
