from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.planner import (
    RUNTIME_RULES,
    Limits,
    Planned,
    Question,
    lighter_trainings,
    nearest_changes,
    plan_usable_first,
    planned_band,
    shorter_trainings,
)
from autoconf_launch.core import Offload, Optimizer, WeightFormat

from .conftest import SMALL, ask

MODEL = replace(SMALL, layers=24, hidden=2048, heads=16, kv_heads=16, head=128, ffn=8192)


def question(gib: float, **changes: Any) -> Question:
    """1.4 billion weights on eight GPUs of little memory."""
    limits = Limits(memory_bytes=gib * 2**30, headroom=0.02)
    rules = {"apart_rules": RUNTIME_RULES, **changes}
    return ask(8, 64, model=MODEL, sequence=2048, limits=limits, **rules)


def runs(one: Planned) -> bool:
    """True if a layout of the small model breaks no rule of our runtime."""
    layout = one.layout
    whole = one.recompute_layers < 0 or layout.virtual_pipeline == 1
    waits = layout.accumulation >= layout.pipeline_parallel
    return layout.offload is Offload.NONE and whole and waits


def error(asked: Question, one: Planned) -> float:
    return planned_band(asked.training, one).error


@pytest.mark.parametrize(("gib", "stands_first"), [(4.5, False), (5.0, True), (6.0, True)])
def test_the_first_row_runs_or_leads_by_more_than_its_band(gib: float, stands_first: bool) -> None:
    asked = question(gib, one_each=True)
    found = plan_usable_first(asked)
    first = found.best[0]
    limit = asked.limits.memory_bytes
    fastest_s = min(one.step_s for one in found.best if runs(one) and one.peak_bytes <= limit)
    assert runs(first) == stands_first
    assert stands_first or first.step_s * (1 + error(asked, first)) < fastest_s
    assert not any(map(runs, found.apart))
    assert all(one.step_s < first.step_s for one in found.apart)


def test_a_lead_within_the_band_and_all_other_layouts_stand_in_the_second_block() -> None:
    asked = question(5.0, one_each=True)
    found = plan_usable_first(asked)
    first = found.best[0]
    assert found.apart
    assert all(first.step_s < one.step_s * (1 + error(asked, one)) for one in found.apart)
    together = plan_usable_first(replace(asked, apart_rules=()))
    assert together.best[0] == found.apart[0]
    asked = question(5.0, most=None)
    found, every = plan_usable_first(asked), plan_usable_first(replace(asked, apart_rules=()))
    assert found.apart
    assert not every.apart
    assert len(found.best) + len(found.apart) == len(every.best)
    steps = [one.step_s for one in found.best if one.peak_bytes <= asked.limits.safe_bytes]
    assert steps == sorted(steps)


def test_layouts_that_do_not_run_stand_first_where_no_other_fits() -> None:
    found = plan_usable_first(question(4.0))
    assert found.are_all_apart
    assert found.best
    assert not any(map(runs, found.best))
    assert not found.apart


def test_the_nearest_changes_are_planned() -> None:
    """Adapters need less, and 32 GPUs hold what 16 of them do not."""
    asked = question(2.5)
    workload = asked.training.workload
    lighter = [
        replace(asked, training=replace(asked.training, workload=one))
        for one in lighter_trainings(workload)
    ]
    larger = [replace(asked, world=world) for world in (16, 32, 64)]
    found = nearest_changes(lighter, larger)
    safe = asked.limits.safe_bytes
    assert all(one.planned.peak_bytes <= safe for one in found)
    assert all(runs(one.planned) for one in found)
    assert [one.question.training.workload.lora_rank for one in found] == [16, None]
    assert [one.question.world for one in found] == [8, 32]


def test_lighter_trainings_change_the_optimizer_the_adapters_or_the_length() -> None:
    workload = question(1.0).training.workload
    first, second = lighter_trainings(workload)
    assert (first.optimizer.name, second.lora_rank) == ("adamw8bit", 16)
    plain = replace(workload, optimizer=Optimizer.from_name("sgd"))
    assert [one.optimizer.name for one in lighter_trainings(plain)] == ["sgd"]
    workload = replace(question(1.0).training.workload, lora_rank=8, sequence_length=1024)
    (light,) = lighter_trainings(workload)
    assert (light.lora_rank, light.weight_format) == (8, WeightFormat.NF4)
    assert not list(lighter_trainings(light))
    assert [one.sequence_length for one in shorter_trainings(workload)] == [512, 256]
