import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    CandidateTable,
    FailedTrial,
    Objective,
    PredictionTable,
    Record,
)
from autoconf_launch.autotuner.strategies import Ask, load_strategy
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout

from ...packages import install_extension
from ..builders import launch, measurement, prediction_table, trial_of

LATENCY = OBJECTIVES["latency"]


def candidate(micro: int) -> Candidate:
    return Candidate(layout=Layout(micro_batch=micro))


def pool(*micro_batches: int) -> CandidateTable:
    return CandidateTable.from_candidates([candidate(micro) for micro in micro_batches])


def measure(number: int, micro: int, step_s: float, predicted_s: float | None = None) -> Record:
    outcome = measurement(step_s, samples=micro)
    return launch(trial_of(number, candidate(micro)), outcome, predicted_s, wall_s=0.0)


def predictions(*steps_s: float) -> PredictionTable:
    return prediction_table(steps_s)


def propose(
    table: CandidateTable,
    told: PredictionTable | None = None,
    *,
    objective: Objective = OBJECTIVES["throughput"],
    **given: Any,
) -> tuple[int, ...]:
    """Proposals of the default strategy."""
    search = load_strategy("model_based", objective)
    return search.propose(Ask(pool=table, predictions=told, **given))


def test_grid_and_random_search_take_the_pool_in_order_or_draw_anew() -> None:
    assert load_strategy("gridsearch").propose(Ask(pool=pool(3, 1, 2), count=2)) == (0, 1)
    history = [tuple(measure(n, 99, 1.0) for n in range(count)) for count in range(6)]
    search = load_strategy("random")
    firsts = {search.propose(Ask(pool=pool(*range(1, 9)), history=h)) for h in history}
    assert len(firsts) > 1


def test_the_model_begins_with_the_best_prediction_of_its_objective() -> None:
    found = propose(pool(1, 2, 4), predictions(1.0, 1.5, 4.0), count=3)
    assert found == (1, 0, 2)
    found = propose(pool(1, 2, 4), predictions(1.0, 1.5, 4.0), count=3, objective=LATENCY)
    assert found == (0, 1, 2)
    assert propose(pool(4, 2, 1)) == (1,)
    peaks = limit(100.0, 400.0, 800.0, 1600.0, steps_s=(math.nan,) * 4)
    found = propose(pool(1, 4, 6, 12), peaks)
    assert found == (2,)
    seconds = (5.0, 3.0, 4.0, 1.0, 2.0)
    found = propose(pool(1, 2, 3, 4, 5), predictions(*seconds), count=5, objective=LATENCY)
    assert found == tuple(np.argsort(seconds).tolist())


def test_without_predictions_the_model_goes_on_from_what_ran_towards_what_may_fit() -> None:
    history = (measure(0, 2, 1.0),)
    assert propose(pool(1, 3, 4, 6, 12), history=history) == (2,)
    running = (replace(measure(1, 4, 1.0).trial),)
    history = (measure(0, 2, 1.0),)
    found = propose(pool(1, 3, 4, 6, 12), history=history, pending=running, count=3)
    assert len(set(found)) == 3
    assert 2 not in found


def test_the_model_learns_from_measurements_and_wrong_predictions() -> None:
    history = tuple(measure(n, micro, 1.0) for n, micro in enumerate((1, 2, 4, 8, 16, 32)))
    found = propose(pool(3, 12, 64), history=history, count=3)
    assert found == (2, 1, 0)
    history = tuple(
        measure(n, micro, 3.0 * predicted_s, predicted_s)
        for n, (micro, predicted_s) in enumerate(((1, 1.0), (2, 1.0), (4, 4.0)))
    )
    found = propose(pool(8, 16, 32), predictions(9.0, 14.0, 40.0), history=history, count=3)
    assert found == (1, 0, 2)
    sizes_s = ((1, 1.0), (3, 1.0), (64, 0.5), (48, 0.5))
    history = tuple(measure(n, *size_s, 1.0) for n, size_s in enumerate(sizes_s))
    found = propose(
        pool(2, 32), predictions(1.0, 1.0), history=history, count=2, objective=LATENCY
    )
    assert found == (1, 0)
    # Odd micro-batches take half as much again.
    odd = [m for m in range(1, 201) if m % 2]
    history = tuple(
        measure(n, m, m * (1.5 if m < 100 else 1.0), float(m)) for n, m in enumerate(odd)
    )
    found = propose(pool(20, 180), predictions(20.0, 180.0), history=history, count=2)
    assert found == (1, 0)


