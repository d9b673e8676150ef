import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import PRIOR, t_quantile
from autoconf_launch.autotuner.search import OptimalityBound
from autoconf_launch.autotuner.search.optimality_bound import CONFIDENCE, bound_gain
from autoconf_launch.autotuner.space import OBJECTIVES, Record
from autoconf_launch.autotuner.strategies import CurveGains
from autoconf_launch.core import Layout, MemoryUse
from autoconf_launch.launcher.report import bound_text

from ...rows import rows, some
from ..builders import launch, layout_of, measurement, prediction_table, table, trial_of

THROUGHPUT = OBJECTIVES["throughput"]


def candidate(accumulation: int) -> Layout:
    return layout_of(f"acc={accumulation} dp={16 // accumulation}")


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
    remaining = table(*(candidate(2**i) for i in range(len(predicted_s))))
    least_step_s_C = None if least_s is None else np.array(least_s)
    told = prediction_table(
        predicted_s, peaks or (), band=0.1, least_step_s_C=least_step_s_C, limit_bytes=1000.0
    )
    curves = None if most is None else gains(most)
    return bound_gain(remaining, told, history, THROUGHPUT, curves=curves)


def gains(most: tuple[float, ...], doubt: float = 0.0) -> CurveGains:
    return CurveGains(log_C=np.array(most), doubt_C=np.full(len(most), doubt), noise=PRIOR)


def find(*predicted_s: float, **others: object) -> OptimalityBound:
    return some(certificate(*predicted_s, **others))  # type: ignore[arg-type]


def test_curves_bound_gains_with_the_noise_of_their_trials() -> None:
    one = find(1.0, 1.0, 1.0, most=(-0.1, 0.001, np.inf))
    assert one.possible_gain_C[:2] == pytest.approx([0.0, 0.001], abs=1e-5)
    assert one.possible_gain_C[2] > 0.01
    told = prediction_table([0.7], band=0.1)
    sure, unsure = (
        bound_gain(
            table(candidate(1)), told, (record(1, 1.0),), THROUGHPUT, curves=gains((-0.01,), doubt)
        )
        for doubt in (0.0, 2.0)
    )
    assert sure is not None
    assert unsure is not None
    quantile = t_quantile(CONFIDENCE, PRIOR.between_freedom)
    assert sure.possible_gain == 0.0
    assert unsure.possible_gain == pytest.approx(math.expm1(quantile * PRIOR.between * 2.0 - 0.01))


BELOW = (record(1, 0.46, predicted_s=0.46),)
FAR_BELOW = (record(1, 0.4, predicted_s=0.4),)


@rows(
    "bound, beaten",
    {
        "predicted far slower": (lambda: find(3.0, 1.05), 1),
        "a roofline above the best": (lambda: find(1.0, least_s=(1.01,)), 1),
        "a best below its roofline": (lambda: find(0.46, least_s=(0.47,), history=BELOW), 0),
        "a best far below it": (lambda: find(0.4, least_s=(9.0,), history=FAR_BELOW), 0),
        "surely too large": (lambda: find(1.0, peaks=(5000.0,)), 1),
        "perhaps too large": (lambda: find(1.0, peaks=(1000.0,)), 0),
    },
)
def test_candidates_that_cannot_win_are_beaten(
    bound: Callable[[], OptimalityBound], beaten: int
) -> None:
    assert bound().beaten == beaten


def test_gains_need_a_candidate_near_the_best_and_a_measurement() -> None:
    assert find(3.0, 1.05).possible_gain > 0.02
    assert (find().remaining, find().possible_gain) == (0, 0.0)
    assert certificate(1.0, float("nan")) is None
    assert certificate(1.0, history=()) is None
    few = find(1.05)
    many = find(1.05, history=tuple(record(2**i, 1.0) for i in range(4)))
    assert many.possible_gain < few.possible_gain
    assert find(1.1, 1.1, 1.1, 1.1).possible_gain > find(1.1).possible_gain
    assert find(1.0).expected_gain > 10 * find(1.3).expected_gain


@rows(
    "gains, facts",
    {
        "some that may be faster": (
            (0.0, 0.021, 0.0),
            ["3 configurations left", "2 of them provably slower", "0.4 %", "2.1 %"],
        ),
        "all that may be faster": ((0.021, 0.01), ["2 configurations left;", "0.4 %", "2.1 %"]),
        "slower ones": ((0.0, 0.0), ["2 configurations left, provably slower"]),
        "a slower one": ((0.0,), ["1 configuration left, provably slower"]),
        "none": ((), ["No configuration is left"]),
    },
)
def test_the_text_says_what_is_left(gains: tuple[float, ...], facts: list[str]) -> None:
    one = OptimalityBound(
        remaining=len(gains), possible_gain_C=np.array(gains), expected_gain=0.004
    )
    assert all(fact in bound_text(one) for fact in facts)


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
