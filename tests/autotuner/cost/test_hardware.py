import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    Group,
    Kernels,
    Machine,
    StageSends,
    computes_in,
    peak_flops_per_s,
    ring_s,
)
from autoconf_launch.autotuner.cost.hardware import all_to_all_s
from autoconf_launch.core import Precision
from autoconf_launch.tuning_spaces import machine

BUFFER = np.full(1, 1e9)


def seconds(on: Machine, ranks: int, stride: int = 1) -> float:
    group = Group(ranks=np.full(1, ranks), stride=np.full(1, stride))
    return float(ring_s(on, group, BUFFER)[0])


def test_formats_run_at_their_own_rates() -> None:
    gpu = machine("B200").accelerator
    kernels = Kernels(accelerator=gpu, physics=machine("B200").physics)
    long, short = (float(kernels.product_s(n, n, n)) for n in (16384, 1024))
    assert gpu.power_limited is not None
    held = 2 * 16384**3 / long / gpu.half_flops_per_s
    assert held == pytest.approx(gpu.power_limited, rel=0.01)
    assert 2 * 1024**3 / short < gpu.half_flops_per_s * gpu.power_limited
    accelerator, physics = machine("GB200").accelerator, machine("GB200").physics
    kinds = (Precision.BF16, Precision.MXFP8, Precision.NVFP4)
    taken = [
        float(
            Kernels(
                accelerator=accelerator, physics=physics, precision=kind, transformer_engine=True
            ).product_s(8192, 8192, 8192)
        )
        for kind in kinds
    ]
    assert taken == sorted(taken, reverse=True)
    rates = [peak_flops_per_s(accelerator, kind) for kind in kinds]
    assert rates == [2.5e15, 5e15, 10e15]
    h100, v100 = machine("H100").accelerator, machine("V100").accelerator
    assert peak_flops_per_s(h100, Precision.TF32) == pytest.approx(989e12 / 2, rel=1e-3)
    assert peak_flops_per_s(v100, Precision.TF32) == peak_flops_per_s(v100, Precision.FP32)
    assert peak_flops_per_s(v100, Precision.FP32) == 15.7e12
    on = machine("H100")
    in_fp32, in_bf16 = (
        Kernels(accelerator=on.accelerator, physics=on.physics, precision=precision)
        for precision in (Precision.FP32, Precision.BF16)
    )
    assert in_fp32.core.reached_flops_per_s == in_fp32.reached_flops_per_s
    assert (in_fp32.widening, in_bf16.widening) == (2.0, 1.0)


@pytest.mark.parametrize("name", ["B200", "B300", "GB200", "GB300"])
def test_blackwell_s_own_attention_is_faster_than_portable_kernels(name: str) -> None:
    gpu = machine(name).accelerator
    assert gpu.attention is not None
    assert gpu.attention > gpu.reached * gpu.flash


def test_a_rack_is_one_domain_of_links() -> None:
    rack, nodes = machine("GB200"), machine("B200")
    assert (rack.gpus_per_node, rack.domain, nodes.domain) == (4, 72, 8)
    assert seconds(rack, 16) == pytest.approx(seconds(rack, 8), rel=0.2)
    assert seconds(nodes, 16) > 1.5 * seconds(nodes, 8)
    rack, group = machine("GB200"), Group(ranks=np.full(1, 64), stride=np.full(1, 1))
    inside = float(all_to_all_s(rack, group, BUFFER)[0])
    assert inside < float(all_to_all_s(machine("B200"), group, BUFFER)[0]) / 4
    near, far = (
        float(StageSends.between(np.full(1, 4), np.full(1, n), rack, BUFFER).way_s_C[0])
        for n in (8, 72)
    )
    assert near < far / 4
    # 72 rings over the cards of 18 nodes have what 4 rings over those of one node have.
    rack, group = machine("GB200"), Group(ranks=np.full(1, 4), stride=np.full(1, 72))
    one = Machine(
        accelerator=rack.accelerator,
        gpus_per_node=4,
        link=rack.link,
        node_network_bytes_per_s=rack.node_network_bytes_per_s,
    )
    alone = Group(ranks=np.full(1, 4), stride=np.full(1, 4))
    assert ring_s(rack, group, BUFFER)[0] == pytest.approx(ring_s(one, alone, BUFFER)[0])


@pytest.mark.parametrize(
    ("gpu", "has"),
    [
        ("A100", {"fp32", "tf32", "bf16", "fp16"}),
        (
            "H100",
            {"fp32", "tf32", "bf16", "fp16", "fp8", "fp8_current", "fp8_blockwise", "fp8_rowwise"},
        ),
        ("V100", {"fp32", "tf32", "fp16"}),
        ("GB300", {precision.value for precision in Precision}),
    ],
)
def test_a_gpu_computes_in_what_it_has_units_for(gpu: str, has: set[str]) -> None:
    accelerator = machine(gpu).accelerator
    assert {kind.value for kind in Precision if computes_in(accelerator, kind)} == has


@pytest.mark.parametrize(("gpu", "low", "high"), [("H100", 51e12, 55e12), ("A100", 18e12, 19e12)])
def test_fp32_products_run_outside_the_tensor_cores(gpu: str, low: float, high: float) -> None:
    on = machine(gpu)
    kernels = Kernels(accelerator=on.accelerator, physics=on.physics, precision=Precision.FP32)
    reached = 2 * 8192**3 / float(kernels.product_s(8192, 8192, 8192))
    assert low < reached < high


def test_copies_leave_for_a_node_once_if_forwarded_and_inside_it_one_by_one() -> None:
    nodes, group = machine("H100"), Group(ranks=np.full(1, 64), stride=np.full(1, 1))
    alone, forwarded = (
        float(all_to_all_s(nodes, group, BUFFER, copies=8, is_forwarded=x)[0])
        for x in (False, True)
    )
    reached = 8 * (1 - (7 / 8) ** 8)
    assert forwarded == pytest.approx(alone * reached / 8, rel=1e-3)
    group = Group(ranks=np.full(1, 8), stride=np.full(1, 1))
    one, eight = (
        float(all_to_all_s(machine("H100"), group, BUFFER, copies=n, is_forwarded=True)[0])
        for n in (1, 8)
    )
    assert eight == pytest.approx(8 * one, rel=0.05)
