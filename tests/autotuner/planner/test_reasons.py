from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.planner.explanation import Loser, compared, families, losers
from autoconf_launch.autotuner.planner.search import Planned, plan
from autoconf_launch.core import Layout
from autoconf_launch.tuning_spaces.models import named_model

GB = 2**30


def reasons(question: Any) -> dict[str, Loser]:
    best = plan(question).best[0]
    return {one.family: one for one in losers(question, best)}


def changed(one: Planned, parts: dict[str, float], layout: Layout | None = None) -> Planned:
    merged = {**dict(one.parts), **parts}
    return replace(
        one,
        parts=tuple(merged.items()),
        step_s=sum(merged.values()),
        layout=layout or one.layout,
    )


@pytest.fixture
def best(ask: Any) -> Planned:
    found = plan(ask(most=1)).best[0]
    nothing = {name: 0.0 for name, _ in found.parts}
    return changed(found, {**nothing, "ideal": 0.5, "kernels": 0.5})


def test_a_bubble_is_named_by_its_share_of_the_slower_step(best: Planned) -> None:
    assert compared(changed(best, {"bubble": 0.25}), best, 8) == "pipeline bubble 20 %"


def test_tensor_parallelism_across_nodes_is_named(best: Planned) -> None:
    wide = changed(best, {"communication": 0.41}, Layout(tensor_parallel=16))
    assert compared(wide, best, 8) == "TP crosses nodes: +41 % communication"


def test_small_losses_beside_a_large_one_are_left_out(best: Planned) -> None:
    slow = changed(best, {"recompute": 0.3, "communication": 0.01})
    assert compared(slow, best, 8) == "+30 % recomputation"


def test_equal_steps_are_said_to_be_equal(best: Planned) -> None:
    assert compared(changed(best, {"update": 0.001}), best, 8) == "as fast within half a percent"


def test_what_does_not_fit_says_by_how_much(ask: Any) -> None:
    model = named_model("llama3.1-8b")
    found = reasons(ask(8, 8, model=model, sequence=4096))
    plain = found["plain DDP"]
    assert plain.planned
    over = plain.planned.peak_bytes / GB - 80
    assert plain.why == f"needs {over:.1f} GiB too much"
    assert plain.slower is None


def test_the_winner_is_recognised_in_its_family(ask: Any) -> None:
    assert "is the best" in {one.why for one in reasons(ask(4, 64)).values()}


def test_equations_without_a_solution_are_named(ask: Any) -> None:
    assert reasons(ask(8, 4))["plain DDP"].why == "dp=8 does not divide a global batch of 4"


def test_no_loser_is_faster_than_the_winner(ask: Any) -> None:
    for one in reasons(ask(8, 64)).values():
        assert one.slower is None or one.slower >= -1e-12


def test_families_have_names_of_their_own(ask: Any) -> None:
    best = plan(ask(most=1)).best[0]
    names = [family.name for family in families(best, world=8, node=4)]
    assert len(set(names)) == len(names)