def test_other_packages_add_strategies_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value = "autoconf_launch.autotuner.strategies.base:grid_search"
    install_extension(monkeypatch, tmp_path, "strategy", value)
    assert load_strategy("mine").propose(Ask(pool=pool(1))) == (0,)


def around(*micro_batches: int, step_s: float = 1.0) -> tuple[Record, ...]:
    """Measurements of a second each that were predicted so."""
    return tuple(measure(n, m, step_s, 1.0) for n, m in enumerate(micro_batches))


def limit(*peaks_bytes: float, steps_s: tuple[float, ...]) -> PredictionTable:
    return prediction_table(steps_s, peaks_bytes, band=0.1, limit_bytes=1000.0)


def test_failures_and_short_trials_decide_between_equal_predictions() -> None:
    failure = Failure(kind=FailureKind.CRASHED, detail="")
    crashed = launch(trial_of(0, candidate(9)), FailedTrial(failure=failure))
    found = propose(
        pool(1, 2), predictions(2.0, 1.0), history=(crashed,), count=2, objective=LATENCY
    )
    assert found == (1, 0)
    # Two micro-batches promise the same per sample; steps of the larger one take longer.
    history = tuple(
        replace(measure(n, m, 0.1 * m, 0.1 * m), wall_s=0.1 * m) for n, m in enumerate((1, 2))
    )
    found = propose(pool(64, 4), predictions(6.4, 0.4), history=history)
    assert found == (1,)


def test_candidates_that_hardly_fit_wait_until_their_gain_is_worth_the_risk() -> None:
    fast_but_full = limit(1200.0, 500.0, steps_s=(1.0, 1.05))
    assert propose(pool(1, 2), fast_but_full, count=2, objective=LATENCY) == (1, 0)
    far_faster = limit(990.0, 500.0, 500.0, steps_s=(0.1, 1.0, 1.0))
    assert propose(pool(1, 2, 3), far_faster, objective=LATENCY) == (0,)


def test_a_batch_and_running_trials_spread_over_regions() -> None:
    # Seven rows close to a good one, one far away that is predicted a little slower.
    seconds = (*[1.0] * 7, 1.01)
    micro_batches = (64, 65, 66, 67, 68, 69, 70, 1)
    found = propose(
        pool(*micro_batches), predictions(*seconds), history=around(16), count=3, objective=LATENCY
    )
    assert 7 in found
    rows, history = pool(63, 1), (measure(0, 8, 1.0, 1.0),)
    alone = propose(rows, predictions(1.0, 1.0), history=history, objective=LATENCY)
    near = (63, 1)[alone[0]]
    running = tuple(trial_of(1 + i, candidate(near + 1 + i)) for i in range(3))
    beside = propose(
        rows, predictions(1.0, 1.0), history=history, pending=running, objective=LATENCY
    )
    assert beside != alone


def test_rows_without_a_prediction_are_as_good_as_their_like() -> None:
    told = predictions(8.0, 8.0, math.nan, 64.0, 1.0)
    found = propose(pool(4, 8, 16, 32, 64), told)
    assert found == (4,)
    told = predictions(64.0, 1.0, math.nan, 640.0, 640.0)
    history = (measure(0, 63, 1.0, 1.0),)
    found = propose(pool(1, 64, 65, 512, 1024), told, history=history, count=2)
    assert set(found) == {1, 2}
    # It is the one most like the best, but does not fit.
    told = replace(
        predictions(64.0, math.nan, 64.0),
        peak_bytes_C=np.array([1e9, 100e9, 1e9]),
        limit_bytes=10e9,
    )
    found = propose(pool(64, 65, 66), told, count=3)
    assert found[-1] == 1


@pytest.mark.slow
@pytest.mark.undisturbed
@pytest.mark.parametrize("tuner", ["model_based", "xgboost"])
def test_a_proposal_from_a_hundred_thousand_takes_no_half_second(tuner: str) -> None:
    table = pool(*range(1, 100_001))
    told = predictions(*(1.0 + m % 97 for m in range(100_000)))
    history = around(*range(1, 41))
    search = load_strategy(tuner)
    search.propose(Ask(pool=table, predictions=told, history=history))
    start_s = time.process_time()
    search.propose(Ask(pool=table, predictions=told, history=history))
    assert time.process_time() - start_s < 0.5
