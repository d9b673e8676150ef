from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost.compute import communicated_bytes, step_seconds
from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.cost.line import Line, fit
from autoconf_launch.autotuner.table import CandidateTable
from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    Grade,
    Layout,
    MicroBatchTiming,
    ModelSpec,
    Recompute,
)

FACTS = TrainingFacts(optimizer="AdamW")


def timed(*seconds: tuple[int, float]) -> tuple[MicroBatchTiming, ...]:
    return tuple(
        MicroBatchTiming(micro_batch=n, forward_backward_s=s, activation_bytes=0)
        for n, s in seconds
    )


# A floor of 1 s and 0.5 s for each sample.
MODEL = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(BlockSpec(name="model", parameters=100),),
    timings=timed((1, 1.5), (2, 2.0)),
    optimizer_step_s=0.8,
)


def table(**layout: Any) -> CandidateTable:
    return CandidateTable.from_candidates([Candidate(layout=Layout(**layout))])


def step_s(spec: ModelSpec = MODEL, **layout: Any) -> float:
    return float(step_seconds(table(**layout), spec, FACTS)[0])


def test_a_step_is_its_micro_batches_and_one_update() -> None:
    assert step_s(micro_batch=4, accumulation=3) == pytest.approx(3 * (1 + 4 * 0.5) + 0.8)


def test_sharded_state_makes_the_update_shorter() -> None:
    assert step_s(zero_stage=1, data_parallel=4) == pytest.approx(1.5 + 0.2)


def test_full_recomputation_costs_a_forward_pass() -> None:
    assert step_s(recompute=Recompute.FULL) == pytest.approx(1.5 * 4 / 3 + 0.8)


def test_without_timings_nothing_is_said() -> None:
    assert np.isnan(step_s(replace(MODEL, timings=())))


def test_timings_without_seconds_are_none() -> None:
    assert np.isnan(step_s(replace(MODEL, timings=timed((1, 0.0), (2, 0.0)))))


def test_layouts_without_a_formula_have_no_seconds() -> None:
    assert np.isnan(step_s(tensor_parallel=2))


@pytest.mark.parametrize(
    ("stage", "sent"),
    # 100 weights of 4 bytes on 4 ranks, two micro-batches: 400 x 3/4 = 300 for one pass.
    [(0, 2 * 300), (1, 3 * 300), (2, 2 * 2 * 300), (3, 2 * 3 * 300)],
)
def test_each_stage_sends_its_passes_over_the_weights(stage: int, sent: int) -> None:
    rows = table(zero_stage=stage, data_parallel=4, accumulation=2)
    assert communicated_bytes(rows, MODEL, FACTS).tolist() == [sent]


def test_one_rank_sends_nothing() -> None:
    assert communicated_bytes(table(), MODEL, FACTS).tolist() == [0]


def test_a_known_bandwidth_adds_the_seconds_of_communication() -> None:
    rows = table(data_parallel=4)
    alone, sending = (
        step_seconds(rows, MODEL, FACTS, bandwidth_bytes_per_s=bandwidth)[0]
        for bandwidth in (None, 100.0)
    )
    assert sending - alone == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(1, 3.0), (2, 5.0)], Line(1.0, 2.0)),
        ([(4, 8.0)], Line(0.0, 2.0)),
        ([(1, 5.0), (2, 3.0)], Line(4.0, 0.0)),
        ([(1, 1.0), (2, 3.0)], Line(0.0, 1.4)),
    ],
)
def test_a_line_keeps_both_of_its_parts_from_below_zero(
    points: list[tuple[int, float]], line: Line
) -> None:
    found = fit(points)
    assert (found.fixed, found.each) == pytest.approx((line.fixed, line.each))
