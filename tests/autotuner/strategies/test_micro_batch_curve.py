from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.space import OBJECTIVES, CandidateTable, Outcome
from autoconf_launch.autotuner.strategies import MicroBatchCurves
from autoconf_launch.autotuner.strategies.micro_batch_curve import (
    Bound,
    Tried,
    cost_of,
    speed_bounds,
)
from autoconf_launch.core import Candidate, FailureKind

from ..builders import trial_of
from ..conftest import candidate, failure_of, out_of_memory, record, steps_of

THROUGHPUT = OBJECTIVES["throughput"]
BATCH = 48
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)


def split(micro: int, stage: int = 0, batch: int = BATCH) -> Candidate:
    return candidate(stage, micro, batch // micro, ranks=1)


def curves(*stages: int) -> tuple[CandidateTable, MicroBatchCurves]:
    rows = [split(micro, stage) for stage in stages for micro in SIZES]
    table = CandidateTable.from_candidates(rows)
    return table, MicroBatchCurves(table, THROUGHPUT)


def tell(found: MicroBatchCurves, one: Candidate, outcome: float | Outcome) -> None:
    trial = trial_of(1, one)
    done = steps_of(trial, outcome) if isinstance(outcome, float) else outcome
    found.tell(record(trial, done))


def beyond(table: CandidateTable, found: MicroBatchCurves) -> list[tuple[int, int]]:
    layouts = [table.row(i).layout for i in np.flatnonzero(found.beyond_C).tolist()]
    return [(one.zero_stage, one.micro_batch) for one in layouts]


def rungs(table: CandidateTable, found: MicroBatchCurves, likely: int | None = None) -> list[int]:
    fits = None if likely is None else np.array(table["micro_batch"] <= likely)
    rows = found.next_rows(np.arange(len(table)), fits)
    return [int(table["micro_batch"][row]) for row in rows]


def test_only_outcomes_of_the_table_that_ran_bend_a_curve() -> None:
    table, found = curves(0)
    tell(found, split(8), 1.0)
    assert beyond(table, found) == []
    table, found = curves(0)
    for micro in (8, 12):
        tell(found, split(micro), failure_of(FailureKind.CRASHED))
    assert beyond(table, found) == []
    table, found = curves(0)
    tell(found, split(8, stage=3), 1.0)
    tell(found, split(12, stage=3), 1.0)
    assert beyond(table, found) == []


def test_micro_batches_are_beyond_saturation_once_throughput_is_flat() -> None:
    table, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(12), 0.999)
    assert {micro for _, micro in beyond(table, found)} >= {1, 2, 3, 4, 6, 16, 24, 48}
    table, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(12), 0.7)
    assert {micro for _, micro in beyond(table, found)} == {1, 2, 3, 4, 6}
    table, found = curves(0, 1)
    tell(found, split(8), 1.0)
    tell(found, split(12), 1.0)
    assert {stage for stage, _ in beyond(table, found)} == {0}


def test_curves_are_beyond_by_the_best_of_others_and_by_memory() -> None:
    table, found = curves(0, 1)
    tell(found, split(8, 1), 1.0)
    tell(found, split(12, 1), 0.9)
    assert (1, 24) not in beyond(table, found)
    tell(found, split(24, 0), 0.1)
    assert (1, 24) in beyond(table, found)
    table, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(12), 1.0)
    tell(found, split(16), out_of_memory())
    assert {micro for _, micro in beyond(table, found)}.isdisjoint({24, 48})
    table = CandidateTable.from_candidates([split(micro) for micro in SIZES if micro != 8])
    found = MicroBatchCurves(table, THROUGHPUT, (split(8),))
    tell(found, split(8), 1.0)
    tell(found, split(12), 1.0)
    assert len(found.beyond_C) == len(table)
    assert found.beyond_C.any()
    table, found = curves(0)
    tell(found, split(8), out_of_memory(free=False))
    tell(found, split(8), 1.0)
    assert rungs(table, found) == [16]


