from dataclasses import replace

import pytest

from autoconf_launch.autotuner.planner import PLAN_RULES, Planned
from autoconf_launch.core import Layout
from autoconf_launch.launcher.estimates import PlanAnswer, parse_plan, plan_answer
from autoconf_launch.launcher.report import RULES_IN_WORDS, memory_size
from autoconf_launch.launcher.report.plan_reasons import loser_reason, slowdown


def answer(model: str, cluster: str, batch: int) -> PlanAnswer:
    words = ("--model", model, "--cluster", cluster, "--seq", "1024", "--global-batch", str(batch))
    return plan_answer(parse_plan([*words, "--explain"]))


def change(one: Planned, parts: dict[str, float], layout: Layout | None = None) -> Planned:
    merged = {**dict(one.parts), **parts}
    return replace(
        one,
        parts=tuple(merged.items()),
        step_s=sum(merged.values()),
        layout=layout or one.layout,
    )


@pytest.fixture(scope="module")
def best() -> Planned:
    found = answer("gpt2", "8xA100-SXM-80GB", 8).plan.best[0]
    nothing = {name: 0.0 for name, _ in found.parts}
    return change(found, {**nothing, "ideal": 0.5, "kernels": 0.5})


@pytest.mark.parametrize(
    ("parts", "layout", "said"),
    [
        ({"bubble": 0.25}, None, "pipeline bubble 20 %"),
        (
            {"communication": 0.41},
            Layout(tensor_parallel=16),
            "TP crosses nodes: +41 % communication",
        ),
        ({"recompute": 0.3, "communication": 0.01}, None, "+30 % recomputation"),
        ({"update": 0.001}, None, "as fast within half a percent"),
    ],
)
def test_a_slower_layout_is_said_by_its_large_losses(
    best: Planned, parts: dict[str, float], layout: Layout | None, said: str
) -> None:
    assert slowdown(change(best, parts, layout), best, 8) == said
    assert {rule.name for rule in PLAN_RULES} <= RULES_IN_WORDS.keys()


def test_what_does_not_fit_or_has_no_layout_says_why() -> None:
    found = answer("llama3.1-8b", "8xA100-SXM-80GB", 8)
    plain = next(one for one in found.losers if one.family.name == "plain DDP")
    assert plain.planned
    over = plain.planned.peak_bytes - plain.planned.limit_bytes
    assert loser_reason(found, plain) == f"needs {memory_size(over)} too much"
    found = answer("gpt2", "8xA100-SXM-80GB", 4)
    said = {one.family.name: loser_reason(found, one) for one in found.losers}
    assert said["plain DDP"] == "dp=8 does not divide a global batch of 4"
    found = answer("gpt2", "4xA100-SXM-80GB", 64)
    assert "is the best" in [loser_reason(found, one) for one in found.losers]


def test_a_faster_family_without_headroom_says_what_it_leaves_free() -> None:
    found = answer("llama3.1-8b", "8xH100", 64)
    pipelined = next(one for one in found.losers if one.fits)
    tight = replace(pipelined.plan.best[0], peak_bytes=0.98 * pipelined.plan.best[0].limit_bytes)
    loser = replace(pipelined, plan=replace(pipelined.plan, best=(tight,)))
    assert loser_reason(found, loser) == "leaves 2 % of memory free"
