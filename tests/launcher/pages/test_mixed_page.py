"""Pages of plans on mixed clusters."""

from pathlib import Path

import pytest

from autoconf_launch.launcher.estimates import PlanAnswer, parse_plan, plan_answer
from autoconf_launch.launcher.pages import plan_page, write_page
from autoconf_launch.launcher.report import plan_text

from .browser import figures, needs_chromium, open_page

WORDS = (
    *("--model", "gpt2-xl", "--seq", "1024", "--global-batch", "64", "--tokens", "10B"),
    *("--cluster", "1x8xA100-SXM-40GB+3x4xA10G-24GB"),
)


@pytest.fixture(scope="module")
def answer() -> PlanAnswer:
    return plan_answer(parse_plan(WORDS))


@pytest.fixture(scope="module")
def page(answer: PlanAnswer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "page.html"
    write_page(plan_page([answer], plan_text(answer)), path)
    return path


def test_all_parts_of_the_cluster_are_points_and_the_front_is_a_line(
    answer: PlanAnswer, page: Path
) -> None:
    front = plan_answer(parse_plan([*WORDS, "--pareto"])).plan.best
    drawn = figures(page)[0]["data"]
    assert answer.parts is not None
    assert sum(len(trace["x"]) for trace in drawn) == len(answer.parts.every)
    days = [answer.steps * row.step_s / 86400 for row in front] if answer.steps else []
    assert drawn[0]["x"] == pytest.approx(days)


def test_each_pipeline_shows_layers_and_memory_of_its_stages(
    answer: PlanAnswer, page: Path
) -> None:
    pipelines = [row for row in answer.plan.best if len(row.stages) > 1][:3]
    drawn = figures(page)[1:]
    assert len(drawn) == 2 * len(pipelines)
    for row, stages, memory in zip(pipelines, drawn[::2], drawn[1::2], strict=True):
        assert sum(sum(trace["y"]) for trace in stages["data"]) == 48
        needed, limit = memory["data"]
        assert needed["y"] == pytest.approx([one.peak_bytes / 2**30 for one in row.stages])
        assert all(x <= y for x, y in zip(needed["y"], limit["y"], strict=True))


@needs_chromium
def test_a_browser_draws_it(page: Path, tmp_path: Path) -> None:
    assert open_page(page, tmp_path).count('class="main-svg"') >= 3
