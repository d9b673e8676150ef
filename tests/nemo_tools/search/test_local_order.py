from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("hydra")

from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    ClusterSpec,
    Device,
    Grade,
    MicroBatchTiming,
    ModelSpec,
    Node,
    Optimizer,
    Precision,
    Workload,
)
from autoconf_launch.nemo.search import SearchCandidate
from autoconf_launch.nemo.search.our_ranks import order_candidates

from .asked import SMALL, ask_for

WORKLOAD = Workload(optimizer=Optimizer.from_name("AdamW"), precision=Precision.FP32)


def cluster(memory_bytes: int, ranks: int = 2) -> ClusterSpec:
    device = Device(name="cpu (x86_64)", memory_bytes=memory_bytes, emulated=True)
    return ClusterSpec(nodes=(Node(host="here", devices=(device,) * ranks),))


def as_candidate(one: SearchCandidate) -> Candidate:
    return Candidate(layout=one.layout)


def model() -> ModelSpec:
    block = BlockSpec(
        name="block", count=2, parameters=500_000, flops=1e9, activation_bytes=10_000_000
    )
    timing = MicroBatchTiming(micro_batch=1, forward_backward_s=0.1, activation_bytes=20_000_000)
    return ModelSpec(
        grade=Grade.MEASURED, blocks=(block,), timings=(timing,), optimizer_step_s=0.01
    )


def order(spec: ModelSpec | None, memory_bytes: int) -> tuple[SearchCandidate, ...]:
    workload = WORKLOAD if spec is None else replace(WORKLOAD, model=spec)
    found = ask_for(*SMALL).found.candidates
    return tuple(order_candidates(found, as_candidate, workload, cluster(memory_bytes)))


def test_without_a_model_the_order_stays() -> None:
    assert order(None, 1 << 34) == ask_for(*SMALL).found.candidates


def test_each_candidate_stays_with_its_best_zero_stage() -> None:
    found = ask_for(*SMALL).found.candidates
    best = order(model(), 1 << 34)
    assert {one.name for one in best} == {one.name for one in found}
    assert {one.layout.zero_stage for one in best} <= {0, 1, 2, 3}


def test_without_times_the_smallest_micro_batch_comes_first() -> None:
    untimed = replace(model(), timings=(), optimizer_step_s=None, grade=Grade.TRACED)
    best = order(untimed, 1 << 34)
    assert {one.step_s for one in best} == {None}
    sizes = [one.layout.micro_batch for one in best]
    assert sizes == sorted(sizes)


def test_what_surely_does_not_fit_comes_last() -> None:
    best = order(model(), 60_000_000)
    is_large = [(one.peak_bytes or 0) > 60_000_000 for one in best]
    assert is_large == sorted(is_large)
