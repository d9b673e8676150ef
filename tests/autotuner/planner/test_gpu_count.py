"""The fewest GPUs, beside counting them all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.planner import Limits, fewest_gpus, plan

from .conftest import ask

MEMORY = 80.0 * 2**30


def limits(**changes: Any) -> Limits:
    return Limits(memory_bytes=MEMORY, headroom=0.0, **changes)


def test_the_first_number_within_the_deadline_is_found() -> None:
    question = ask(1, 480, limits=limits())
    enough_s = 1.001 * plan(replace(question, world=12)).best[0].step_s
    wanted = limits(deadline_step_s=enough_s)
    found = fewest_gpus(question, lambda gpus: wanted)
    first = next(
        world
        for world in (*range(1, 5), *range(8, 65, 4))
        if plan(replace(question, world=world, limits=wanted)).best
    )
    assert found.gpus == first
    assert found.fewer
    assert found.fewer.step_s > enough_s
    assert found.nearest < first <= 12


def test_a_count_ends_at_the_first_that_fits_or_when_more_gpus_bring_no_gain() -> None:
    question = ask(1, 8, limits=limits())
    found = fewest_gpus(question, lambda gpus: limits(deadline_step_s=1e-4))
    assert found.gpus is None
    assert found.fewer
    assert found.nearest >= 8
    assert fewest_gpus(question, lambda gpus: limits()).gpus == 1
