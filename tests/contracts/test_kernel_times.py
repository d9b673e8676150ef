"""The contract of kernel times: a roofline, a profile, and a list of operations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    KernelTimes,
    Roofline,
    TracedOperations,
    distinct,
)
from autoconf_launch.autotuner.cost.kernel_times import ProfiledLines
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import (
    BlockSpec,
    Grade,
    Layout,
    MicroBatchTiming,
    ModelSpec,
    OperationCost,
    Recompute,
    Workload,
)
from autoconf_launch.tuning_spaces import machine, named_model

from ..autotuner.builders import layouts

A100 = machine("A100-SXM-80GB")
GPT2 = Workload(model=named_model("gpt2"), sequence_length=1024)
TIMINGS = tuple(
    MicroBatchTiming(micro_batch=size, forward_backward_s=0.01 + 0.02 * size, activation_bytes=0)
    for size in (1, 2)
)
PROFILED = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(BlockSpec(name="block", count=12, parameters=7_000_000),),
    timings=TIMINGS,
    optimizer_step_s=0.004,
)
OPERATIONS = (
    OperationCost(flops=1e12, moved_bytes=10**8),
    OperationCost(flops=0.0, moved_bytes=10**9),
)
SOURCES: dict[str, KernelTimes] = {
    "roofline": Roofline(workload=GPT2, machine=A100),
    "profile": ProfiledLines(spec=PROFILED),
    "operations": TracedOperations(
        workload=replace(GPT2, model=PROFILED), machine=A100, operations=OPERATIONS, micro_batch=2
    ),
}
ROWS = [
    Layout(data_parallel=8, micro_batch=size, zero_stage=stage, recompute=kind)
    for size in (1, 2, 4, 8)
    for stage in (0, 3)
    for kind in Recompute
]


@pytest.fixture(params=sorted(SOURCES))
def times(request: pytest.FixtureRequest) -> KernelTimes:
    found: KernelTimes = SOURCES[request.param]
    return found


def layer_s(times: KernelTimes, rows: list[Layout]) -> Floats:
    """Seconds of a micro-batch of one layer, with the ends of the model, for each row."""
    inner, which = distinct(layouts(*rows))
    found = times.inner_times(inner)
    return np.asarray((found.layer_s_U + found.first_s_U + found.last_s_U)[which])


def test_all_parts_are_seconds(times: KernelTimes) -> None:
    inner, _ = distinct(layouts(*ROWS))
    found = times.inner_times(inner)
    for name in type(found).__dataclass_fields__:
        seconds = getattr(found, name)
        assert seconds is None or (seconds >= 0.0).all(), name
    assert (found.ideal_s_U <= found.busy_s_U * (1 + 1e-12)).all()
    assert times.layers >= 1
    assert min(times.micro_batch_s, times.step_s) >= 0.0


def test_more_samples_never_take_less(times: KernelTimes) -> None:
    by_size = layer_s(times, ROWS).reshape(4, -1)
    assert (np.diff(by_size, axis=0) > 0).all()


def test_what_is_computed_again_takes_time(times: KernelTimes) -> None:
    none, selective, full = layer_s(times, ROWS).reshape(-1, 3).T
    assert (none <= selective).all()
    assert (selective <= full).all()


def test_a_row_does_not_depend_on_the_others(times: KernelTimes) -> None:
    together = layer_s(times, ROWS)
    alone = [float(layer_s(times, [row])[0]) for row in ROWS]
    assert together.tolist() == pytest.approx(alone, rel=1e-12)


def test_an_update_is_of_all_weights_before_zero_shares_them(times: KernelTimes) -> None:
    columns = layouts(*(replace(ROWS[0], zero_stage=stage) for stage in (0, 1, 3)))
    seconds = np.broadcast_to(times.update_s(columns), len(columns))
    assert (seconds > 0.0).all()
    assert len(set(seconds.tolist())) == 1
