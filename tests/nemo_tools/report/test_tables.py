"""Tables of a search and their figures."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.report import csv_rows
from autoconf_launch.nemo.report import (
    NEMO1_FAILED,
    NEMO1_SUMMARY,
    NEMO2_FAILED,
    NEMO2_SUMMARY,
    Columns,
    config_name,
    failed_csv,
    round_figure,
    summary_csv,
    summary_lines,
)
from autoconf_launch.nemo.report.outcome import failed_runs, fastest_first

from .found import GPT_5B, OUT_OF_MEMORY, outcome, point, run

_SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "recommend" / "csv_schemas.json").read_text()
)
_NAMES = {
    "nemo1_training_final_summary": NEMO1_SUMMARY,
    "nemo1_training_failed_jobs": NEMO1_FAILED,
    "nemo2_final_summary": NEMO2_SUMMARY,
    "nemo2_failed_jobs": NEMO2_FAILED,
}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(("schema", "columns"), _NAMES.items())
def test_the_columns_are_those_of_nvidia_spelled_correctly(schema: str, columns: Columns) -> None:
    wanted = [name.replace("Bathes", "Batches") for name in _SCHEMAS[schema]["columns"]]
    assert next(csv_rows(columns, ()))[: len(wanted)] == wanted
    assert {"Act Ckpt Layers", "GBS"} <= set(next(csv_rows(columns, ())))


def test_every_table_has_a_column_for_each_searched_size() -> None:
    for columns in _NAMES.values():
        assert {"TP", "PP", "CP", "EP", "MBS", "Act Ckpt Layers", "GBS"} <= set(
            next(csv_rows(columns, ()))
        )


@pytest.mark.parametrize("columns", _NAMES.values(), ids=_NAMES)
def test_every_degree_stands_under_its_own_heading(columns: Columns) -> None:
    is_failed = columns in (NEMO1_FAILED, NEMO2_FAILED)
    how: dict[str, Any] = {"failure": OUT_OF_MEMORY} if is_failed else {"step_s": 5.0}
    found = outcome(run("a", point=point(2, 3, 5, 7, micro_batch=11), **how))
    (row,) = table((failed_csv if is_failed else summary_csv)(found, columns))
    assert [row[name] for name in ("TP", "PP", "CP", "EP", "MBS")] == ["2", "3", "5", "7", "11"]


def test_speed_and_days_are_in_the_summary() -> None:
    runs = (run("a", 38.0),)
    (row,) = table(summary_csv(outcome(*runs, usd_per_gpu_hour=1.0), NEMO1_SUMMARY))
    assert (row["Time per Step"], row["Samples per Second"]) == ("38.0", "53.89")
    assert float(row["Days to Train"]) == pytest.approx(31.46, abs=0.01)
    assert float(row["Cost [USD]"]) == pytest.approx(31.458 * 24 * 128, rel=1e-3)
    t5 = replace(GPT_5B, family=Family("t5"), layers=12)
    (row,) = table(summary_csv(outcome(*runs, shape=t5), NEMO1_SUMMARY))
    assert row["Num Layers"] == "24", "both stacks"
    assert (row["Cost [USD]"], row["Act Ckpt Layers"], row["Loss"]) == ("", "", "")


def test_what_was_extrapolated_has_no_steps_and_says_from_what() -> None:
    made = {"steps": 13, "extrapolated_from": 15, "whole_micro_batches": 128}
    long, whole = table(
        summary_csv(outcome(run("a", 38.0, **made), run("b", 39.0)), NEMO1_SUMMARY)
    )
    assert (long["Steps"], long["Extrapolated from"]) == ("0", "15 of 128 micro-batches")
    assert (whole["Steps"], whole["Extrapolated from"]) == ("45", "")


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failed_run_is_in_the_table_of_failures_alone_with_its_reason(
    kind: FailureKind,
) -> None:
    failure = Failure(kind=kind, detail='Traceback, "quoted":\n  at line 3')
    found = outcome(run("a", 5.0), run("b", failure=failure))
    for columns in (NEMO1_FAILED, NEMO2_FAILED):
        (row,) = table(failed_csv(found, columns))
        assert row["Error Message"] == f'{kind.value}: Traceback, "quoted": at line 3'
    assert len(table(summary_csv(found, NEMO2_SUMMARY))) == 1


def test_a_name_has_the_knobs_that_nvidia_s_does_not() -> None:
    one = run("a", point=point(recompute_layers=2), knobs=(("zero_stage", 1),))
    assert config_name(one) == (
        "tp1_pp1_cp1_ep1_mbs4_act_2_num_mbs_act_None_act_per_pipe_None_zero_stage_1"
    )


@pytest.mark.parametrize(
    ("value", "expected"), [(214.0748, 214.07), (0.001234567, 0.001235), (0.0, 0.0)]
)
def test_numbers_keep_two_decimals_or_four_digits(value: float, expected: float) -> None:
    assert round_figure(value) == expected


@given(st.floats(1e-9, 1e12))
def test_no_number_is_rounded_to_nothing(value: float) -> None:
    assert round_figure(value) == pytest.approx(value, rel=5e-3)


def test_a_winner_without_room_is_marked_with_what_has_room() -> None:
    full = run("full", 1.0, peak_bytes=79, memory_bytes=80, point=point(recompute_layers=2))
    roomy = run("roomy", 1.2, peak_bytes=70, memory_bytes=80)
    said = list(summary_lines(outcome(full, roomy), {"full", "roomy"}))
    assert said[-1] == (
        "It uses 99 % of memory and may run out: take roomy (1.2000s), or recompute 3 layers of "
        "it."
    )
    alone = list(summary_lines(outcome(full), {"full"}))
    assert alone[-1].endswith("may run out: recompute 3 layers of it.")
    assert "may run out" not in "".join(summary_lines(outcome(roomy), {"roomy"}))


def test_days_money_and_teraflops_follow_from_the_measured_speed() -> None:
    (free,) = fastest_first(outcome(run("a", 5.0)))
    (one,) = fastest_first(outcome(run("a", 5.0), usd_per_gpu_hour=2.5))
    assert one.days == pytest.approx(300e9 / (2048 * 2048) * 5.0 / 86400)
    assert free.usd is None
    assert one.usd == pytest.approx(one.days * 24 * 128 * 2.5)
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