def test_where_the_batch_may_change_micro_batches_with_as_much_accumulation_are_compared() -> None:
    """Each micro-batch with the user's batch of 8 and with one near the maximum of 40."""
    rows = [split(m, batch=40) for m in (1, 2, 4, 8)] + [split(m, batch=8) for m in (1, 2, 4, 8)]
    table = CandidateTable.from_candidates(rows)
    found = MicroBatchCurves(table, THROUGHPUT)
    tell(found, rows[0], 40.0)
    tell(found, rows[1], 40.0)
    near_the_maximum = [bool(x) for x in found.beyond_C[:4]]
    assert near_the_maximum == [False, False, True, True]
    assert not found.beyond_C[4:].any()


def test_gains_of_closed_curves_are_as_unsure_as_their_trials() -> None:
    table, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(16), 1.0)
    next_one = int(np.flatnonzero(table["micro_batch"] == 24)[0])
    gains = found.gains()
    beyond = np.log2(24 / 16)
    assert found.beyond_C[next_one]
    assert gains.log_C[next_one] == pytest.approx(0.0)
    assert gains.doubt_C[next_one] == pytest.approx(np.sqrt((1 + beyond) ** 2 + beyond**2 + 1))
    assert gains.at_most_C(0.98)[next_one] > 0.1
    table, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(16), 1.0)
    row = int(np.flatnonzero(table["micro_batch"] == 24)[0])
    noisy = replace(PRIOR, between=2 * PRIOR.between)
    usual, more = (found.gains(noise).at_most_C(0.98)[row] for noise in (PRIOR, noisy))
    assert more == pytest.approx(2 * usual)
    _, found = curves(0)
    assert np.isinf(found.gains().at_most_C(0.98)).all()
    _, found = curves(0)
    tell(found, split(8), 1.0)
    tell(found, split(16), 0.9)
    some = np.array([3, 1])
    assert np.array_equal(found.gains().take(some).log_C, found.gain_C[some])


def test_curves_offer_the_best_first_and_wait_for_what_runs() -> None:
    table, found = curves(0, 1)
    for micro, step_s in ((8, 1.0), (12, 0.9), (16, 0.89)):
        tell(found, split(micro), step_s)
    stage_one = [row for row in found.next_rows(np.arange(len(table)), None) if row >= len(SIZES)]
    assert [int(table["micro_batch"][row]) for row in stage_one] == [16]
    table, found = curves(0, 1, 2)
    tell(found, split(4, stage=1), 1.0)
    first = int(found.next_rows(np.arange(len(table)), None)[0])
    assert int(table["zero_stage"][first]) == 1
    table, found = curves(0, 1)
    offered = found.next_rows(np.arange(1, len(table)), None, busy=[0])
    assert {int(table["zero_stage"][row]) for row in offered} == {1}
    table, found = curves(0)
    small = np.flatnonzero(table["micro_batch"] < 4)
    assert set(found.next_rows(small, None).tolist()) <= set(small.tolist())
    assert curves(0)[1].next_rows(np.zeros(0, np.int64), None).tolist() == []
    table, found = curves(0)
    assert rungs(table, found, likely=13) == [12]


@pytest.mark.parametrize("metric", ["throughput", "latency"])
def test_cost_is_infinite_where_memory_was_full(metric: str) -> None:
    trial = trial_of(1, split(1))
    cost_s = cost_of(record(trial, out_of_memory()), OBJECTIVES[metric])  # type: ignore[index]
    assert cost_s == np.inf


def test_bounds_of_a_curve_are_made_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[list[int]] = []

    def count(micros: list[int], tried: Sequence[Tried]) -> dict[int, Bound]:
        made.append(micros)
        return speed_bounds(micros, tried)

    monkeypatch.setattr(
        "autoconf_launch.autotuner.strategies.micro_batch_curve.speed_bounds", count
    )
    table, found = curves(0, 1)
    for micro in SIZES:
        tell(found, split(micro), 1.0)
    assert made == []
    assert beyond(table, found) == beyond(table, found)
    assert len(made) == 1


def test_what_was_forgotten_leaves_nothing() -> None:
    table, found = curves(0, 1)
    tell(found, split(8), 0.1)
    tell(found, split(12, 1), 1.0)
    found.forget()
    tell(found, split(4, 1), 1.0)
    _, fresh = curves(0, 1)
    tell(fresh, split(4, 1), 1.0)
    assert np.array_equal(found.gain_C, fresh.gain_C)
    assert np.array_equal(found.gains().doubt_C, fresh.gains().doubt_C)
    assert rungs(table, found) == rungs(table, fresh)
