"""A tune as one HTML file: what is in it, and what a real browser makes of it."""

from __future__ import annotations

import html
import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.cli import OK, USAGE, main

from ..report.fixed import RECORDS, failure_of, finish, record, trial, write_folder
from .browser import figures, needs_chromium, open_page, title_of

EVIL = "</script><script>alert(1)</script><img src=https://evil.example/x.png onerror=alert(1)>"
SORT = """
const button = document.querySelectorAll("table:last-of-type th button")[3];
button.click();
const rows = [...document.querySelectorAll("tbody tr")];
document.title = rows.map(row => row.cells[3].textContent).join();
"""


PARTS = {"samples": 0.15, "launch": 0.03, "recompute": 0.02, "communication": 0.04, "update": 0.01}


def predicted_by_part(one: Record) -> Record:
    """The record with parts of its predicted step and memory."""
    assert one.prediction is not None
    memory = (("parameters", 150_000_000), ("activations", 50_000_000))
    prediction = replace(one.prediction, parts=tuple(PARTS.items()), memory_parts=memory)
    return replace(one, prediction=prediction)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a tune in which a trial failed with words that would be markup."""
    folder = tmp_path_factory.mktemp("tune")
    evil = record(trial(5, 1, 16), failure_of(FailureKind.CRASHED, EVIL))
    write_folder(folder / "results", [predicted_by_part(one) for one in (*RECORDS, evil)])
    logs = folder / "results" / RECORDS[0].trial.name
    logs.mkdir()
    (logs / "cmd.txt").write_text("python train.py\n")
    (logs / "stdout.log").write_text(f"epoch 1\n{EVIL}\n")
    (folder / "results" / "env.json").write_text(json.dumps({"argv": [EVIL]}))
    finish(folder / "results", len(RECORDS) + 1)
    path = folder / "page.html"
    assert main(["show", str(folder / "results"), "--html", str(path)]) == OK
    return path


class Tags(HTMLParser):
    """Tags of a page and the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_it_has_the_answer_every_trial_and_the_end_of_its_log(page: Path) -> None:
    text = html.unescape(page.read_text())
    assert "| the summary |" in text
    assert all(one.trial.name in text for one in RECORDS)
    assert "python train.py" in text
    assert "epoch 1" in text
    assert "out_of_memory: the device is full" in text


def test_charts_are_of_the_measured_trials(page: Path) -> None:
    throughput, micro_batches, times, peaks, memory, predicted = figures(page)
    speeds, crosses = throughput["data"]
    assert speeds["x"] == pytest.approx([3.5 / 60, 7.0 / 60, 14.0 / 60])
    assert speeds["y"] == pytest.approx([100.0, 200.0, 500.0])
    assert len(speeds["error_y"]["array"]) == 3
    failures = [text.partition("<br>")[0] for text in crosses["hovertext"]]
    assert failures == ["out_of_memory", "crashed", "crashed"]
    stages = micro_batches["data"]
    assert [(line["name"], line["x"]) for line in stages] == [
        ("ZeRO 0", [1, 8]),
        ("ZeRO 1", [8]),
    ]
    assert times["data"][0]["x"] == [0.25] * 3
    assert peaks["data"][0]["x"] == pytest.approx([200e6 / 2**30] * 3)
    parts = {trace["name"]: trace["y"] for trace in memory["data"]}
    assert parts["parameters"] == pytest.approx([150e6 / 2**30] * 3)
    assert parts["measured peak"] == pytest.approx([250e6 / 2**30] * 3)
    assert predicted["data"][0]["y"] == pytest.approx([*(1e3 * s for s in PARTS.values()), 0.0])


def test_no_text_of_a_trial_is_markup_and_no_address_is_asked(page: Path) -> None:
    text = page.read_text()
    found = Tags(text)
    assert EVIL not in text
    assert "default-src 'none'" in text
    assert not found.tags & {"img", "link", "iframe", "object"}
    assert not found.attributes & {"src", "href", "onerror"}


@needs_chromium
def test_a_browser_draws_and_sorts_it_without_an_error_or_a_request(
    page: Path, tmp_path: Path
) -> None:
    dom = open_page(page, tmp_path, script=SORT)
    assert dom.count('class="main-svg"') >= 6
    assert title_of(dom) == "64.0 ms,0.160 s,0.320 s,-,-,-"


def test_without_the_extra_it_says_what_to_install(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert main(["show", str(page.parent / "results"), "--html", "new.html"]) == USAGE
    assert capsys.readouterr().err == (
        "autoconf-launch: HTML pages need plotly, which is not installed: "
        "pip install 'autoconf-launch[html]'.\n"
    )


@pytest.mark.parametrize("records", [(), RECORDS[:1], RECORDS[2:3]], ids=["none", "one", "failed"])
def test_a_tune_of_little_has_a_page(records: tuple[Record, ...], tmp_path: Path) -> None:
    write_folder(tmp_path / "results", records)
    assert main(["show", str(tmp_path / "results"), "--html", str(tmp_path / "page.html")]) == OK
    assert "Every launch" in (tmp_path / "page.html").read_text()


def test_files_that_nest_without_end_are_skipped_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path / "results")
    (folder / "env.json").write_text("[" * 100_000)
    assert main(["show", str(folder), "--html", str(tmp_path / "page.html")]) == OK
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write("[" * 100_000 + "\n")
    capsys.readouterr()
    assert main(["show", str(folder), "--html", str(tmp_path / "other.html")]) == USAGE
    assert "cannot be read" in capsys.readouterr().err
