from typing import Any

from autoconf_launch.autotuner.planner.explanation import waterfall
from autoconf_launch.autotuner.planner.search import plan


def test_each_loss_starts_where_the_one_before_it_ends(ask: Any) -> None:
    best = plan(ask(most=1)).best[0]
    steps = waterfall(best.parts)
    ends = [step.start_s + step.seconds for step in steps]
    assert [step.start_s for step in steps] == [0.0, *ends[:-1]]


def test_the_losses_are_named_as_people_name_them(ask: Any) -> None:
    names = [step.name for step in waterfall(plan(ask(most=1)).best[0].parts)]
    assert names == [
        "ideal",
        "kernel efficiency",
        "launch floor",
        "bubble",
        "exposed communication",
        "recompute",
        "update",
    ]
