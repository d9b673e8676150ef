from __future__ import annotations

import pytest

from autoconf_launch.autotuner.space import OBJECTIVES, Record
from autoconf_launch.autotuner.strategies import Ask, ModelBased, PastTime, load_strategy, times_of
from autoconf_launch.autotuner.strategies.past import as_records
from autoconf_launch.core import Candidate, Layout

from ..builders import launch, measurement, prediction_table, table, trial_of

MICROS = (2, 4, 8, 16)
POOL = table(*(f"micro={micro}" for micro in MICROS))
EQUAL = prediction_table(MICROS, band=0.3)
PAST = tuple(
    PastTime(candidate=Candidate(layout=Layout(micro_batch=micro)), step_s=step_s)
    for micro, step_s in ((1, 3.0), (2, 6.0), (4, 2.0), (8, 24.0), (16, 48.0), (64, 1.0))
)
"""Per sample 3 s, but for micro-batch 4, where it is half a second."""


def now(number: int, micro: int, step_s: float) -> Record:
    trial = trial_of(number, f"micro={micro}", f"m{micro}")
    return launch(trial, measurement(step_s, samples=micro), float(micro), wall_s=0.0, band=0.3)


def test_earlier_times_are_scaled_to_what_was_measured_then_and_now() -> None:
    found = as_records(PAST, POOL, EQUAL, (now(0, 1, 1.5),))
    times = {r.trial.candidate.layout.micro_batch: r.outcome.mean_step_s for r in found}  # type: ignore[union-attr]
    assert times == {2: 3.0, 4: 1.0, 8: 12.0, 16: 24.0}

    def took(study: str, own_s: float, step_s: float) -> tuple[PastTime, ...]:
        times = ((1, own_s), (4, step_s))
        return tuple(
            PastTime(candidate=Candidate(layout=Layout(micro_batch=m)), step_s=s, study=study)
            for m, s in times
        )

    past = (*took("quiet", 1.0, 2.0), *took("busy", 3.0, 6.6), *took("one trial busy", 1.0, 9.0))
    (only,) = as_records(past, POOL, EQUAL, (now(0, 1, 0.5),))
    assert only.measurement is not None
    assert only.measurement.mean_step_s == pytest.approx(1.1)
    assert as_records(PAST, POOL, EQUAL, (now(0, 3, 1.5),)) == ()
    found = as_records(PAST, POOL, EQUAL, (now(0, 1, 1.5), now(1, 4, 9.0)))
    assert 4 not in {record.trial.candidate.layout.micro_batch for record in found}
    assert times_of((now(0, 2, 4.0),)) == (
        PastTime(candidate=Candidate(layout=Layout(micro_batch=2)), step_s=4.0),
    )


@pytest.mark.parametrize("tuner", ["model_based", "xgboost"])
def test_what_was_the_fastest_before_is_tried_first(tuner: str) -> None:
    strategy = load_strategy(tuner, OBJECTIVES["throughput"])
    assert isinstance(strategy, ModelBased)
    history = (now(0, 1, 1.5),)
    first = strategy.with_past(PAST).propose(Ask(pool=POOL, predictions=EQUAL, history=history))
    assert MICROS[first[0]] == 4
    assert strategy.propose(Ask(pool=POOL, predictions=EQUAL, history=history)) != first


def test_the_same_past_gives_the_same_proposals() -> None:
    strategy = load_strategy("model_based", OBJECTIVES["throughput"])
    assert isinstance(strategy, ModelBased)
    history = (now(0, 1, 1.5), now(1, 16, 20.0))
    found = {
        strategy.with_past(PAST).propose(
            Ask(pool=POOL, predictions=EQUAL, history=history, count=3)
        )
        for _ in range(3)
    }
    assert len(found) == 1
