from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    EAGER_BAND,
    Kernels,
    TracedOperations,
    block_operations,
    estimate,
)
from autoconf_launch.autotuner.cost.kernel_times import forward_backward_s, optimizer_traffic_bytes
from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    ClusterSpec,
    Device,
    FrozenPasses,
    Grade,
    Layout,
    MicroBatchTiming,
    ModelSpec,
    Node,
    OperationCost,
    Optimizer,
    Precision,
    Workload,
)
from autoconf_launch.tuning_spaces import machine, named_model

from ..builders import layout_of, layouts

KERNELS = Kernels(accelerator=machine("A100-SXM-80GB").accelerator, physics=DEFAULT_PHYSICS)
PRODUCT = OperationCost(flops=1e12, moved_bytes=10**8)
COPY = OperationCost(flops=0.0, moved_bytes=10**9)


def test_an_operation_takes_as_long_as_its_flops_bytes_or_start() -> None:
    assert math.isnan(forward_backward_s((), KERNELS, share=1.0))
    assert forward_backward_s((PRODUCT,), KERNELS, share=1.0) > 1e12 / 312e12
    least = 1e9 / KERNELS.bytes_per_s
    assert least < forward_backward_s((COPY,), KERNELS, share=1.0) < 1.2 * least
    small = OperationCost(flops=0.0, moved_bytes=1, count=1000)
    assert forward_backward_s((small,), KERNELS, share=1.0) > 1000 * KERNELS.physics.kernel_s
    adam, sgd = (
        optimizer_traffic_bytes(Optimizer.from_name(name), DEFAULT_PHYSICS)
        for name in ("adam", "sgd")
    )
    assert adam > sgd > 0


@given(st.floats(0.01, 100), st.floats(1.0, 10))
def test_more_samples_never_take_less_time(share: float, more: float) -> None:
    operations = (PRODUCT, COPY)
    once = forward_backward_s(operations, KERNELS, share=share)
    assert forward_backward_s(operations, KERNELS, share=share * more) >= once * (1 - 1e-9)


@given(st.integers(1, 4), st.integers(1, 8), st.sampled_from([1, 2]))
def test_each_rank_runs_frozen_models_on_its_own_tokens(
    size: int, times: int, context: int
) -> None:
    on = machine("A100-SXM-80GB")
    alone = Workload(model=named_model("gpt2"), sequence_length=1024)
    both = replace(alone, frozen_passes=FrozenPasses(operations=(PRODUCT, COPY), tokens=4096))
    layout = layout_of(f"micro={size} acc={times} cp={context}")
    columns = layouts(layout)
    steps_s = [float(step_parts(columns, one, on).step_s_C[0]) for one in (alone, both)]
    kernels = replace(KERNELS, physics=on.physics)
    once_s = forward_backward_s((PRODUCT, COPY), kernels, share=size / context / 4)
    assert math.isclose(steps_s[1] - steps_s[0], times * once_s, rel_tol=1e-6)


FLOPS = 8e9
BLOCKS = BlockSpec(name="blocks", count=12, parameters=7 * 10**6, flops=FLOPS)
SPEC = ModelSpec(
    grade=Grade.MEASURED, blocks=(replace(BLOCKS, activation_bytes=14 * 10**6),), layers=12
)
TIMED = replace(
    SPEC,
    timings=(MicroBatchTiming(micro_batch=1, forward_backward_s=0.5, activation_bytes=10**8),),
)


def predicted_step_s(spec: ModelSpec, micro_batch: int) -> tuple[float | None, float | None]:
    workload = Workload(model=spec, precision=Precision.BF16)
    gpu = Device(name="A100-SXM-80GB", memory_bytes=80 * 10**9)
    untimed = TracedOperations(
        workload=workload,
        machine=machine("A100-SXM-80GB"),
        operations=block_operations(spec),
        micro_batch=1,
    )
    table = CandidateTable.from_candidates([Candidate(layout=Layout(micro_batch=micro_batch))])
    cluster = ClusterSpec(nodes=(Node(host="localhost", devices=(gpu,)),))
    row = estimate(table, workload, cluster, untimed=untimed).row(0)
    return row.step_s, row.band


def test_models_of_known_flops_are_predicted_with_a_wide_band_unless_timed() -> None:
    total = sum(one.flops * one.count for one in block_operations(SPEC))
    assert math.isclose(total, 3 * 12 * FLOPS)
    step_s, band = predicted_step_s(SPEC, 64)
    assert step_s
    assert 1 < step_s / (64 * 3 * 12 * FLOPS / 312e12) < 6
    assert band == EAGER_BAND
    _, band = predicted_step_s(replace(SPEC, blocks=(replace(SPEC.blocks[0], count=1),)), 64)
    assert band
    assert band > EAGER_BAND
    step_s, band = predicted_step_s(TIMED, 1)
    assert step_s
    assert step_s >= 0.5
    assert band != EAGER_BAND
