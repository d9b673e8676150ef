from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.nemo.report.outcome import failed_runs, fastest_first

from .found import OUT_OF_MEMORY, outcome, run


def test_days_money_and_teraflops_follow_from_the_measured_speed() -> None:
    (free,) = fastest_first(outcome(run("a", 5.0)))
    (one,) = fastest_first(outcome(run("a", 5.0), usd_per_gpu_hour=2.5))
    assert one.days == pytest.approx(300e9 / (2048 * 2048) * 5.0 / 86400)
    assert (free.usd, one.usd) == (None, pytest.approx(one.days * 24 * 128 * 2.5))
    assert round(one.model_tflops_per_gpu, 2) == 214.07
    assert round(one.model_tflops, 2) == 27401.59


def test_runs_of_other_batches_are_ranked_by_the_time_of_a_sample() -> None:
    ranked = fastest_first(outcome(run("half", 2.0, global_batch=1024), run("whole", 3.0)))
    assert [one.run.name for one in ranked] == ["whole", "half"]


@given(st.lists(st.floats(1e-3, 100), max_size=20))
def test_the_fastest_comes_first_and_equal_ones_keep_their_order(times: list[float]) -> None:
    runs = [run(f"{number:03}", step_s) for number, step_s in enumerate(times)]
    found = [(one.step_s, one.run.name) for one in fastest_first(outcome(*runs))]
    assert found == sorted(found)


@pytest.mark.parametrize(("spread_s", "expected"), [(0.5, True), (0.01, False)])
def test_a_run_within_the_noise_of_the_fastest_is_a_tie(spread_s: float, expected: bool) -> None:
    runs = (run("a", 5.0, step_spread_s=spread_s), run("b", 5.1, step_spread_s=spread_s))
    assert [one.is_tie for one in fastest_first(outcome(*runs))] == [False, expected]


def test_a_run_without_a_time_has_failed_with_a_reason() -> None:
    runs = (run("silent"), run("full", failure=OUT_OF_MEMORY), run("good", 1.0))
    found = failed_runs(outcome(*runs))
    assert [one.name for one, _ in found] == ["silent", "full"]
    assert all(reason.detail for _, reason in found)
