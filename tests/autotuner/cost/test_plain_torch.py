"""Counts of operations are those of torch 2.11; seconds were measured on an H100 (SXM)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    Kernels,
    LayoutColumns,
    StepParts,
    attention_times,
    distinct,
    layer_times,
    stacks,
    update_traffic_bytes,
)
from autoconf_launch.autotuner.cost.software import small_traffic
from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.core import (
    Candidate,
    Layout,
    Optimizer,
    Precision,
    Recompute,
    Software,
    Workload,
)
from autoconf_launch.tuning_spaces import TRAINERS, machine, named_model, trainer

from ..builders import layouts, table

H100 = machine("H100-SXM-80GB")
NONE, FULL = Recompute.NONE, Recompute.FULL
BF16, FP32, TF32 = Precision.BF16, Precision.FP32, Precision.TF32
PLAIN = trainer("native").software
WITHOUT = replace(PLAIN, plain_torch=False)


def workload(model: str, precision: Precision = BF16, software: Software = PLAIN) -> Workload:
    return Workload(
        model=named_model(model),
        sequence_length=1024 if model.startswith("gpt2") else 2048,
        precision=precision,
        optimizer=Optimizer.from_name("adamw"),
        software=software,
    )


def parts(one: Workload, micro: int, recompute: Recompute = NONE, batch: int = 32) -> StepParts:
    layout = Layout(micro_batch=micro, recompute=recompute, accumulation=batch // micro)
    return step_parts(layouts(layout), one, H100)


def layer_bytes(one: Workload, micro: int) -> float:
    inner, _ = distinct(layouts(f"micro={micro}"))
    (there, _), (back, _) = small_traffic(one, inner, DEFAULT_PHYSICS, None, 1.0)
    return float(np.sum(there + back))


@pytest.mark.parametrize(
    ("model", "precision", "micro", "counted"),
    [
        ("gpt2-large", BF16, 1, 0.758e9),
        ("gpt2-large", BF16, 16, 5.045e9),
        ("gpt2-large", FP32, 8, 2.837e9),
        ("llama3.2-1b", BF16, 1, 3.249e9),
        ("llama3.2-1b", BF16, 4, 8.596e9),
    ],
)
def test_plain_pytorch_moves_the_bytes_that_its_operations_have(
    model: str, precision: Precision, micro: int, counted: float
) -> None:
    # The count takes the two kernels of a norm's backward pass as one.
    one = workload(model, precision)
    second = 16.0 * one.architecture.hidden * micro * one.sequence_length
    assert layer_bytes(one, micro) == pytest.approx(counted + second, rel=0.05)


def test_micro_batches_cast_weights_and_fused_kernels_move_less() -> None:
    one = workload("gpt2-large")
    fixed = 2 * layer_bytes(one, 1) - layer_bytes(one, 2)
    assert fixed == pytest.approx(24.0 * 19.7e6, rel=0.01)
    one = workload("gpt2-large")
    plain = layer_bytes(one, 8)
    compiled = replace(one, software=replace(PLAIN, compiled=True))
    assert layer_bytes(replace(one, software=WITHOUT), 8) < plain / 3
    assert layer_bytes(compiled, 8) < plain / 2
    assert update_traffic_bytes(workload("gpt2"), DEFAULT_PHYSICS) == pytest.approx(80, rel=0.01)


def test_a_checkpoint_does_not_repeat_the_last_product() -> None:
    one = workload("gpt2-large")
    inner, _ = distinct(layouts({"micro_batch": 16, "recompute": FULL}))
    physics = replace(H100.physics, sustained=1.0)
    kernels = Kernels(accelerator=H100.accelerator, physics=physics)
    stack = stacks(one)[0]
    attention = attention_times(stack, inner, kernels)
    times = layer_times(stack, inner, kernels, attention, experts=None)
    again = float(parts(one, 16, FULL, batch=16).recompute_s_C[0]) / 36
    assert again == pytest.approx(float((times.forward_s_U - times.last_s_U)[0]), rel=1e-6)
    assert float(times.last_s_U[0]) > 0.2 * float(times.products_s_U[0])


@pytest.mark.parametrize(("precision", "slower"), [(BF16, True), (TF32, False)])
def test_logits_of_an_odd_vocabulary_are_slow_in_16_bits(
    precision: Precision, *, slower: bool
) -> None:
    one = workload("gpt2-large", precision)
    padded = replace(one, model=replace(one.architecture, vocabulary=50304))
    found, least = (float(parts(each, 16).step_s_C[0]) for each in (one, padded))
    assert (found > 1.05 * least) == slower


def test_tf32_makes_attention_no_faster_and_small_products_are_as_fast_as_large() -> None:
    inner, _ = distinct(layouts("micro=8"))
    cores = [
        attention_times(
            stacks(workload("gpt2-large", precision))[0],
            inner,
            Kernels(accelerator=H100.accelerator, physics=H100.physics, precision=precision),
        ).core_s
        for precision in (FP32, TF32)
    ]
    assert cores[0] == pytest.approx(cores[1])
    kernels = Kernels(accelerator=H100.accelerator, physics=H100.physics, precision=FP32)
    rates = [m * n * k / float(kernels.product_s(m, n, k)) for m, n, k in (_SMALL, _LARGE)]
    assert rates[0] > 0.9 * rates[1]


_SMALL, _LARGE = (1280, 5120, 8192), (8192, 8192, 8192)

FITTED = [
    ("gpt2-large", 32, 16, NONE, BF16, 0.5636),
    ("gpt2-large", 32, 16, FULL, BF16, 0.6551),
    ("gpt2-large", 32, 8, NONE, BF16, 0.6068),
    ("gpt2-large", 32, 32, FULL, BF16, 0.6327),
    ("gpt2-large", 32, 8, NONE, FP32, 3.7393),
    ("gpt2-large", 32, 8, FULL, FP32, 4.5512),
]
HELD_BACK = [
    ("gpt2-large", 32, 8, NONE, TF32, 1.2392),
    ("gpt2-large", 32, 8, FULL, BF16, 0.7362),
    ("llama3.2-1b", 8, 4, NONE, BF16, 0.3716),
    ("llama3.2-1b", 8, 8, FULL, BF16, 0.4300),
    ("llama3.2-1b", 8, 1, NONE, BF16, 0.5050),
]


@pytest.mark.parametrize(
    ("model", "batch", "micro", "recompute", "precision", "measured_s"), FITTED + HELD_BACK
)
def test_plain_pytorch_on_an_h100_takes_as_long_as_predicted(
    model: str,
    batch: int,
    micro: int,
    recompute: Recompute,
    precision: Precision,
    measured_s: float,
) -> None:
    found = float(parts(workload(model, precision), micro, recompute, batch).step_s_C[0])
    assert found == pytest.approx(measured_s, rel=0.08)


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_the_step_of_a_layout_is_the_same_in_every_table(name: str) -> None:
    one = trainer(name).apply_to(workload("llama3-8b"))
    layouts = [
        Layout(data_parallel=8 // tensor, tensor_parallel=tensor, zero_stage=stage, accumulation=8)
        for tensor in (1, 2)
        for stage in (0, 2, 3)
    ]
    alone = [step_parts(_table(layout), one, H100).step_s_C[0] for layout in layouts]
    for order in (layouts, layouts[::-1]):
        together = step_parts(_table(*order), one, H100).step_s_C
        assert together.tolist() == pytest.approx(alone if order is layouts else alone[::-1])


def _table(*layouts: Layout) -> LayoutColumns:
    candidates = [Candidate(layout=layout) for layout in layouts]
    return LayoutColumns.from_table(table(*candidates))
