import math
from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import PRIOR, t_quantile
from autoconf_launch.autotuner.search import OptimalityBound
from autoconf_launch.autotuner.search.optimality_bound import CONFIDENCE, bound_gain
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    CandidateTable,
    PredictionTable,
    Record,
)
from autoconf_launch.autotuner.strategies import CurveGains
from autoconf_launch.core import Candidate, Layout, MemoryUse
from autoconf_launch.launcher.report import bound_text

from ..builders import launch, measurement, prediction_table, trial_of

THROUGHPUT = OBJECTIVES["throughput"]


def candidate(accumulation: int) -> Candidate:
    return Candidate(layout=Layout(accumulation=accumulation, data_parallel=16 // accumulation))


def record(accumulation: int, step_s: float, predicted_s: float | None = 1.0) -> Record:
    trial, outcome = trial_of(1, candidate(accumulation)), measurement(step_s, samples=16)
    return launch(trial, outcome, predicted_s, band=0.1, least_step_s=0.5)


def certificate(
    *predicted_s: float,
    least_s: tuple[float, ...] | None = None,
    peaks: tuple[float, ...] | None = None,
    history: tuple[Record, ...] = (record(1, 1.0),),
    most: tuple[float, ...] | None = None,
) -> OptimalityBound | None:
    """Remaining rows besides a best one that was predicted and measured at 1 s."""
    table = CandidateTable.from_candidates([candidate(2**i) for i in range(len(predicted_s))])
    least_step_s_C = None if least_s is None else np.array(least_s)
    told = prediction_table(
        predicted_s, peaks or (), band=0.1, least_step_s_C=least_step_s_C, limit_bytes=1000.0
    )
    curves = None if most is None else gains(most)
    return bound_gain(table, told, history, THROUGHPUT, curves=curves)


def gains(most: tuple[float, ...], doubt: float = 0.0) -> CurveGains:
    return CurveGains(log_C=np.array(most), doubt_C=np.full(len(most), doubt), noise=PRIOR)


def find(*predicted_s: float, **others: object) -> OptimalityBound:
    result = certificate(*predicted_s, **others)  # type: ignore[arg-type]
    assert result is not None
    return result


def test_a_bound_that_is_known_otherwise_counts_where_it_is_lower() -> None:
    one = find(1.0, 1.0, 1.0, most=(-0.1, 0.001, np.inf))
    assert one.possible_gain_C[:2] == pytest.approx([0.0, 0.001], abs=1e-5)
    assert one.possible_gain_C[2] > 0.01


def test_the_bound_of_a_curve_carries_the_noise_of_its_trials() -> None:
    table = CandidateTable.from_candidates([candidate(1)])
    told = PredictionTable(
        peak_bytes_C=np.array([np.nan]), step_s_C=np.array([0.7]), band=0.1, how=""
    )
    sure, unsure = (
        bound_gain(table, told, (record(1, 1.0),), THROUGHPUT, curves=gains((-0.01,), doubt))
        for doubt in (0.0, 2.0)
    )
    assert sure is not None
    assert unsure is not None
    quantile = t_quantile(CONFIDENCE, PRIOR.between_freedom)
    assert sure.possible_gain == 0.0
    assert unsure.possible_gain == pytest.approx(math.expm1(quantile * PRIOR.between * 2.0 - 0.01))


def test_what_is_predicted_far_slower_cannot_win() -> None:
    one = find(3.0, 1.05)
    assert one.beaten == 1
    assert one.possible_gain > 0.02


def test_a_roofline_above_the_best_decides_alone() -> None:
    assert find(1.0, least_s=(1.01,)).beaten == 1


def test_a_measurement_below_its_roofline_lowers_all_of_them() -> None:
    below = (record(1, 0.46, predicted_s=0.46),)
    assert find(0.46, least_s=(0.47,), history=below).beaten == 0


def test_a_roofline_that_a_measurement_was_far_below_bounds_nothing() -> None:
    far_below = (record(1, 0.4, predicted_s=0.4),)
    assert find(0.4, least_s=(9.0,), history=far_below).beaten == 0


def test_what_surely_does_not_fit_cannot_win() -> None:
    assert find(1.0, peaks=(5000.0,)).beaten == 1


def test_what_may_fit_may_win() -> None:
    assert find(1.0, peaks=(1000.0,)).beaten == 0


def test_trials_that_agree_with_their_predictions_leave_less_to_gain() -> None:
    few = find(1.05)
    many = find(1.05, history=tuple(record(2**i, 1.0) for i in range(4)))
    assert many.possible_gain < few.possible_gain


def test_more_candidates_leave_more_to_gain_by_chance() -> None:
    assert find(1.1, 1.1, 1.1, 1.1).possible_gain > find(1.1).possible_gain


def test_an_even_chance_has_something_to_expect() -> None:
    assert find(1.0).expected_gain > 10 * find(1.3).expected_gain


def test_without_a_prediction_nothing_is_said() -> None:
    assert certificate(1.0, float("nan")) is None


def test_without_a_measurement_nothing_is_said() -> None:
    assert certificate(1.0, history=()) is None


def test_with_nothing_left_nothing_can_be_gained() -> None:
    one = find()
    assert (one.remaining, one.possible_gain, bound_text(one)) == (
        0,
        0.0,
        "No configuration is left to try.",
    )


@pytest.mark.parametrize(
    ("gains", "sentence"),
    [
        (
            (0.0, 0.021, 0.0),
            "3 configurations left, 2 of them provably slower; expected further gain 0.4 % "
            "(at most 2.1 %).",
        ),
        (
            (0.021, 0.01),
            "2 configurations left; expected further gain 0.4 % (at most 2.1 %).",
        ),
        ((0.0, 0.0), "2 configurations left, provably slower than the best."),
        ((0.0,), "1 configuration left, provably slower than the best."),
        (
            (0.021,),
            "1 configuration left; expected further gain 0.4 % (at most 2.1 %).",
        ),
    ],
)
def test_it_says_what_is_left_in_one_sentence(gains: tuple[float, ...], sentence: str) -> None:
    one = OptimalityBound(
        remaining=len(gains), possible_gain_C=np.array(gains), expected_gain=0.004
    )
    assert bound_text(one) == sentence


def test_what_is_over_the_limit_within_the_band_may_still_be_faster() -> None:
    memory = MemoryUse(free_before_bytes=1000, peak_bytes=900, limit_bytes=1000)
    one = record(1, 1.0)
    assert one.measurement is not None
    assert one.prediction is not None
    as_predicted = replace(
        one,
        outcome=replace(one.measurement, memory=memory),
        prediction=replace(one.prediction, peak_bytes=900),
    )
    inside, beyond = (
        find(0.5, peaks=(peak,), history=(as_predicted,)) for peak in (1240.0, 1300.0)
    )
    assert inside.possible_gain > 0.5
    assert beyond.possible_gain == 0.0
