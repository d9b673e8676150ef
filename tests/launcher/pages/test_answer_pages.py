"""Answers of plan and recommend as one HTML file, by the command and from Python."""

from __future__ import annotations

import html
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from autoconf_launch import plan, recommend
from autoconf_launch.launcher.cli import OK, USAGE, main
from autoconf_launch.launcher.pages import (
    Chart,
    HtmlPage,
    page_html,
    plan_page,
    write_page,
)
from autoconf_launch.launcher.questions import ShownPlan

from .browser import figures, needs_chromium, open_page, title_of

PLAN = (
    *("plan", "--model", "gpt2-xl", "--cluster", "8xA100-SXM-80GB"),
    *("--seq", "1024", "--global-batch", "64", "--top", "4"),
)
RECOMMEND = (
    *("recommend", "--family", "llama", "--cluster", "4x8xH100-SXM-80GB"),
    *("--tokens", "300B", "--max-days", "7"),
)
SORT = """
const header = [...document.querySelectorAll("th button")].find(b => b.textContent === "step");
header.click();
header.click();
const table = header.closest("table");
const column = header.parentNode.cellIndex;
document.title = [...table.tBodies[0].rows].map(row => row.cells[column].textContent).join();
"""


def planned_on(cluster: str, model: str = "gpt2-xl", tokens: int | None = None) -> ShownPlan:
    return plan(model=model, cluster=cluster, seq=1024, global_batch=64, tokens=tokens, top=1)


def page_of(folder: Path, *command: str) -> tuple[Path, str]:
    """The page in place of an older one, and what is printed."""
    path, printed = folder / "page.html", StringIO()
    path.write_text("an older page")
    with redirect_stdout(printed):
        assert main([*command, "--html", str(path)]) == OK
    assert "<html" in path.read_text()
    return path, printed.getvalue()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, printed = page_of(tmp_path_factory.mktemp("plan"), *PLAN, "--json")
    assert json.loads(printed)["best"], "only the document is printed"
    return path


@pytest.fixture(scope="module")
def recommended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, printed = page_of(tmp_path_factory.mktemp("recommend"), *RECOMMEND)
    assert printed.endswith(f"\nWritten: {path}\n")
    return path


def test_a_plan_has_its_text_and_each_layouts_step_and_memory(planned: Path) -> None:
    answer = plan(model="gpt2-xl", cluster="8xA100-SXM-80GB", seq=1024, global_batch=64, top=4)
    steps, fall, memory = figures(planned)
    drawn = [sum(heights) for heights in zip(*(part["y"] for part in steps["data"]), strict=True)]
    assert drawn == pytest.approx([one.step_s for one in answer.plan.best])
    assert sum(fall["data"][0]["y"]) == pytest.approx(1e3 * answer.plan.best[0].step_s)
    limit = memory["data"][-1]
    bars = [part["y"] for part in memory["data"] if part["type"] == "bar"]
    peaks = [one.peak_bytes / 2**30 for one in answer.plan.best]
    assert [sum(sizes) for sizes in zip(*bars, strict=True)] == pytest.approx(peaks, rel=0.01)
    assert limit["name"] != "limit" or limit["y"][0] > max(peaks)
    assert "90 % error bands" in html.unescape(planned.read_text())


@needs_chromium
def test_a_browser_draws_and_sorts_a_plan(planned: Path, tmp_path: Path) -> None:
    dom = open_page(planned, tmp_path, script=SORT)
    times = title_of(dom).split(",")
    assert dom.count('class="main-svg"') >= 3
    assert len(times) >= 3
    assert times == sorted(times, reverse=True)


@needs_chromium
def test_a_browser_draws_a_recommendation(recommended: Path, tmp_path: Path) -> None:
    assert open_page(recommended, tmp_path).count('class="main-svg"') >= 2


def test_a_recommendation_shows_its_days_and_what_they_depend_on(
    recommended: Path, tmp_path: Path
) -> None:
    answer = recommend(family="llama", cluster="4x8xH100-SXM-80GB", tokens_b=300.0, max_days=7.0)
    answer.write_html(tmp_path / "page.html")
    assert figures(tmp_path / "page.html") == figures(recommended)
    days, depends = figures(recommended)
    outlook = answer.planner.outlook
    assert outlook is not None
    assert days["data"][0]["y"] == pytest.approx([outlook.days, answer.exact_days])
    half, twice = depends["data"]
    assert len(half["x"]) == len(twice["x"]) == len(outlook.sensitivities)
    assert half["x"][-1] == pytest.approx(outlook.sensitivities[0].days_at_half - outlook.days)


def test_several_clusters_show_which_are_beaten_in_time_and_money(tmp_path: Path) -> None:
    clusters = ("8xA100-SXM-80GB", "2x8xA100-SXM-80GB", "8xH100-SXM-80GB")
    answers = [planned_on(cluster, tokens=10**11) for cluster in clusters]
    write_page(plan_page(answers, "three clusters"), tmp_path / "page.html")
    (figure,) = figures(tmp_path / "page.html")
    points = [p for t in figure["data"] for p in zip(t["x"], t["y"], strict=True)]
    front = list(zip(figure["data"][0]["x"], figure["data"][0]["y"], strict=True))
    assert len(points) == 3
    for time, money in points:
        beaten = any(t <= time and m <= money and (t, m) != (time, money) for t, m in points)
        assert beaten == ((time, money) not in front)


def test_clusters_without_a_price_have_no_front() -> None:
    answers = [planned_on(cluster) for cluster in ("RTX-3060-12GB",) * 2]
    priced = [answer for answer in answers if answer.prices[0]]
    assert not priced
    assert not plan_page(answers, "").charts


def test_a_models_name_is_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    config = {"_name_or_path": evil, "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    answer = planned_on("8xA100-SXM-80GB", model=str(tmp_path / "config.json"))
    assert evil not in page_html(plan_page((answer,), evil))


def test_a_missing_extra_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([*PLAN, "--html", str(tmp_path / "page.html")]) == USAGE
    assert capsys.readouterr().err == (
        "autoconf-launch: HTML pages need jinja2, which is not installed: "
        "pip install 'autoconf-launch[html]'.\n"
    )


@needs_chromium
def test_a_number_that_is_none_is_a_gap_in_its_chart(tmp_path: Path) -> None:
    line = {"type": "scatter", "x": [1, 2, 3], "y": [1.0, float("nan"), float("inf")]}
    chart = Chart(title="gap", note="", traces=(line,), layout={"xaxis": {"range": (0.0, 4.0)}})
    write_page(HtmlPage(title="a page", answer="", charts=(chart,)), tmp_path / "page.html")
    assert figures(tmp_path / "page.html")[0]["data"][0]["y"] == [1.0, None, None]
    assert 'class="main-svg"' in open_page(tmp_path / "page.html", tmp_path)
