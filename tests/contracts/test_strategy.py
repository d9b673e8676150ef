"""The contract of strategies. A new one is one more name in ``STRATEGIES``."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    CandidateTable,
    FailedTrial,
    Measurement,
    Prediction,
    PredictionTable,
    Record,
    Trial,
)
from autoconf_launch.autotuner.space.settings import MetricName
from autoconf_launch.autotuner.strategies import STRATEGIES, Ask, Strategy, load_strategy
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Failure,
    FailureKind,
    KnobValue,
    Layout,
    Recompute,
)

from ..autotuner.builders import layout_of, table

SEED = 7


def need(name: str) -> list[pytest.MarkDecorator]:
    missing = name == "optuna" and importlib.util.find_spec("optuna") is None
    return [pytest.mark.skipif(missing, reason="optuna is not installed")]


ALL = tuple(pytest.param(name, marks=need(name)) for name in STRATEGIES if name != "xgboost")
"""``xgboost`` is another name of ``model_based``, by a test below."""


def load(name: str, metric: MetricName = "throughput") -> Strategy:
    return load_strategy(name, OBJECTIVES[metric])


def candidate(i: int) -> Candidate:
    modes = tuple(Recompute)
    extras: tuple[tuple[str, KnobValue], ...] = (("overlap_comm", i % 2 == 0),) if i % 3 else ()
    layout = Layout(data_parallel=2, micro_batch=1 + i, recompute=modes[i % 3], zero_stage=i % 4)
    return Candidate(layout=layout, extras=extras)


def pool(size: int) -> CandidateTable:
    return table(*(candidate(i) for i in range(size)))


def ask(size: int, **given: Any) -> Ask:
    return Ask(pool=pool(size), **{"seed": SEED, **given})


def trial(number: int) -> Trial:
    """Trials from number 100 on are of candidates in no pool of these tests."""
    return Trial(number=number, name=f"t{number}", candidate=candidate(number), space="z0")


def measure(number: int, step_s: float, *, predicted_s: float | None = None) -> Record:
    outcome = Measurement(step_s=(step_s,), samples_per_step=4, world_size=2)
    prediction = Prediction(peak_bytes=None, step_s=predicted_s, band=None, how="")
    return Record(trial=trial(number), outcome=outcome, wall_s=0.0, prediction=prediction)


def failure_of(number: int, kind: FailureKind = FailureKind.CRASHED) -> Record:
    failure = Failure(kind=kind, detail="it failed")
    return Record(trial=trial(number), outcome=FailedTrial(failure=failure), wall_s=0.0)


def predictions(*steps_s: float) -> PredictionTable:
    return PredictionTable(
        peak_bytes_C=np.full(len(steps_s), np.nan), step_s_C=np.array(steps_s), band=0.3, how=""
    )


HISTORIES: dict[str, tuple[Record, ...]] = {
    "nothing": (),
    "failures only": (failure_of(100), failure_of(101), failure_of(102), failure_of(103)),
    "out of memory": (measure(100, 1.0), failure_of(101, FailureKind.OUT_OF_MEMORY)),
    "one measurement": (measure(100, 1.0),),
    "more than a few": tuple(
        measure(100 + i, 1.0 + i % 7, predicted_s=1.0 + i % 3) for i in range(60)
    ),
    "measurements": tuple(measure(100 + i, 1.0 + i % 5) for i in range(12)),
    "measurements with predictions": tuple(
        measure(100 + i, 1.0 + i % 5, predicted_s=1.0) for i in range(12)
    ),
    "a mixture": (
        measure(100, 1.0),
        failure_of(101),
        measure(102, 2.0, predicted_s=1.0),
        *(measure(103 + i, 3.0) for i in range(4)),
    ),
}


@pytest.fixture(params=ALL)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    return load(request.param)


@pytest.fixture(params=HISTORIES)
def history(request: pytest.FixtureRequest) -> tuple[Record, ...]:
    return HISTORIES[request.param]


@pytest.mark.parametrize("count", [1, 5, 100])
def test_as_many_different_rows_of_the_pool_come_as_are_requested_or_there_are(
    strategy: Strategy, history: tuple[Record, ...], count: int
) -> None:
    rows = strategy.propose(ask(9, history=history, count=count))
    assert len(set(rows)) == len(rows) == min(count, 9)
    assert set(rows) <= set(range(9))
    assert {type(row) for row in rows} == {int}


@pytest.mark.parametrize("name", ALL)
def test_rows_depend_on_the_arguments_only_which_are_not_changed(
    name: str, history: tuple[Record, ...]
) -> None:
    strategy = load(name)
    given_pool, given_predictions = pool(4), predictions(4, 3, np.nan, 1)
    asked = Ask(
        pool=given_pool,
        predictions=given_predictions,
        history=history,
        pending=(trial(1),),
        count=4,
        seed=SEED,
    )
    before = [given_pool.row(i) for i in range(4)], given_predictions.step_s_C.copy()
    first = strategy.propose(asked)
    known = predictions(*range(1, 6))
    strategy.propose(ask(5, predictions=known, history=HISTORIES["measurements"], count=2, seed=1))
    assert strategy.propose(asked) == first == load(name).propose(asked)
    assert [given_pool.row(i) for i in range(4)] == before[0]
    assert np.array_equal(given_predictions.step_s_C, before[1], equal_nan=True)


@pytest.mark.parametrize(
    ("size", "running", "known", "rows"),
    [
        pytest.param(4, (1, 3), None, {0, 2}, id="not_what_is_running"),
        pytest.param(1, (0,), None, set(), id="nothing_if_all_is_running"),
        pytest.param(1, (), None, {0}, id="the_only_one"),
        pytest.param(4, (), (np.nan,) * 4, {0, 1, 2, 3}, id="without_predictions"),
        pytest.param(4, (), (1.0, np.nan, 2.0, np.nan), {0, 1, 2, 3}, id="with_some_predictions"),
    ],
)
def test_all_that_can_be_launched_is_proposed(
    strategy: Strategy,
    history: tuple[Record, ...],
    size: int,
    running: tuple[int, ...],
    known: tuple[float, ...] | None,
    rows: set[int],
) -> None:
    given: dict[str, Any] = {} if known is None else {"predictions": predictions(*known)}
    pending = tuple(map(trial, running))
    asked = ask(size, history=history, pending=pending, count=4, **given)
    assert set(strategy.propose(asked)) == rows


@pytest.mark.parametrize("metric", ["throughput", "latency", "FLOPS"])
@pytest.mark.parametrize("name", ALL)
def test_every_metric_can_be_optimised(name: str, metric: MetricName) -> None:
    chosen = load(name, metric)
    assert len(chosen.propose(ask(4, history=HISTORIES["measurements"], count=2))) == 2


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_it_holds_for_any_pool_and_history(name: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    seconds = data.draw(st.lists(st.floats(1e-6, 1e6), max_size=8))
    known = data.draw(
        st.lists(st.floats(1e-6, 1e6) | st.just(np.nan), min_size=size, max_size=size)
    )
    running = data.draw(st.sets(st.integers(0, size - 1)))
    history = tuple(measure(100 + i, step_s, predicted_s=1.0) for i, step_s in enumerate(seconds))
    count = data.draw(st.integers(1, 12))
    pending = tuple(trial(number) for number in sorted(running))
    rows = load(name).propose(
        ask(size, predictions=predictions(*known), history=history, pending=pending, count=count)
    )
    assert len(set(rows)) == len(rows) == min(count, size - len(running))
    assert set(rows) <= set(range(size)) - running


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("modelbased", r"tuner_type is 'modelbased'.*did you mean 'model_based'"),
        *(
            (name, "known: gridsearch, model_based, optuna, random, xgb")
            for name in ("modelbased", "zzz", "random:x", "deepspeed")
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_and_all_that_are_known(
    name: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load_strategy(name)
    with pytest.raises(ConfigError, match=f"--tuner is '{name}'"):
        load_strategy(name, where="--tuner")


@pytest.mark.parametrize("name", ALL)
def test_a_missing_xgboost_is_one_sentence_before_a_search(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ConfigError, match=r"needs XGBoost.*pip install xgboost-cpu\.$"):
        load_strategy(name)


def test_model_based_and_xgboost_are_the_same_tuner() -> None:
    assert STRATEGIES["model_based"] == STRATEGIES["xgboost"]


@pytest.mark.parametrize("name", ALL)
def test_history_of_other_stages_is_history(name: str) -> None:
    """Candidates, knobs and global batches that the pool does not have."""
    layout = layout_of("dp=8 tp=4 micro=3 zero=3")
    other = Candidate(layout=layout, extras=(("bucket_cap_mb", 25),))
    strange = replace(measure(100, 1.0), trial=replace(trial(100), candidate=other))
    assert len(load(name).propose(ask(5, history=(strange,), count=5))) == 5
