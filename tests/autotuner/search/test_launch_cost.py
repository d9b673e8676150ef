"""No launch starts without an upper bound of its cost that fits what is left of the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.search import (
    SearchLimits,
    StopKind,
    StopReason,
    Study,
    baseline_trial,
    start_bound_s,
)
from autoconf_launch.autotuner.search.limits import LaunchBounds
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    CandidateTable,
    ChoiceKind,
    Floats,
    GlobalBatchRule,
    KnobChoice,
    Outcome,
    Prediction,
    PredictionTable,
    Record,
    SearchSpace,
    Trial,
    build_space,
)
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.report import stop_sentence

from ...rows import some
from ..builders import measurement, prediction_table, table
from ..conftest import candidate, failure_of, record, steps_of

STEPS = 5
START_S = 3.0


def step_bounds_s(
    rows: CandidateTable, predictions: PredictionTable | None, records: Sequence[Record]
) -> Floats:
    """Bounds of single steps, of launches without any start."""
    bounds = LaunchBounds(rows, predictions, steps=1)
    for told in (*records, *records[-1:]):
        bounds.add(replace(told, wall_s=0.0, trial=replace(told.trial, number=1)))
    return bounds.seconds_C


def any_batch(micro: int = 4) -> SearchSpace:
    """Micro-batches 1 to 1024 of one rank, at any global batch."""
    choices = (KnobChoice("micro_batch", (micro,), ChoiceKind.MINIMUM),)
    baseline = candidate(micro=micro, ranks=1)
    return build_space(baseline, choices, GlobalBatchRule(), AutotuningSettings())


def with_room(space: SearchSpace) -> PredictionTable:
    """All fits in memory, and nothing is known of time: a script of somebody else."""
    count = len(space.table)
    return prediction_table([np.nan] * count, [1.0] * count, limit_bytes=1e9)


def grows(micro: int) -> float:
    """Seconds of a step, which is for the most part the same for all up to a micro-batch of 64."""
    return 0.6 + 0.01 * micro


class Clock:
    """Runs a study one trial after the other, in simulated time."""

    def __init__(self, study: Study, step_s: float = 1.0) -> None:
        self.study, self.scale = study, step_s
        self.now_s = 0.0
        self.tried: list[Trial] = []

    def run(self) -> Clock:
        while True:
            asked = self.study.ask(1, self.now_s)
            if not asked:
                assert self.study.stop_reason() is not None, "it neither asks nor stops"
                return self
            self.tried += asked
            step_s = self.scale * grows(asked[0].candidate.layout.micro_batch)
            wall_s = START_S + STEPS * step_s
            self.now_s += wall_s
            outcome = replace(steps_of(asked[0], step_s), first_step=3)
            self.study.tell(Record(trial=asked[0], outcome=outcome, wall_s=wall_s))

    @property
    def micros(self) -> list[int]:
        return [trial.candidate.layout.micro_batch for trial in self.tried]


def search(seconds: float | None, tuner: str = "model_based") -> Clock:
    space = any_batch()
    settings = AutotuningSettings(tuner_early_stopping=50, tuner_type=tuner)
    limits = SearchLimits(seconds=seconds)
    return Clock(Study(space, with_room(space), settings, limits=limits)).run()


def end(study: Study) -> StopReason:
    return some(study.stop_reason())


@pytest.mark.parametrize("seconds", [20.0, 63.0])
@pytest.mark.parametrize("tuner", ["model_based", "gridsearch", "random"])
def test_a_search_ends_within_its_time(seconds: float, tuner: str) -> None:
    assert search(seconds, tuner).now_s <= seconds


def test_a_search_without_a_budget_climbs_from_the_users_micro_batch_to_the_end() -> None:
    clock = search(None)
    highest = [max(clock.micros[:place]) for place in range(1, len(clock.micros))]
    pairs = zip(highest, clock.micros[1:], strict=True)
    assert all(here <= 4 * before for before, here in pairs)
    assert end(clock.study).kind is StopKind.EXPLORED
    assert not clock.study.extend(1e6, elapsed_s=clock.now_s)


def test_searches_with_time_go_on_and_name_a_budget_without_room() -> None:
    clock = search(42.0)
    tried, why = len(clock.tried), end(clock.study)
    assert clock.now_s <= 42.0
    assert not clock.study.extend(43.0, elapsed_s=clock.now_s)
    assert clock.study.stop_reason() == why
    assert clock.study.extend(90.0, elapsed_s=clock.now_s)
    assert len(clock.run().tried) > tried
    assert clock.now_s <= 90.0
    reason = end(search(20.0).study)
    assert (reason.kind, reason.budget) == (StopKind.BUDGET, "20 s")
    assert reason.no_room is not None
    assert "budget of 20 s had no room" in stop_sentence(reason)


def start_study(
    limits: SearchLimits, outcome: Outcome | None = None, wall_s: float = 0.0, step_s: float = 1.0
) -> Study:
    """A study whose baseline ended after ``wall_s``."""
    study = Study(any_batch(), with_room(any_batch()), AutotuningSettings(), limits=limits)
    (first,) = study.ask(1, 0.0)
    outcome = outcome or replace(steps_of(first, step_s), first_step=3)
    study.tell(Record(trial=first, outcome=outcome, wall_s=wall_s))
    return study


@pytest.mark.parametrize(("left_s", "starts"), [(9.0, False), (10.0, True)])
def test_until_something_can_be_compared_what_is_expected_to_end_in_time_starts(
    left_s: float, starts: bool
) -> None:
    """Time that remains has no other use then; a bound on the same launch is 12 s."""
    study = start_study(SearchLimits(seconds=8.0 + left_s), wall_s=8.0)
    assert bool(study.ask(1, 8.0)) is starts


INTERRUPTED = failure_of(FailureKind.PREEMPTED, "the budget was spent")


@pytest.mark.parametrize(
    ("seconds", "kind"), [(10.0, StopKind.NOTHING_MEASURED), (None, StopKind.BASELINE_FAILED)]
)
def test_a_baseline_that_was_interrupted_failed_only_without_a_budget(
    seconds: float | None, kind: StopKind
) -> None:
    reason = end(start_study(SearchLimits(seconds=seconds), INTERRUPTED))
    assert (reason.kind, reason.is_error) == (kind, True)


def test_a_trial_that_the_budget_ended_was_not_tried() -> None:
    study = start_study(SearchLimits(seconds=60.0), wall_s=1.0, step_s=0.1)
    (second,) = study.ask(1, 1.0)
    study.tell(record(second, INTERRUPTED))
    assert [r.trial.number for r in study.records] == [0]
    assert study.ask(1, 59.0) == ()
    assert end(study).kind is StopKind.BUDGET
    # 7.5 s are left for launches of about 6 s, which would take 7.6 s with the usual margin.
    limits = SearchLimits(seconds=10.0, whole_s=14.0, ending_s=0.5)
    study = start_study(limits, wall_s=6.0, step_s=0.01)
    (second,) = study.ask(1, 6.0)
    study.tell(Record(trial=second, outcome=steps_of(second, 0.01), wall_s=2.0))
    assert study.ask(1, 8.0) == ()


def ran(micro: int, step_s: float, *, stage: int = 0, accumulation: int = 1) -> Record:
    trial = baseline_trial(candidate(stage=stage, micro=micro, accumulation=accumulation))
    outcome = replace(measurement(*(step_s,) * 3), first_step=3)
    return Record(trial=trial, outcome=outcome, wall_s=2.0 + 5 * step_s)


def bounds(records: list[Record], *others: tuple[int, int, int]) -> list[float]:
    """Bounds of rows of (stage, micro-batch, accumulation)."""
    rows = table(*(candidate(stage=s, micro=m, accumulation=a) for s, m, a in others))
    return [*map(float, step_bounds_s(rows, None, records))]


def test_a_step_is_bounded_by_the_samples_structure_and_split_of_measured_ones() -> None:
    near, far = [ran(32, 1.0), ran(4, 0.2)], [ran(4, 0.2)]
    assert 2.0 < bounds(near, (0, 64, 1))[0] < 4.0
    assert bounds(near, (0, 64, 1)) < bounds(far, (0, 64, 1))
    assert bounds([ran(8, 1.0)], (0, 1, 8))[0] == pytest.approx(10.0)
    alike, other = bounds([ran(8, 1.0)], (0, 8, 1), (3, 8, 1))
    assert other == pytest.approx(2.0 * alike)
    before = Prediction(peak_bytes=1, step_s=0.5, band=0.3, how="")
    told = replace(ran(8, 1.0), prediction=before)
    known = prediction_table([0.75], [1.0], band=0.3)
    found = step_bounds_s(table(candidate(stage=3, micro=8)), known, [told])
    assert found[0] == pytest.approx(1.25 * 1.0 * 1.5 * 1.3)


def test_before_anything_was_measured_there_is_no_bound() -> None:
    crashed = replace(ran(8, 1.0), outcome=failure_of(FailureKind.CRASHED))
    assert bounds([crashed], (0, 8, 1)) == [math.inf]
    assert start_bound_s([crashed]) == 0.0
    assert start_bound_s([ran(8, 1.0)]) == pytest.approx(2.5)
