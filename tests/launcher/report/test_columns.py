"""Columns of plans in all forms."""

from __future__ import annotations

import re
from functools import cache
from io import StringIO

import pytest

from autoconf_launch.launcher.estimates import PlanAnswer, parse_plan, plan_answer
from autoconf_launch.launcher.pages import page_html, plan_page
from autoconf_launch.launcher.report import Column, columns, plan_text, rows_header
from autoconf_launch.launcher.report.columns import (
    PLAN_COLUMNS,
    RankedRows,
    ranking_text,
    row_documents,
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
    header = rows_header(PLAN_COLUMNS, answer)
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
    assert "context_parallel" in rows_header(PLAN_COLUMNS, answer)
