"""Columns of plans in all forms, and the parts of a step."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from io import StringIO

import pytest

from autoconf_launch.autotuner.playoff import SoakReport
from autoconf_launch.autotuner.space import Measurement, Prediction, Record, Trial
from autoconf_launch.core import Candidate, Layout
from autoconf_launch.launcher.estimates import PlanAnswer, parse_plan, plan_answer
from autoconf_launch.launcher.pages import page_html, plan_page
from autoconf_launch.launcher.report import Column, columns, csv_rows, plan_text, step_waterfall
from autoconf_launch.launcher.report.columns import (
    PLAN_COLUMNS,
    RankedRows,
    ranking_text,
    row_documents,
    step_parts_document,
    step_parts_text,
    waterfall_text,
    write_blocks,
)

WORK = ("--model", "gpt2-xl", "--seq", "1024", "--global-batch", "64", "--top", "3", "--cluster")


@cache
def answer_on(cluster: str) -> tuple[PlanAnswer, RankedRows]:
    answer = plan_answer(parse_plan([*WORK, cluster]))
    return answer, answer.plan.best


CLUSTERS = pytest.mark.parametrize("cluster", ["8xA100-SXM-80GB", "8xA100-SXM-40GB+4xA10G-24GB"])


@CLUSTERS
def test_csv_has_the_names_of_the_document(cluster: str) -> None:
    answer, rows = answer_on(cluster)
    document = row_documents(answer, rows)[0]
    names = document.keys() - {"candidate", "parts", "stages"}
    names |= document["candidate"].keys() | document["parts"].keys()
    names |= {f"stage_{name}" for stage in document.get("stages", ()) for name in stage}
    header = next(csv_rows(PLAN_COLUMNS, (), answer))
    assert len(header) == len({*header})
    assert {*header} == names


@CLUSTERS
def test_a_column_of_the_list_is_in_all_forms(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def world(answer: PlanAnswer, rows: RankedRows) -> list[int]:
        return [row.layout.world_size for row in rows]

    added = Column("world", world, "ranks")
    monkeypatch.setattr(columns, "PLAN_COLUMNS", (*PLAN_COLUMNS, added))
    answer, rows = answer_on(cluster)
    page = page_html(plan_page([answer], plan_text(answer)))
    assert re.search(r"<th [^>]*>ranks</th>", page)
    file = StringIO()
    write_blocks(file, [("best", answer, rows)])
    header, first, *_ = file.getvalue().splitlines()
    assert header.endswith(",world,block")
    assert first.endswith(f",{rows[0].layout.world_size},best")
    assert row_documents(answer, rows)[0]["world"] == rows[0].layout.world_size
    assert ranking_text(answer, 1, rows).splitlines()[0].endswith("  ranks")


def test_a_column_of_plain_cells_is_left_out_of_the_text_only() -> None:
    answer, rows = answer_on("8xA100-SXM-80GB")
    assert {row.layout.context_parallel for row in rows} == {1}
    assert " cp " not in ranking_text(answer, 1, rows)
    assert "context_parallel" in next(csv_rows(PLAN_COLUMNS, (), answer))


BARS = (
    ("ideal", 4.0),
    ("kernels", 2.0),
    ("recompute", 0.0),
    ("launch", 0.001),
    ("bubble", 1.0),
    ("communication", 1.0),
    ("update", 0.0),
)
GOLDEN = """\
ideal                          4 s   50 %  ########################
kernel efficiency              2 s   25 %                          ############
launch floor               0.001 s    0 %                                      |
bubble                         1 s   12 %                                      ######
exposed communication          1 s   12 %                                            ######
recompute                      0 s    0 %
update                         0 s    0 %
step                       8.001 s  100 %  ================================================"""


def test_bars_go_on_where_the_one_before_ended() -> None:
    assert [line.rstrip() for line in waterfall_text(step_waterfall(BARS)).splitlines()] == (
        GOLDEN.splitlines()
    )


def test_short_steps_are_drawn_in_milliseconds() -> None:
    text = waterfall_text(step_waterfall((("ideal", 0.002), ("update", 0.0000157))))
    assert [line.split("%")[0].split()[-3:-1] for line in text.splitlines()] == [
        ["2", "ms"],
        ["0.0157", "ms"],
        ["2.016", "ms"],
    ]


PARTS = {"samples": 6.0, "launch": 1.0, "recompute": 0.0, "communication": 2.0, "update": 1.0}
RECORD = Record(
    trial=Trial(
        number=1, name="z0_gas1_tmbspg2", candidate=Candidate(layout=Layout()), space="z0"
    ),
    outcome=Measurement(step_s=(11.0,), samples_per_step=2, world_size=1),
    wall_s=20.0,
    prediction=Prediction(
        peak_bytes=None, step_s=10.0, band=0.3, how="by hand", parts=tuple(PARTS.items())
    ),
)


def line_names(record: Record, soak: SoakReport | None = None) -> list[str]:
    """The lines by what stands before their numbers."""
    text = step_parts_text(record, soak) or ""
    return [line.split("  ")[0] for line in text.splitlines()]


def test_the_measured_step_stands_below_the_predicted_parts() -> None:
    parts = ["samples", "launch floor", "recompute", "exposed communication", "update"]
    assert line_names(RECORD)[1:-2] == parts
    assert line_names(RECORD)[-1] == "measured 11 s, 10 % more"
    assert step_parts_text(replace(RECORD, prediction=None)) is None
    assert RECORD.prediction is not None
    more = (*PARTS.items(), ("bubble", 3.0))
    piped = replace(RECORD, prediction=replace(RECORD.prediction, parts=more, step_s=13.0))
    assert line_names(piped)[3:6] == ["recompute", "bubble", "exposed communication"]


def test_the_document_has_the_parts_by_name() -> None:
    assert step_parts_document(RECORD) == {
        "predicted_step_s": 10.0,
        "predicted_parts_s": PARTS,
        "measured_step_s": 11.0,
        "measured_parts_s": {},
    }


def soak_of(**phases: float) -> SoakReport:
    return SoakReport(
        steps=9,
        memory_share=None,
        refused=(),
        passed=True,
        phases=tuple(phases.items()),
        step_s=10.0,
    )


@pytest.mark.parametrize(
    ("phases", "exchange", "between_s"),
    [
        ({"exchange": 1.0}, ["exposed communication"], 2.0),
        ({"exchange": 0.0}, [], 3.0),
        ({}, [], 3.0),
    ],
)
def test_the_phases_of_the_soak_stand_below_the_prediction(
    phases: dict[str, float], exchange: list[str], between_s: float
) -> None:
    """Time outside all phases is between the steps; no exchange is drawn without a time."""
    soak = soak_of(forward=2.0, backward=4.0, **phases, update=1.0)
    lines = line_names(RECORD, soak)[-5 - len(exchange) :]
    assert lines == ["forward", "backward", *exchange, "update", "between steps", "step"]
    document = step_parts_document(RECORD, soak) or {}
    assert document["measured_parts_s"]["between"] == between_s
