from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.space import (
    CandidateTable,
    FailedTrial,
    Measurement,
    Outcome,
    PredictionTable,
    Record,
)
from autoconf_launch.autotuner.strategies import chance_to_fit, marginal_rows
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, MemoryUse

from ...rows import some
from ..builders import launch, measurement, prediction_table, trial_of

LIMIT = 1_000


def predictions(*peaks: float, limit: float | None = LIMIT) -> PredictionTable:
    return prediction_table([1.0] * len(peaks), peaks, limit_bytes=limit)


def odds(*peaks: float, history: tuple[Record, ...] = ()) -> list[float]:
    found = some(chance_to_fit(predictions(*peaks), history))
    return [float(chance) for chance in found]


def record(outcome: Outcome, told: int) -> Record:
    return launch(trial_of(), outcome, 1.0, peak_bytes=told)


def ran(told: int, peak: int) -> Record:
    memory = MemoryUse(free_before_bytes=LIMIT, peak_bytes=peak, limit_bytes=LIMIT)
    return record(replace(measurement(1.0), memory=memory), told)


def full(told: int, kind: FailureKind = FailureKind.OUT_OF_MEMORY) -> Record:
    return record(FailedTrial(failure=Failure(kind=kind, detail="")), told)


def test_chances_follow_predicted_needs_within_the_limit() -> None:
    few, even, many = odds(500, 1000, 2000)
    assert few > 0.99
    assert even == pytest.approx(0.5, abs=0.01)
    assert many < 0.01
    assert odds(float("nan")) == [1.0]
    assert chance_to_fit(predictions(5, limit=None), ()) is None
    memory = MemoryUse(free_before_bytes=1, peak_bytes=1, limit_bytes=10 * LIMIT)
    outcome = Measurement(step_s=(1.0,), samples_per_step=1, world_size=1, memory=memory)
    found = some(chance_to_fit(predictions(2000), (record(outcome, 1),)))
    assert found[0] > 0.99


def test_trials_move_the_chance_by_their_error() -> None:
    assert odds(950, history=(ran(500, peak=600),))[0] < odds(950)[0] - 0.3
    assert odds(1050, history=(ran(500, peak=430),))[0] > odds(1050)[0] + 0.3
    assert odds(850, history=(full(850),))[0] < odds(850)[0] - 0.3
    assert odds(950, history=(full(800, FailureKind.CRASHED),)) == pytest.approx(odds(950))


def test_any_history_leaves_numbers_whatever_its_order() -> None:
    assert np.isfinite(odds(900, history=(full(10), ran(10, peak=900_000)))).all()
    trials = (ran(500, peak=600), full(850), ran(300, peak=310), full(1200), ran(700, peak=650))
    assert odds(900, history=trials) == pytest.approx(odds(900, history=trials[::-1]))
    thousands = (ran(500, peak=600), full(850), full(10)) * 1000
    assert np.isfinite(odds(100, 900, 5000, history=thousands)).all()


OUT_OF_MEMORY = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))


def marginal(history: tuple[Record, ...], *peaks: float) -> list[bool]:
    """A pool of micro-batches 1, 2, … of ZeRO 0 with these predicted bytes."""
    layouts = [Layout(micro_batch=1 + n) for n in range(len(peaks))]
    table = CandidateTable.from_candidates([Candidate(layout=layout) for layout in layouts])
    return [bool(row) for row in marginal_rows(table, predictions(*peaks), history)]


def ran_out(predicted: int, *, stage: int) -> Record:
    candidate = Candidate(layout=Layout(zero_stage=stage, data_parallel=1 + (stage > 0)))
    found = record(OUT_OF_MEMORY, predicted)
    return replace(found, trial=replace(found.trial, candidate=candidate))


def test_marginal_rows_end_with_the_band_and_what_ran_out() -> None:
    assert marginal((), 900, 1010, 1240, 1300) == [False, True, True, False]
    assert marginal((ran_out(1240, stage=0),), 1010, 1100) == [False, False]
    assert marginal((ran_out(1100, stage=3),), 1010, 1100, 1240) == [True, False, False]
    memory = MemoryUse(free_before_bytes=LIMIT, peak_bytes=550, limit_bytes=LIMIT)
    larger = Measurement(step_s=(1.0,), samples_per_step=1, world_size=1, memory=memory)
    assert marginal((record(larger, 500),), 1010, 1240) == [True, False]
