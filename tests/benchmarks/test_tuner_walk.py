from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.strategies import STRATEGIES, load_strategy
from autoconf_launch.core import Layout

from ..autotuner.builders import prediction_table, table
from .conftest import import_benchmark

walk = import_benchmark("tuner_walk")
Landscape, ReplayRules, run, score = walk.Landscape, walk.ReplayRules, walk.run, walk.score
load_tuner = import_benchmark("deepspeed_ranker").load_tuner

FULL = float("nan")
TUNERS = [name for name in (*STRATEGIES, "deepspeed") if name != "optuna"]


def landscape(
    *steps_s: float, predicted_s: tuple[float, ...] | None = None, zero: tuple[int, ...] = ()
) -> Any:
    """Micro-batches 1, 2, 3, … of which a sample takes so many seconds."""
    stages = zero or (0,) * len(steps_s)
    rows = table(*(f"dp=2 micro={1 + i} zero={stage}" for i, stage in enumerate(stages)))
    samples = rows.global_batch_C
    told = predicted_s and prediction_table(np.array(predicted_s) * samples, band=0.1)
    return Landscape(
        name="one", table=rows, step_s_C=np.array(steps_s) * samples, predictions=told
    )


def in_order(found: Any, **rules: object) -> Any:
    return run(found, load_strategy("gridsearch"), ReplayRules(**rules), 0)


@pytest.mark.parametrize("name", TUNERS)
def test_every_tuner_comes_to_every_candidate(name: str) -> None:
    found = landscape(3.0, 1.0, 2.0, 5.0, 4.0)
    assert sorted(run(found, load_tuner(name), ReplayRules(), 1).rows) == [*range(5)]


