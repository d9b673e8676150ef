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


def reasons(answer: PlanAnswer) -> dict[str, str]:
    return {one.family.name: loser_reason(answer, one) for one in answer.losers}


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


def test_a_bubble_is_named_by_its_share_of_the_slower_step(best: Planned) -> None:
    assert slowdown(change(best, {"bubble": 0.25}), best, 8) == "pipeline bubble 20 %"


def test_tensor_parallelism_across_nodes_is_named(best: Planned) -> None:
    wide = change(best, {"communication": 0.41}, Layout(tensor_parallel=16))
    assert slowdown(wide, best, 8) == "TP crosses nodes: +41 % communication"


def test_small_losses_beside_a_large_one_are_skipped(best: Planned) -> None:
    slow = change(best, {"recompute": 0.3, "communication": 0.01})
    assert slowdown(slow, best, 8) == "+30 % recomputation"


def test_equal_steps_are_said_to_be_equal(best: Planned) -> None:
    assert slowdown(change(best, {"update": 0.001}), best, 8) == "as fast within half a percent"


def test_what_does_not_fit_says_by_how_much() -> None:
    found = answer("llama3.1-8b", "8xA100-SXM-80GB", 8)
    plain = next(one for one in found.losers if one.family.name == "plain DDP")
    assert plain.planned
    over = plain.planned.peak_bytes - plain.planned.limit_bytes
    assert loser_reason(found, plain) == f"needs {memory_size(over)} too much"


def test_the_winner_is_recognised_in_its_family() -> None:
    assert "is the best" in reasons(answer("gpt2", "4xA100-SXM-80GB", 64)).values()


def test_equations_without_a_solution_are_named() -> None:
    found = reasons(answer("gpt2", "8xA100-SXM-80GB", 4))
    assert found["plain DDP"] == "dp=8 does not divide a global batch of 4"


def test_every_rule_has_its_words() -> None:
    assert {rule.name for rule in PLAN_RULES} <= RULES_IN_WORDS.keys()


def test_a_faster_family_without_headroom_says_what_it_leaves_free() -> None:
    found = answer("llama3.1-8b", "8xH100", 64)
    pipelined = next(one for one in found.losers if one.fits)
    tight = replace(pipelined.plan.best[0], peak_bytes=0.98 * pipelined.plan.best[0].limit_bytes)
    loser = replace(pipelined, plan=replace(pipelined.plan, best=(tight,)))
    assert loser_reason(found, loser) == "leaves 2 % of memory free"
