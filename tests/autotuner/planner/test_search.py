"""The planner beside a naive product of all values, on worlds that are small enough for one."""

import itertools
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import LayoutColumns, Verdict, estimate, fits
from autoconf_launch.autotuner.cost.memory import peak_bytes
from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    Limits,
    Plan,
    Planned,
    Question,
    family_name,
    grids,
    plan,
)
from autoconf_launch.core import Candidate, Degrees, Layout, Offload, Recompute
from autoconf_launch.tuning_spaces import named_model

from ..builders import layouts
from .conftest import ask

WORLDS = st.sampled_from([1, 2, 3, 4, 6, 8])
BATCHES = st.sampled_from([1, 2, 4, 6])


def naive(question: Question) -> list[tuple[Layout, int]]:
    """Every layout with layers to recompute, from the ranges only."""
    model, world = question.training.workload.architecture, question.world
    batch = question.training.workload.global_batch
    experts = model.experts.count if model.experts else 1
    found = []
    for data, tensor, pipeline, context in itertools.product(divisors(world), repeat=4):
        if data * tensor * pipeline * context != world or batch % data:
            continue
        each = batch // data
        for micro, virtual, expert, (kind, layers), zero, parallel, offload in itertools.product(
            divisors(each),
            virtual_stages(model.layers, pipeline),
            (e for e in range(1, 5) if experts % e == 0),
            recompute(-(-model.layers // pipeline)),
            *(range(4), (False, True), set(Offload) - {Offload.ACTIVATIONS}),
        ):
            layout = Layout(
                data_parallel=data,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                virtual_pipeline=virtual,
                context_parallel=context,
                expert_parallel=expert,
                zero_stage=zero,
                micro_batch=micro,
                accumulation=each // micro,
                recompute=kind,
                sequence_parallel=parallel,
                offload=offload,
            )
            found.append((layout, layers))
    return found


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def virtual_stages(layers: int, pipeline: int) -> list[int]:
    """Pieces of a stage that divide the layers, or those and embedding and head."""
    if pipeline == 1:
        return [1]
    pieces = range(2, layers + 3)
    good = [
        v for v in pieces if layers % (v * pipeline) == 0 or (layers + 2) % (v * pipeline) == 0
    ]
    return [1, *good]


def recompute(stage: int) -> list[tuple[Recompute, int]]:
    quarters = {-(-stage * part // 4) for part in (1, 2, 3)} - {stage}
    return [*((kind, -1) for kind in Recompute), *((Recompute.FULL, k) for k in quarters)]


def columns_of(rows: list[tuple[Layout, int]]) -> LayoutColumns:
    return layouts(*(Candidate(layout=x, extras=(("recompute_layers", k),)) for x, k in rows))


def key(one: Planned) -> tuple[Layout, int]:
    return one.layout, one.recompute_layers


@settings(max_examples=9, deadline=None)
@given(WORLDS, BATCHES, st.booleans(), st.sampled_from([0.9, 1.2, 80.0]))
def test_nothing_is_missing_twice_or_wrong(
    world: int, batch: int, sparse: bool, memory_gb: float
) -> None:
    question = ask(world, batch, sparse=sparse, memory_bytes=memory_gb * 2**30, most=None)
    rows = naive(question)
    columns, training = columns_of(rows), question.training
    broken: Counter[str] = Counter()
    left = np.ones(len(rows), np.bool_)
    for rule in PLAN_RULES:
        kept = left & rule.keep(
            columns, training.workload.architecture, training.workload.sequence_length
        )
        broken[rule.name] = int(left.sum() - kept.sum())
        left = kept
    peaks = peak_bytes(columns, training.workload)
    fitting = left & fits(peaks, question.limits.memory_bytes)
    broken["memory"] = int(left.sum() - fitting.sum())

    found = plan(question)

    assert (found.considered, found.valid) == (len(rows), int(left.sum()))
    assert dict(found.rejected) == {name: count for name, count in broken.items() if count}
    ranked = [key(one) for one in found.best]
    assert len(set(ranked)) == len(ranked)
    assert set(ranked) == {rows[i] for i in np.flatnonzero(fitting)}


@settings(max_examples=12, deadline=None)
@given(WORLDS, BATCHES, st.booleans())
def test_each_number_is_what_a_table_of_that_row_alone_gives(
    world: int, batch: int, sparse: bool
) -> None:
    question = ask(world, batch, sparse=sparse, most=8)
    training = question.training
    for one in plan(question).best:
        row = columns_of([key(one)])
        timed = step_parts(row, training.workload, training.machine)
        peak = peak_bytes(row, training.workload)
        assert one.step_s == pytest.approx(float(timed.step_s_C[0]), rel=1e-12)
        assert one.peak_bytes == pytest.approx(float(peak[0]), rel=1e-12)


def test_the_fastest_stand_first_and_their_parts_add_up() -> None:
    for one in plan(ask()).best:
        assert sum(seconds for _, seconds in one.parts) == pytest.approx(one.step_s)
    every = plan(ask(most=None)).best
    assert [one.step_s for one in every] == sorted(one.step_s for one in every)
    assert plan(ask(most=7)).best == every[:7]
    every = plan(ask(1, 4, most=None)).best
    for one, other in itertools.pairwise(every):
        if one.step_s == other.step_s:
            assert one.layout.zero_stage <= other.layout.zero_stage
    found = plan(ask(memory_bytes=1.2 * 2**30))
    assert sum(count for _, count in found.rejected) == found.considered - found.fit


def test_pieces_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan(ask())
    monkeypatch.setattr("autoconf_launch.autotuner.planner.search._CELLS", 500)
    assert plan(ask()) == whole


def test_limits_of_time_leave_out_what_is_slower_but_name_the_fastest() -> None:
    free = plan(ask(most=None))
    middle = free.best[len(free.best) // 2].step_s
    limits = Limits(memory_bytes=80 * 2**30, deadline_step_s=middle)
    found = plan(ask(most=None, limits=limits))
    assert all(one.step_s <= middle for one in found.best)
    assert dict(found.rejected)["deadline"] == found.fit - len(found.best)
    free = plan(ask(limits=Limits(memory_bytes=80 * 2**30, headroom=0.1)))
    tight = Limits(memory_bytes=80 * 2**30, headroom=0.1, deadline_step_s=1e-9)
    found = plan(ask(limits=tight))
    assert (found.best, found.safe) == ((), free.safe)
    assert found.safe > 0
    limits = Limits(memory_bytes=80 * 2**30, cost_step_s=1e-9)
    found = plan(ask(limits=limits))
    assert found.best == ()
    assert found.fastest == plan(ask(most=1)).best[0]


def test_the_smallest_is_known_if_none_fits_and_a_sure_one_beside_a_marginal_winner() -> None:
    found = plan(ask(memory_bytes=2**20))
    assert (found.fit, found.best) == (0, ())
    assert found.smallest
    wide = plan(ask(most=None))
    assert found.smallest.peak_bytes == pytest.approx(min(one.peak_bytes for one in wide.best))
    free = plan(ask(most=1, sequence=32768)).best[0]
    found = plan(ask(sequence=32768, memory_bytes=1.01 * free.peak_bytes))
    assert found.best[0].verdict is Verdict.MARGINAL
    assert found.surely
    assert found.surely.verdict is Verdict.YES


def test_memory_and_recomputation_move_what_fits_and_how_fast() -> None:
    counts = [plan(ask(memory_bytes=gb * 2**30)).fit for gb in (0.5, 1, 1.5, 2, 4)]
    assert counts == sorted(counts)
    none = Degrees(
        tensor_parallel=(1,),
        pipeline_parallel=(1,),
        context_parallel=(1,),
        zero_stage=(1,),
        micro_batch=(1,),
        offload=(Offload.NONE,),
    )
    times = [
        plan(ask(degrees=replace(none, recompute=kinds, recompute_layers=layers))).best[0].step_s
        for kinds, layers in (
            ((Recompute.NONE,), ()),
            ((), (3,)),
            ((Recompute.FULL,), ()),
        )
    ]
    assert times[1] == pytest.approx((times[0] + times[2]) / 2)
    degrees = Degrees(
        tensor_parallel=(2,), zero_stage=(1,), offload=(Offload.NONE,), recompute_layers=()
    )
    found = plan(ask(most=None, degrees=degrees)).best
    kinds = {(x.layout.tensor_parallel, x.layout.zero_stage, x.layout.offload) for x in found}
    assert kinds == {(2, 1, Offload.NONE)}
    assert {one.recompute_layers for one in found} == {-1}


def tight(headroom: float | None, gib: float = 1.8, **changes: Any) -> Plan:
    """A small model on little memory."""
    limits = Limits(memory_bytes=gib * 2**30, headroom=headroom)
    return plan(ask(8, 8, limits=limits, **changes))


def test_layouts_that_leave_the_headroom_stand_first_and_nothing_else_changes() -> None:
    found, limit = tight(0.02, most=None), 1.8 * 2**30
    tiers = [int(one.peak_bytes > 0.98 * limit) for one in found.best]
    assert tiers == sorted(tiers)
    assert set(tiers) == {0, 1}
    assert found.safe == tiers.count(0)
    for tier in range(2):
        times = [one.step_s for one, its in zip(found.best, tiers, strict=True) if its == tier]
        assert times == sorted(times)
    by_time, by_room = tight(None, most=None), tight(0.02, most=None)
    assert by_time.rejected == by_room.rejected
    assert Counter(map(key, by_time.best)) == Counter(map(key, by_room.best))
    found = tight(0.02, most=None)
    below = [one.step_s for one in found.best if one.peak_bytes <= 1.8 * 2**30]
    assert found.tightest
    assert found.tightest.step_s == min(below)
    smallest = min(one.peak_bytes for one in tight(None, gib=80.0, most=None).best)
    found = tight(0.02, gib=0.98 * smallest / 2**30)
    assert (found.fit, found.best) == (0, ())
    assert found.smallest
    assert found.smallest.peak_bytes == pytest.approx(smallest)


@pytest.mark.parametrize("headroom", [None, 0.02])
def test_no_row_needs_more_than_the_memory_and_those_near_it_are_marginal(
    headroom: float | None,
) -> None:
    found, limit = tight(headroom, gib=2.0, most=None), 2.0 * 2**30
    every = tight(headroom, gib=80.0, most=None).best
    assert len(found.best) == found.fit == sum(one.peak_bytes <= limit for one in every)
    assert {one.verdict for one in found.best} == {Verdict.YES, Verdict.MARGINAL}
    for one in found.best:
        assert one.peak_bytes <= limit
        assert (one.verdict is Verdict.YES) == (1.1 * one.peak_bytes <= limit)


def test_each_family_stands_once_by_its_best_layout() -> None:
    """Context parallelism gains nothing at 512 tokens and makes no families."""
    every, one_each = (tight(0.02, 20.0, most=None, one_each=x) for x in (False, True))
    first = {family_name(one.layout): key(one) for one in reversed(every.best)}
    named = [(family_name(one.layout), key(one)) for one in one_each.best]
    assert dict(named) == {name: one for name, one in first.items() if "CP" not in name}
    assert len(named) == len(dict(named)) > 1


def test_layouts_beyond_the_host_memory_are_ruled_out_by_name() -> None:
    question = ask(most=None)
    machine = replace(question.training.machine, host_memory_bytes=1.0)
    tight = plan(replace(question, training=replace(question.training, machine=machine)))
    roomy = plan(question)
    stayed = [one for one in roomy.best if not one.host_bytes]
    assert 0 < len(stayed) < len(roomy.best)
    assert [one.layout for one in tight.best] == [one.layout for one in stayed]
    assert "host_memory" not in dict(roomy.rejected)
    assert dict(tight.rejected)["host_memory"] == roomy.valid - tight.valid


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([1, 2, 6, 8]), st.sampled_from([1, 6]), st.booleans())
def test_a_grid_costs_what_its_cells_do_one_by_one(world: int, batch: int, sparse: bool) -> None:
    question = ask(world, batch, sparse=sparse)
    training = question.training
    for grid in grids(world, batch, training.workload.architecture, question.degrees):
        whole = estimate(grid.columns, training.workload, training.machine)
        peak_C = np.broadcast_to(whole.peak_bytes_C, grid.shape)
        step_s_C = np.broadcast_to(whole.step_s_C, grid.shape)
        cells = np.arange(0, peak_C.size, max(1, peak_C.size // 400))
        rows = estimate(grid.rows(cells), training.workload, training.machine)
        assert peak_C.reshape(-1)[cells] == pytest.approx(rows.peak_bytes_C, rel=1e-12)
        assert step_s_C.reshape(-1)[cells] == pytest.approx(rows.step_s_C, rel=1e-12)


@pytest.mark.slow
def test_a_million_valid_layouts_are_priced_in_a_second_of_one_core() -> None:
    question = ask(16384, 2048, model=named_model("llama3.1-405b"), sequence=8192)
    plan(ask())
    started = time.process_time()
    found = plan(question)
    taken_s = time.process_time() - started
    assert found.valid / taken_s > 1e6