def opaque(values: range | tuple[int, ...], half: float, fits: int, batch: int = 0) -> Any:
    """A curve without predictions: throughput like m / (m + half), to an edge of memory."""
    layouts = [Layout(micro_batch=m, accumulation=batch // m if batch else 1) for m in values]
    steps_s = [
        one.global_batch * (one.micro_batch + half) / one.micro_batch
        if one.micro_batch <= fits
        else FULL
        for one in layouts
    ]
    return Landscape(name="opaque", table=table(*layouts), step_s_C=np.array(steps_s))


TO_KNEE = ReplayRules(to_saturation=True)


def test_the_knee_is_found_in_few_trials_and_ends_the_search() -> None:
    # The best of 128 micro-batches is 52, the last to fit.
    done = run(opaque(range(1, 129), half=12, fits=52), load_strategy("model_based"), TO_KNEE, 0)
    found = score(opaque(range(1, 129), half=12, fits=52), done)
    assert found.final_regret < 0.02
    assert found.stopped_at <= 8
    whole = opaque((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96), half=0.5, fits=80, batch=96)
    done = run(whole, load_strategy("model_based"), TO_KNEE, 0)
    tried = [int(whole.table["micro_batch"][row]) for row in done.rows]
    assert 96 not in tried
    assert score(whole, done).final_regret < 0.03
    assert len(tried) <= 4
    whole = opaque((1, 2, 4, 8), half=1, fits=8)
    assert len(in_order(whole).rows) == 4


@settings(max_examples=15)
@given(half=st.integers(1, 200), fits=st.integers(1, 96))
def test_wherever_the_knee_is_it_is_found_without_a_prediction(half: int, fits: int) -> None:
    whole = opaque(range(1, 97), half=half, fits=fits)
    found = score(whole, run(whole, load_strategy("model_based"), TO_KNEE, 0))
    assert found.final_regret <= 0.04
    assert found.stopped_at <= 13


def test_trials_count_until_a_share_of_the_best_or_a_certificate() -> None:
    found = landscape(2.0, 1.04, 1.01, 1.0)
    assert score(found, in_order(found)).trials_to == (3, 2)
    found = landscape(2.0, 1.5, 1.0)
    assert score(found, in_order(found, trials=2)).trials_to == (4, 4)
    found = landscape(4.0, 2.0, 3.0, 1.5, 2.0, 1.0)
    assert score(found, in_order(found)).regret_at == pytest.approx((0.5, 0.0, 0.0))
    found = landscape(*[FULL] * 4, 1.0, zero=(3, 2, 1, 0, 3))
    assert score(found, in_order(found)).regret_at[0] == np.inf
    steps_s = tuple(1.0 + 0.5 * i for i in range(12))
    found = landscape(*steps_s, predicted_s=steps_s)
    done = run(found, load_strategy("model_based"), ReplayRules(good_enough=0.02), 0)
    assert done.rows[0] == 0
    assert done.stopped_at <= 4
    assert score(found, done).certificate_true is True
    found = landscape(*[3.0] * 8, 0.01, predicted_s=(*[1.0] * 8, 100.0))
    done = run(found, load_strategy("model_based"), ReplayRules(good_enough=0.5), 0)
    assert score(found, done).certificate_true is False
    found = landscape(1.0, 2.0, predicted_s=(1.0, 2.0))
    done = run(found, load_strategy("model_based"), ReplayRules(), 0)
    assert score(found, done).certificate_true is None


def test_walks_stop_by_patience_memory_and_stages() -> None:
    found = landscape(1.0, 2.0, 2.0, 2.0, 0.5)
    done = in_order(found, patience=3)
    assert (done.stopped_at, len(done.rows)) == (4, 5)
    assert score(found, done).final_regret == pytest.approx(1.0)
    found = landscape(1.0, *[2.0] * 40)
    done = in_order(found, patience=3)
    assert (done.stopped_at, len(done.rows)) == (4, 16)
    found = landscape(*[2.0] * 24, 1.03, 1.0, *[2.0] * 20)
    assert len(in_order(found, patience=3).rows) == 26
    found = landscape(1.0, *[2.0] * 40)
    assert len(in_order(found, patience=30).rows) == 31
    found = landscape(1.0, FULL, 2.0, 0.5, zero=(0, 3, 0, 0))
    assert in_order(found, patience=2).stopped_at == 4
    found = landscape(1.0, 1.0, FULL, FULL, FULL)
    assert in_order(found).rows == (0, 1, 2)
    found = landscape(1.0, 2.0, FULL, zero=(0, 0, 3))
    assert score(found, in_order(found, patience=1)).out_of_memory_trials == 0
    found = landscape(1.0, 2.0, FULL, FULL)
    assert score(found, in_order(found)).out_of_memory_trials == 1
    found = landscape(1.0, 2.0, 0.5, zero=(0, 1, 2))
    assert in_order(found, exploration="staged").stopped_at == 2
    assert in_order(found, exploration="global").stopped_at == 3
    found = landscape(3.0, 2.0, 1.0, zero=(0, 1, 2))
    assert in_order(found, exploration="staged").stopped_at == 3
    found = landscape(1.0, 2.0, 3.0, 4.0, zero=(2, 1, 0, 2))
    assert in_order(found, exploration="staged").rows == (2, 1, 0, 3)


@given(
    steps_s=st.lists(st.floats(0.1, 10), min_size=1, max_size=40),
    patience=st.integers(1, 30),
)
def test_trials_after_the_end_of_a_walk_would_change_no_score(
    steps_s: list[float], patience: int
) -> None:
    found = landscape(*steps_s)
    done = in_order(found, patience=patience)
    assert score(found, done) == score(found, replace(done, rows=tuple(range(len(steps_s)))))


@given(
    steps_s=st.lists(st.floats(0.1, 10) | st.just(FULL), min_size=1, max_size=10),
    patience=st.integers(1, 6),
)
def test_scores_are_within_their_ranges(steps_s: list[float], patience: int) -> None:
    found = landscape(*steps_s, 1.0, zero=tuple(i % 4 for i in range(len(steps_s) + 1)))
    scored = score(found, in_order(found, patience=patience))
    assert 1 <= scored.trials_to[1] <= scored.trials_to[0] <= len(found) + 1
    assert 1 <= scored.stopped_at <= len(found)
    assert list(scored.regret_at) == sorted(scored.regret_at, reverse=True)


def noisy_curve(seed: int, noise: float) -> Any:
    """Four micro-batches that are nearly equal, as predicted, each measured once."""
    micros = (1, 2, 4, 8)
    steps_s = np.array([1.0 + 0.05 / micro for micro in micros])
    layouts = [Layout(micro_batch=micro, accumulation=64 // micro) for micro in micros]
    told = prediction_table(steps_s, band=0.1)
    return Landscape(
        name="curve",
        table=table(*layouts),
        step_s_C=steps_s * np.exp(np.random.default_rng(seed).normal(0.0, noise, len(micros))),
        predictions=told,
    )


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_certificates_of_curves_that_two_noisy_trials_close_are_true(noise: float) -> None:
    rules = ReplayRules(good_enough=0.02, to_saturation=True)
    found = [noisy_curve(seed, noise) for seed in range(40)]
    scores = [score(one, run(one, load_strategy("model_based"), rules, 0)) for one in found]
    told = [one.certificate_true for one in scores if one.certificate_true is not None]
    assert len(told) > 20
    assert np.mean(told) >= 0.97


def at_the_limit(full: tuple[int, ...] = ()) -> Any:
    """Structures of 64 GPUs with micro-batches 1 to 8, of which the largest is the fastest.

    The largest of the best structure is predicted to need 96 of 80 GB; ``full``: rows that run
    out of memory.
    """
    layouts, steps_s, peaks = [], [], []
    for tensor in (1, 2, 4, 8):
        for micro in (1, 2, 4, 8):
            layouts.append(f"tp={tensor} dp={64 // tensor} micro={micro} acc={8 // micro}")
            steps_s.append((1.0 + 0.05 * np.log2(tensor)) * (1.0 + 0.6 / micro))
            peaks.append((24.0 + 9.0 * micro) * (1.0 if tensor == 1 else 1.2 / tensor))
    predictions = prediction_table(np.array(steps_s) * 64 * 8, peaks, band=0.2, limit_bytes=80.0)
    times = np.array([FULL if row in full else s * 64 * 8 for row, s in enumerate(steps_s)])
    return Landscape(name="limit", table=table(*layouts), step_s_C=times, predictions=predictions)


MARGINAL_ROW = 3


def test_memory_within_the_band_is_tried_early_and_once() -> None:
    found = at_the_limit()
    assert found.predictions is not None
    assert found.predictions.peak_bytes_C[MARGINAL_ROW] == pytest.approx(96.0)
    rules = ReplayRules(good_enough=0.02, to_saturation=True)
    done = run(found, load_strategy("model_based"), rules, 0)
    assert done.rows.index(MARGINAL_ROW) <= 1
    assert score(found, done).final_regret == 0.0
    found = at_the_limit(full=(2, MARGINAL_ROW))
    rules = ReplayRules(good_enough=0.02, to_saturation=True)
    done = run(found, load_strategy("model_based"), rules, 0)
    assert score(found, done).out_of_memory_trials <= 1


@pytest.mark.parametrize("name", TUNERS)
def test_with_several_at_a_time_every_candidate_is_tried_once(name: str) -> None:
    found = landscape(3.0, 1.0, 2.0, 5.0, 4.0)
    strategy = load_tuner(name)
    assert sorted(run(found, strategy, ReplayRules(shares=3), 1).rows) == [*range(5)]


def test_who_ends_first_is_replaced_and_only_records_reach_the_tuner() -> None:
    found = landscape(9.0, 0.1, 0.1, 0.1)
    rules = ReplayRules(shares=2, trials=4)
    assert run(found, load_strategy("gridsearch"), rules, 0).rows == (0, 1, 2, 3)
    # Rows that were never tried may have any time: the first trials stay the same.
    found = landscape(1.0, 2.0, 3.0, 4.0, 5.0, predicted_s=(5.0, 4.0, 3.0, 2.0, 1.0))
    first = run(found, load_strategy("model_based"), ReplayRules(trials=2), 0)
    steps_s = found.step_s_C.copy()
    steps_s[[i for i in range(5) if i not in first.rows]] = 77.0
    other = replace(found, step_s_C=steps_s)
    assert run(other, load_strategy("model_based"), ReplayRules(trials=2), 0).rows == first.rows
