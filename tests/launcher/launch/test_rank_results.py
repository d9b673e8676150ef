from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.space import Measurement
from autoconf_launch.core import CutStep, Mode, RankResult, RankTask
from autoconf_launch.launcher.launch.rank_results import measure

TASK = RankTask(mode=Mode.MEASURE, folder="nowhere", attempt="now", cut_s=9.0)
CUT = CutStep(whole=10, micro_s=(5.0, 1.0, 3.0), rest_s=4.0, samples=20, loss=2.0)

ONCE = replace(CUT, micro_s=(5.0,))


def result(rank: int, cut: CutStep | None) -> RankResult:
    return RankResult(rank=rank, world_size=2, attempt="now", ended_unix_s=0.0, cut=cut)


def extrapolate(*cuts: CutStep | None) -> Measurement | None:
    return measure(TASK, tuple(result(*pair) for pair in enumerate(cuts)), strict=True)


def measure_cuts(*cuts: CutStep) -> Measurement:
    found = extrapolate(*cuts)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("first", "second", "facts"),
    [
        # each micro-batch after the first is one estimate of the step
        (CUT, CUT, {"step_s": (9 * 1.0 + 4.0, 9 * 3.0 + 4.0), "extrapolated_from": 4}),
        (ONCE, ONCE, {"step_s": (9 * 5.0 + 4.0,)}),
        (CUT, CUT, {"samples_per_step": 40, "losses": (2.0,)}),
        (
            CUT,  # the slowest rank counts, and its wait for nobody
            replace(CUT, micro_s=(5.0, 2.0, 4.0), rest_s=3.0),
            {"step_s": (9 * 2.0 + 3.0, 9 * 4.0 + 3.0)},
        ),
        (CUT, replace(CUT, loss=3.0), {"losses": (2.5,)}),
    ],
)
def test_a_step_is_extrapolated_from_the_micro_batches_of_all_ranks(
    first: CutStep, second: CutStep, facts: dict[str, object]
) -> None:
    measured = measure_cuts(first, second)
    assert {name: getattr(measured, name) for name in facts} == facts


def test_a_rank_without_its_micro_batches_is_no_measurement() -> None:
    assert extrapolate(CUT, None) is None


@given(micro_s=st.floats(0.01, 1e3), rest_s=st.floats(0.01, 1e3), whole=st.integers(4, 1000))
def test_equal_micro_batches_give_the_step_that_they_would_make(
    micro_s: float, rest_s: float, whole: int
) -> None:
    cut = CutStep(whole=whole, micro_s=(micro_s,) * 3, rest_s=rest_s, samples=whole)
    made = measure_cuts(cut)
    assert made.mean_step_s == pytest.approx((whole - 1) * micro_s + rest_s)
    assert made.throughput_per_s == pytest.approx(whole / made.mean_step_s)
