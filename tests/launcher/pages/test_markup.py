"""Printed answers as HTML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from autoconf_launch.launcher.pages import text_html
from autoconf_launch.launcher.report import table_of

ROWS = [["1", "ZeRO 1 · micro 16", "12.5"], ["10", "<b>", ""]]
HEADERS = ["#", "layout", "step s"]
ALIGN = ["right", "left", "right"]


def tree(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{text_html(text)}</div>")


def cells(root: ElementTree.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


@pytest.mark.parametrize("markdown", [False, True])
def test_a_table_keeps_its_cells(markdown: bool) -> None:
    assert cells(tree(table_of(ROWS, HEADERS, ALIGN, markdown=markdown))) == [HEADERS, *ROWS]


def test_columns_of_numbers_end_at_their_right_and_only_long_cells_are_broken() -> None:
    styles = [cell.get("style", "") for cell in tree(table_of(ROWS, HEADERS, ALIGN)).iter("th")]
    assert ["text-align: right" in style for style in styles] == [True, False, True]
    table = table_of([["dp=16", "dp=16 zero=2 micro-batch=1"]], ["a", "b"], ["left", "left"])
    styles = [cell.get("style", "") for cell in tree(table).iter("td")]
    assert ["nowrap" in style for style in styles] == [True, False]


def test_lines_around_a_table_stay_as_they_are() -> None:
    text = f"before <i>\n{table_of(ROWS, HEADERS, ALIGN)}\nand a sentence after it\n\nthe end"
    root = tree(text)
    assert [part.tag for part in root] == ["pre", "table", "pre", "pre"]
    assert [part.text for part in root.iter("pre")] == [
        "before <i>",
        "and a sentence after it",
        "the end",
    ]


def test_no_text_is_markup() -> None:
    evil = "<script>alert(1)</script>"
    text = f"{evil}\n\n{table_of([[evil, evil]], [evil, 'x'], ['left', 'left'])}"
    assert "<script" not in text_html(text)
    assert "".join(tree(text).itertext()).count(evil) == 4


def test_a_drawing_is_not_a_table() -> None:
    drawing = "A step:\nideal  3.4 s  #####\nstep   7.5 s  ====="
    assert text_html(drawing) == f'<pre style="white-space: pre-wrap">{drawing}</pre>'
