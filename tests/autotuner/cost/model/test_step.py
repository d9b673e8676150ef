from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    LayoutColumns,
    Machine,
    StepParts,
    distinct,
    forward_flops_per_token,
    rank_weights,
)
from autoconf_launch.autotuner.cost.kernel_times import least_step_s
from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.autotuner.sizing import Family, SampleShape, step_flops
from autoconf_launch.core import (
    Experts,
    Offload,
    Precision,
    Recompute,
    Software,
    Workload,
)

from ...builders import architecture, layouts
from .conftest import GPT, MACHINE, WORKLOAD

MANY = (
    {"data_parallel": 8, "micro_batch": 4},
    {"data_parallel": 8, "zero_stage": 3, "recompute": Recompute.FULL},
    {"tensor_parallel": 8, "data_parallel": 2, "accumulation": 4, "sequence_parallel": True},
    {"tensor_parallel": 2, "pipeline_parallel": 4, "virtual_pipeline": 2, "accumulation": 16},
    {"context_parallel": 4, "data_parallel": 16, "zero_stage": 1},
    {"data_parallel": 64, "zero_stage": 2, "offload": Offload.OPTIMIZER, "micro_batch": 2},
    {"pipeline_parallel": 8, "recompute": Recompute.SELECTIVE, "accumulation": 8},
)


def seconds(layouts: LayoutColumns, workload: Workload, machine: Machine) -> list[float]:
    return [float(x) for x in step_parts(layouts, workload, machine).step_s_C]


def test_one_row_is_what_it_is_among_others_within_its_bounds() -> None:
    together = seconds(layouts(*MANY), WORKLOAD, MACHINE)
    alone = [seconds(layouts(one), WORKLOAD, MACHINE)[0] for one in MANY]
    assert together == pytest.approx(alone)
    columns = layouts(*MANY)
    predicted = np.array(seconds(columns, WORKLOAD, MACHINE))
    assert (least_step_s(columns, WORKLOAD, MACHINE) < predicted).all()
    parts = step_parts(layouts(*MANY), WORKLOAD, MACHINE)
    assert all((getattr(parts, part.name) >= -1e-12).all() for part in fields(StepParts))


@pytest.mark.parametrize("larger", [{"accumulation": 2}, {"micro_batch": 2}])
def test_more_samples_take_longer(larger: dict[str, int]) -> None:
    few, many = seconds(layouts("", larger), WORKLOAD, MACHINE)
    assert many > few


def test_recomputation_takes_a_third_longer_and_of_half_the_layers_half_of_it() -> None:
    columns = layouts("micro=8", "micro=8 recompute=full")
    without, full = seconds(columns, WORKLOAD, MACHINE)
    assert 1.2 < full / without < 1.4
    columns = layouts("recompute=full")
    half = replace(columns, recompute_layers_C=np.array([12]))
    none = layouts("")
    between = (seconds(columns, WORKLOAD, MACHINE)[0] + seconds(none, WORKLOAD, MACHINE)[0]) / 2
    assert seconds(half, WORKLOAD, MACHINE)[0] == pytest.approx(between)


def test_work_waits_for_the_host_and_formats_and_heads_for_their_kernels() -> None:
    small = replace(WORKLOAD, sequence_length=64)
    parts = step_parts(layouts("acc=8"), small, MACHINE)
    assert parts.launch_s_C[0] > parts.ideal_s_C[0]
    compiled = replace(small, software=Software(compiled=True))
    columns = layouts("acc=8")
    assert seconds(columns, compiled, MACHINE) < seconds(columns, small, MACHINE)
    large = replace(WORKLOAD, model=replace(WORKLOAD.architecture, hidden=8192, ffn=32768))
    columns = layouts("micro=8")
    fp8 = replace(large, precision=Precision.FP8, software=Software(transformer_engine=True))
    assert seconds(columns, fp8, MACHINE) < seconds(columns, large, MACHINE)
    plain = replace(WORKLOAD, software=Software(flash_attention=False))
    odd = replace(plain, model=replace(plain.architecture, head=126))
    columns = layouts("micro=4")
    assert seconds(columns, odd, MACHINE)[0] > 1.1 * seconds(columns, plain, MACHINE)[0]
    old = replace(MACHINE, accelerator=replace(MACHINE.accelerator, flash=0.0))
    assert seconds(columns, WORKLOAD, old) == seconds(columns, plain, old)


