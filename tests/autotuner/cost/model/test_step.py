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
from autoconf_launch.core import (
    Architecture,
    Experts,
    Offload,
    Precision,
    Recompute,
    Software,
    Workload,
)

from ...builders import layouts

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


def test_one_row_is_what_it_is_among_others_within_its_bounds(
    workload: Workload, machine: Machine
) -> None:
    together = seconds(layouts(*MANY), workload, machine)
    alone = [seconds(layouts(one), workload, machine)[0] for one in MANY]
    assert together == pytest.approx(alone)
    columns = layouts(*MANY)
    predicted = np.array(seconds(columns, workload, machine))
    assert (least_step_s(columns, workload, machine) < predicted).all()
    parts = step_parts(layouts(*MANY), workload, machine)
    assert all((getattr(parts, part.name) >= -1e-12).all() for part in fields(StepParts))


@pytest.mark.parametrize("larger", [{"accumulation": 2}, {"micro_batch": 2}])
def test_more_samples_take_longer(
    workload: Workload, machine: Machine, larger: dict[str, int]
) -> None:
    few, many = seconds(layouts("", larger), workload, machine)
    assert many > few


def test_recomputation_takes_a_third_longer_and_of_half_the_layers_half_of_it(
    workload: Workload, machine: Machine
) -> None:
    columns = layouts("micro=8", "micro=8 recompute=full")
    without, full = seconds(columns, workload, machine)
    assert 1.2 < full / without < 1.4
    columns = layouts("recompute=full")
    half = replace(columns, recompute_layers_C=np.array([12]))
    none = layouts("")
    between = (seconds(columns, workload, machine)[0] + seconds(none, workload, machine)[0]) / 2
    assert seconds(half, workload, machine)[0] == pytest.approx(between)


def test_small_work_waits_for_the_host_unless_compiled(
    workload: Workload, machine: Machine
) -> None:
    small = replace(workload, sequence_length=64)
    parts = step_parts(layouts("acc=8"), small, machine)
    assert parts.launch_s_C[0] > parts.ideal_s_C[0]
    compiled = replace(small, software=Software(compiled=True))
    columns = layouts("acc=8")
    assert seconds(columns, compiled, machine) < seconds(columns, small, machine)


def test_fp8_is_faster_on_large_products_only(workload: Workload, machine: Machine) -> None:
    large = replace(workload, model=replace(workload.architecture, hidden=8192, ffn=32768))
    columns = layouts("micro=8")
    fp8 = replace(large, precision=Precision.FP8, software=Software(transformer_engine=True))
    assert seconds(columns, fp8, machine) < seconds(columns, large, machine)


def test_attention_is_slow_for_odd_heads_and_without_flash(
    workload: Workload, machine: Machine
) -> None:
    plain = replace(workload, software=Software(flash_attention=False))
    odd = replace(plain, model=replace(plain.architecture, head=126))
    columns = layouts("micro=4")
    assert seconds(columns, odd, machine)[0] > 1.1 * seconds(columns, plain, machine)[0]
    old = replace(machine, accelerator=replace(machine.accelerator, flash=0.0))
    assert seconds(columns, workload, old) == seconds(columns, plain, old)


def test_experts_cost_what_their_chosen_ones_do(
    workload: Workload, machine: Machine, gpt: Architecture
) -> None:
    sparse = replace(gpt, experts=Experts(count=64, per_token=1, ffn=gpt.ffn))
    dense = step_parts(layouts("micro=8"), workload, machine)
    routed = step_parts(layouts("micro=8"), replace(workload, model=sparse), machine)
    assert routed.ideal_s_C[0] == pytest.approx(dense.ideal_s_C[0], rel=0.01)
    assert routed.step_s_C[0] > dense.step_s_C[0]


def test_ideal_time_is_three_forward_passes_at_the_datasheets_rate(
    workload: Workload, machine: Machine
) -> None:
    parts = step_parts(layouts("micro=2"), workload, machine)
    flops = 3 * 2 * workload.sequence_length * forward_flops_per_token(workload)
    assert parts.ideal_s_C[0] == pytest.approx(flops / 100e12, rel=0.02)


def test_equal_inner_layouts_are_worked_out_once_whatever_their_size() -> None:
    columns = layouts("acc=1", "acc=2", "tp=2")
    inner, which = distinct(columns)
    assert len(inner.tensor_U) == 2
    assert inner.tensor_U[which].tolist() == [1, 1, 2]
    sizes = (1 << 31, 4, 1 << 31)
    inner, which = distinct(layouts(*(f"micro={size}" for size in sizes)))
    assert inner.micro_U[which].tolist() == list(sizes)


def test_axes_that_broadcast_give_what_a_flat_table_gives(
    workload: Workload, machine: Machine
) -> None:
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
    found = step_parts(axes, workload, machine).step_s_C
    assert found.reshape(-1).tolist() == step_parts(flat, workload, machine).step_s_C.tolist()


def test_sharded_weights_are_gathered_from_context_ranks_too(
    workload: Workload, machine: Machine
) -> None:
    columns = layouts(
        "cp=8 zero=3 acc=8",
        "cp=8 zero=1 acc=8",
    )
    gathered, whole = step_parts(
        columns, replace(workload, sequence_length=256), machine
    ).communication_s_C
    assert gathered > 2 * whole


def test_offloaded_weights_come_over_the_host_link_in_each_micro_batch(
    workload: Workload, machine: Machine
) -> None:
    away = {"zero_stage": 3, "offload": Offload.PARAMETERS}
    stay = {"zero_stage": 3, "offload": Offload.OPTIMIZER}
    columns = layouts(away, stay, {**away, "accumulation": 4}, {**stay, "accumulation": 4})
    seconds_C = step_parts(columns, workload, machine).communication_s_C
    once, four = seconds_C[0] - seconds_C[1], seconds_C[2] - seconds_C[3]
    weights = rank_weights(columns, workload)[0]
    assert once == pytest.approx(weights * 2 * 3 / DEFAULT_PHYSICS.host_link_bytes_per_s)
    assert four == pytest.approx(4 * once)
