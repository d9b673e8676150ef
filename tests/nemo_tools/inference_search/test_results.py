"""Tables of an inference search: every run has a row, in order, whatever became of it."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from autoconf_launch.autotuner.inference import InferencePoint
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import Failure, FailureKind, GenerationTask, Layout, MemoryUse
from autoconf_launch.nemo.report import (
    InferenceRun,
    SearchPoint,
    analysis_log,
    configs_csv,
    final_csv,
    nearest_run,
    order_runs,
    pareto_csv,
    prediction_line,
    recommend_runs,
    why_not_served,
)

NEMO = ["TP", "PP", "BS", "Latency [ms]", "Throughput per GPU [samples/sec/gpu]"]


def point(tensor: int, batch: int, predicted_s: float = 1.0) -> SearchPoint:
    layout = Layout(tensor_parallel=tensor, micro_batch=batch)
    predicted = InferencePoint(
        tensor_parallel=tensor,
        pipeline_parallel=1,
        batch=batch,
        ttft_s=0.1,
        token_s=0.1,
        latency_s=predicted_s,
        samples_per_s_per_gpu=1.0,
        peak_bytes=1.1e9,
        largest_batch=64,
    )
    return SearchPoint(
        name=f"m_tp{tensor}_pp1_bs{batch}",
        task=GenerationTask(layout=layout, input_len=60, output_len=21),
        predicted=predicted,
    )


def measurement(*step_s: float, batch: int) -> Measurement:
    return Measurement(
        step_s=step_s,
        samples_per_step=batch,
        world_size=1,
        memory=MemoryUse(free_before_bytes=0, peak_bytes=10**9, limit_bytes=0),
        phases=(("prefill", 0.2), ("decode", sum(step_s) / len(step_s) - 0.2)),
    )


def run(tensor: int, batch: int, outcome: Outcome, predicted_s: float = 1.0) -> InferenceRun:
    return InferenceRun(point=point(tensor, batch, predicted_s), outcome=outcome, bound_s=1.0)


LOST = FailedTrial(failure=Failure(kind=FailureKind.NO_STEPS, detail="latency.json is missing"))
RUNS = (
    run(1, 1, LOST),
    run(1, 2, measurement(0.5, 0.7, batch=2), 0.5),
    run(1, 16, measurement(3.0, batch=16), 2.0),
    run(1, 8, measurement(0.8, batch=8), 0.7),
    run(2, 4, measurement(0.4, batch=4), 0.3),
)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_run_has_a_row_with_its_figures_or_its_reason() -> None:
    """NVIDIA's columns come first; within the bound stand the most samples per GPU."""
    text = final_csv(RUNS)
    assert text.splitlines()[0].split(",")[:5] == NEMO
    table = rows_of(text)
    order = ("m_tp1_pp1_bs8", "m_tp2_pp1_bs4", "m_tp1_pp1_bs2", "m_tp1_pp1_bs16", "m_tp1_pp1_bs1")
    assert [row["Name"] for row in table] == list(order)
    lost, two = table[4], table[2]
    assert lost["Reason"] == "no_steps: latency.json is missing"
    assert lost["Latency [ms]"] == lost["Tokens/s"] == ""
    assert lost["Satisfies"] == "no"
    figures = {"Latency [ms]": 600, NEMO[-1]: 3.333, "TTFT [ms]": 200}
    figures |= {"Time per Token [ms]": 20, "p50 [ms]": 600, "Tokens/s": 70}
    assert {name: float(two[name]) for name in figures} == figures
    assert configs_csv([one.point for one in RUNS[:2]]) == "TP,PP,BS\n1,1,1\n1,1,2\n"


def test_the_bound_limits_what_is_recommended_and_nothing_else() -> None:
    assert [one.point.name for one in recommend_runs(RUNS, 2)] == [
        "m_tp1_pp1_bs8",
        "m_tp2_pp1_bs4",
    ]
    (late,) = [row for row in rows_of(final_csv(RUNS)) if row["BS"] == "16"]
    assert late["Reason"] == "latency above max_latency_ms = 1000"
    assert float(late["Latency [ms]"]) == 3000
    free = [InferenceRun(point=one.point, outcome=one.outcome) for one in RUNS]
    assert len(recommend_runs(free, 10)) == 4
    assert order_runs(free)[-1].bound_s == math.inf


def test_the_log_has_bignlp_s_fields_of_the_top() -> None:
    text = analysis_log(RUNS, 1)
    assert text.startswith("Top 1 of 5 points")
    for field in (
        *("model_name: m_tp1_pp1_bs8", "batch_size: 8", "concurrency: 1", "model_config_path"),
        *("backend_parameters: tensor_para_size=1", "dynamic_batch_sizes", "perf_throughput: 10"),
        *("satisfies_constraints: Yes", "perf_throughput_normalized", "perf_latency_p95: 800"),
    ):
        assert field in text, field
    assert "m_tp1_pp1_bs1: no_steps: latency.json is missing" in text


def test_the_front_has_no_point_that_another_beats() -> None:
    names = [row["Name"] for row in rows_of(pareto_csv(RUNS))]
    assert names == ["m_tp2_pp1_bs4", "m_tp1_pp1_bs8"]


def test_where_no_point_is_within_the_bound_the_nearest_is_known() -> None:
    late = [InferenceRun(point=one.point, outcome=one.outcome, bound_s=1e-3) for one in RUNS]
    assert recommend_runs(late, 10) == ()
    nearest = nearest_run(late)
    assert nearest is not None
    assert nearest.point.name == "m_tp2_pp1_bs4"
    said = "No point is within max_latency_ms = 1; the nearest is m_tp2_pp1_bs4 with 400 ms."
    assert why_not_served(late, Path("final")).startswith(said)
    assert nearest_run(late[:1]) is None


def test_the_predicted_order_is_beside_the_measured_one() -> None:
    line = prediction_line(RUNS)
    assert "rank correlation 1.00" in line
    assert "peak memory off by at most 10 %" in line
    assert prediction_line(RUNS[:2]) == ""