def test_products_run_at_the_datasheets_rate_also_of_experts() -> None:
    sparse = replace(GPT, experts=Experts(count=64, per_token=1, ffn=GPT.ffn))
    dense = step_parts(layouts("micro=8"), WORKLOAD, MACHINE)
    routed = step_parts(layouts("micro=8"), replace(WORKLOAD, model=sparse), MACHINE)
    assert routed.ideal_s_C[0] == pytest.approx(dense.ideal_s_C[0], rel=0.01)
    assert routed.step_s_C[0] > dense.step_s_C[0]
    parts = step_parts(layouts("micro=2"), WORKLOAD, MACHINE)
    flops = 3 * 2 * WORKLOAD.sequence_length * forward_flops_per_token(WORKLOAD)
    assert parts.ideal_s_C[0] == pytest.approx(flops / 100e12, rel=0.02)


def test_equal_inner_layouts_are_worked_out_once_whatever_their_size() -> None:
    columns = layouts("acc=1", "acc=2", "tp=2")
    inner, which = distinct(columns)
    assert len(inner.tensor_U) == 2
    assert inner.tensor_U[which].tolist() == [1, 1, 2]
    sizes = (1 << 31, 4, 1 << 31)
    inner, which = distinct(layouts(*(f"micro={size}" for size in sizes)))
    assert inner.micro_U[which].tolist() == list(sizes)


def test_axes_that_broadcast_give_what_a_flat_table_gives() -> None:
    kinds = (Recompute.NONE, Recompute.FULL)
    flat = layouts(
        *({"tensor_parallel": t, "recompute": kind} for kind in kinds for t in (1, 2, 4))
    )
    one = layouts("")
    given = {f.name: getattr(one, f.name) for f in fields(LayoutColumns)}
    square = {name: column[:, None] for name, column in given.items() if column is not None}
    axes = LayoutColumns(
        **{
            **square,
            "tensor_C": np.array([[1, 2, 4]]),
            "recompute_C": flat.recompute_C[::3][:, None],
        }
    )
    found = step_parts(axes, WORKLOAD, MACHINE).step_s_C
    assert found.reshape(-1).tolist() == step_parts(flat, WORKLOAD, MACHINE).step_s_C.tolist()


def test_weights_are_gathered_or_come_over_the_host_link() -> None:
    columns = layouts(
        "cp=8 zero=3 acc=8",
        "cp=8 zero=1 acc=8",
    )
    gathered, whole = step_parts(
        columns, replace(WORKLOAD, sequence_length=256), MACHINE
    ).communication_s_C
    assert gathered > 2 * whole
    away = {"zero_stage": 3, "offload": Offload.PARAMETERS}
    stay = {"zero_stage": 3, "offload": Offload.OPTIMIZER}
    columns = layouts(away, stay, {**away, "accumulation": 4}, {**stay, "accumulation": 4})
    seconds_C = step_parts(columns, WORKLOAD, MACHINE).communication_s_C
    once, four = seconds_C[0] - seconds_C[1], seconds_C[2] - seconds_C[3]
    weights = rank_weights(columns, WORKLOAD)[0]
    assert once == pytest.approx(weights * 2 * 3 / DEFAULT_PHYSICS.host_link_bytes_per_s)
    assert four == pytest.approx(4 * once)


T5_3B = architecture(
    "t5",
    layers=24,
    encoder_layers=24,
    hidden=2048,
    heads=32,
    ffn=5120,
    vocabulary=29_000,
    gated=True,
)
READ = 512


T5 = replace(
    WORKLOAD,
    model=T5_3B,
    sequence_length=READ,
    software=Software(flash_attention=False),
    decoder_sequence_length=128,
)


def parts(workload: Workload, machine: Machine) -> StepParts:
    return step_parts(layouts("micro=8"), workload, machine)


def test_operations_are_those_that_nvidia_counts() -> None:
    """NVIDIA's count has no causal mask, ours has; scores are a small part."""
    shape = SampleShape(
        family=Family("t5"),
        layers=24,
        hidden=2048,
        ffn=5120,
        vocabulary=29_000,
        sequence=READ,
        decoder_sequence=128,
    )
    ideal_s = parts(T5, MACHINE).ideal_s_C[0]
    assert ideal_s == pytest.approx(step_flops(shape, 8) / 100e12, rel=0.01)


def test_a_shorter_decoder_makes_a_faster_step_and_none_beats_its_bound() -> None:
    times = [
        parts(replace(T5, decoder_sequence_length=written), MACHINE).step_s_C[0]
        for written in (32, 128, 256)
    ]
    assert times == sorted(times)
    assert times[0] < times[-1]
    equal, unset = (
        parts(replace(T5, decoder_sequence_length=written), MACHINE).step_s_C[0]
        for written in (READ, None)
    )
    assert equal == unset
    columns = layouts("micro=8", "tp=4", "dp=8")
    assert (least_step_s(columns, T5, MACHINE) < step_parts(columns, T5, MACHINE).step_s_C).all()
