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


def test_rows_are_different_and_of_the_pool(
    strategy: Strategy, history: tuple[Record, ...]
) -> None:
    rows = strategy.propose(ask(9, history=history, count=5))
    assert len(set(rows)) == len(rows) == 5
    assert set(rows) <= set(range(9))


@pytest.mark.parametrize("count", [1, 4, 100])
def test_no_more_rows_come_than_asked_for_or_there_are(
    strategy: Strategy, history: tuple[Record, ...], count: int
) -> None:
    assert len(strategy.propose(ask(9, history=history, count=count))) == min(count, 9)


def test_the_same_arguments_give_the_same_rows(
    strategy: Strategy, history: tuple[Record, ...]
) -> None:
    first, second = (
        strategy.propose(ask(9, predictions=predictions(*range(1, 10)), history=history, count=4))
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("name", ALL)
def test_another_instance_gives_the_same_rows(name: str, history: tuple[Record, ...]) -> None:
    first, second = (load(name).propose(ask(9, history=history, count=9)) for _ in range(2))
    assert first == second


def test_earlier_calls_leave_no_trace(strategy: Strategy, history: tuple[Record, ...]) -> None:
    alone = strategy.propose(ask(9, history=history, count=3))
    strategy.propose(
        ask(
            5,
            predictions=predictions(*range(1, 6)),
            history=HISTORIES["measurements"],
            count=2,
            seed=1,
        )
    )
    assert strategy.propose(ask(9, history=history, count=3)) == alone


def test_arguments_are_not_changed(strategy: Strategy, history: tuple[Record, ...]) -> None:
    given_pool, given_predictions = pool(4), predictions(4, 3, np.nan, 1)
    before = [given_pool.row(i) for i in range(4)], given_predictions.step_s_C.copy()
    strategy.propose(
        Ask(
            pool=given_pool,
            predictions=given_predictions,
            history=history,
            pending=(trial(1),),
            count=4,
            seed=SEED,
        )
    )
    assert [given_pool.row(i) for i in range(4)] == before[0]
    assert np.array_equal(given_predictions.step_s_C, before[1], equal_nan=True)


def test_what_is_running_is_not_proposed(strategy: Strategy, history: tuple[Record, ...]) -> None:
    rows = strategy.propose(ask(4, history=history, pending=(trial(1), trial(3)), count=4))
    assert set(rows) == {0, 2}


def test_a_pool_that_runs_already_gives_nothing(strategy: Strategy) -> None:
    assert strategy.propose(ask(1, pending=(trial(0),))) == ()


def test_a_pool_of_one_gives_that_one(strategy: Strategy, history: tuple[Record, ...]) -> None:
    assert strategy.propose(ask(1, history=history)) == (0,)


@pytest.mark.parametrize("known", [(np.nan,) * 4, (1.0, np.nan, 2.0, np.nan)])
def test_predictions_may_be_unknown(
    strategy: Strategy, history: tuple[Record, ...], known: tuple[float, ...]
) -> None:
    rows = strategy.propose(ask(4, predictions=predictions(*known), history=history, count=4))
    assert sorted(rows) == [0, 1, 2, 3]


def test_rows_are_plain_integers(strategy: Strategy) -> None:
    assert {type(row) for row in strategy.propose(ask(4, count=4))} == {int}


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


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        ConfigError, match=r"tuner_type is 'modelbased'.*did you mean 'model_based'"
    ):
        load_strategy("modelbased")


@pytest.mark.parametrize("name", ["modelbased", "zzz", "random:x"])
def test_an_unknown_name_is_refused_with_all_that_are_known(name: str) -> None:
    with pytest.raises(ConfigError, match="known: gridsearch, model_based, optuna, random, xgb"):
        load_strategy(name)


@pytest.mark.parametrize("name", ALL)
def test_a_missing_xgboost_is_one_sentence_before_a_search(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ConfigError, match=r"needs XGBoost.*pip install xgboost-cpu\.$"):
        load_strategy(name)


def test_model_based_and_xgboost_are_the_same_tuner() -> None:
    assert STRATEGIES["model_based"] == STRATEGIES["xgboost"]


def test_tuners_of_others_are_not_offered_to_users() -> None:
    with pytest.raises(ConfigError, match="unknown"):
        load_strategy("deepspeed")


def test_an_unknown_name_is_said_with_where_it_was_given() -> None:
    with pytest.raises(ConfigError, match="--tuner is 'x'"):
        load_strategy("x", where="--tuner")


@pytest.mark.parametrize("name", ALL)
def test_history_of_other_stages_is_history(name: str) -> None:
    """Candidates, knobs and global batches that the pool does not have."""
    layout = layout_of("dp=8 tp=4 micro=3 zero=3")
    other = Candidate(layout=layout, extras=(("bucket_cap_mb", 25),))
    strange = replace(measure(100, 1.0), trial=replace(trial(100), candidate=other))
    assert len(load(name).propose(ask(5, history=(strange,), count=5))) == 5
