from __future__ import annotations

from autoconf_launch.launcher.estimates import PlanRequest, parse_plan
from autoconf_launch.launcher.first_forward import plan_by_pieces
from autoconf_launch.launcher.report import why_nothing

from .made import script


def request(batch: int, *flags: str, cluster: str = "8xA100") -> PlanRequest:
    words = ["--cluster", cluster, "--global-batch", str(batch), "--precision", "fp32", *flags]
    return parse_plan(words, of_script=True)


def test_every_split_of_the_global_batch_is_considered() -> None:
    found = plan_by_pieces(request(64, "--top", "0"), script())
    assert {one.layout.global_batch for one in found.plan.best} == {64}
    assert {one.layout.micro_batch for one in found.plan.best} == {1, 2, 4, 8}
    assert found.plan.considered == 4 * 4 * 2


def test_a_batch_that_does_not_divide_is_named() -> None:
    found = plan_by_pieces(request(63), script())
    assert not found.plan.best
    assert "--global-batch 63 is not a multiple of 8 GPUs" in why_nothing(found)


def test_the_smallest_need_is_named_where_nothing_fits() -> None:
    found = plan_by_pieces(request(64, cluster="8xT4-16GB"), script())
    less = plan_by_pieces(request(1, cluster="1xT4-16GB"), script())
    assert found.plan.best
    assert less.plan.smallest is not None
    assert "the smallest need is" in why_nothing(less)


def test_each_stage_and_recomputation_stands_once_the_fastest_first() -> None:
    best = plan_by_pieces(request(64), script()).plan.best
    kinds = [(one.layout.zero_stage, one.layout.recompute) for one in best]
    assert len(kinds) == len(set(kinds)) > 1
    assert best[0].step_s <= 1.05 * min(one.step_s for one in best)
    assert best[0].layout.zero_stage < 3, "of equal ones, the one that shards least"


def test_what_leaves_the_headroom_stands_first() -> None:
    found = plan_by_pieces(request(64, "--top", "0"), script())
    middle = sorted(one.peak_bytes for one in found.plan.best)[len(found.plan.best) // 2]
    limit = ("--memory-limit", f"{int(middle / 0.95)}b")
    tight = plan_by_pieces(request(64, "--top", "0", *limit), script())
    safe = [one.peak_bytes <= 0.9 * middle / 0.95 for one in tight.plan.best]
    assert safe == sorted(safe, reverse=True)
    assert len(set(safe)) == 2
