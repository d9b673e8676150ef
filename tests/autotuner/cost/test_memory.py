"""Each expected number is worked out by hand in the comment beside it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import configured_workload, traced_memory
from autoconf_launch.autotuner.cost.memory import memory_parts
from autoconf_launch.core import (
    BlockSpec,
    Grade,
    KnobValue,
    Layout,
    MicroBatchTiming,
    ModelSpec,
    Offload,
    Optimizer,
    OptimizerConfig,
    Precision,
    Recompute,
    ResolvedConfig,
    TracedPeak,
    Workload,
)

from ..builders import table

ADAM = Workload(optimizer=Optimizer.from_name("AdamW"), precision=Precision.FP32)
BF16 = replace(ADAM, precision=Precision.BF16)

# 1000 weights in all: 200 outside of blocks, four blocks of 200.
MODEL = ModelSpec(
    grade=Grade.ARCHITECTURE,
    blocks=(
        BlockSpec(name="embedding", parameters=200, activation_bytes=10),
        BlockSpec(name="blocks", count=4, parameters=200, activation_bytes=100, input_bytes=20),
    ),
)


def parts(spec: ModelSpec, workload: Workload = ADAM, **layout: Any) -> dict[str, float]:
    rows = table({"data_parallel": 4, "micro_batch": 2, **layout})
    found = memory_parts(rows, replace(workload, model=spec))
    named = {name: float(sizes[0]) for name, sizes in found.named}
    return {**named, "peak": float(found.peak_C[0])}


@pytest.mark.parametrize(
    ("stage", "parameters", "gradients", "optimizer", "gathered"),
    [
        (0, 4000, 4000, 8000, 0),
        (1, 4000, 4000, 2000, 0),
        # All 1000 weights gathered in fp32; 200 gradients and the buffer to reduce them.
        (2, 1000, 1000, 2000, 4000 + 800 + 800),
        # The 200 outside of blocks and two blocks gathered; the same gradients in flight.
        (3, 1000, 1000, 2000, 2400 + 800 + 800),
    ],
)
def test_each_stage_shards_one_more_part(
    stage: int, parameters: int, gradients: int, optimizer: int, gathered: int
) -> None:
    found = parts(MODEL, zero_stage=stage)
    assert (
        found["weights"],
        found["gradients"],
        found["optimizer"],
        found["gathered"],
    ) == (parameters, gradients, optimizer, gathered)


@pytest.mark.parametrize(
    ("stage", "peak"),
    # State as above, and two samples of 10 + 4 x 100 bytes.
    [(0, 16_000 + 820), (1, 10_000 + 820), (2, 9_600 + 820), (3, 8_000 + 820)],
)
def test_the_peak_is_the_sum_of_all_parts(stage: int, peak: int) -> None:
    assert parts(MODEL, zero_stage=stage)["peak"] == peak


@pytest.mark.parametrize(
    ("stage", "ranks", "copies"), [(0, 4, 4000), (1, 4, 4000), (2, 4, 0), (3, 4, 0), (0, 1, 0)]
)
def test_accumulation_under_ddp_holds_gradients_twice(stage: int, ranks: int, copies: int) -> None:
    found = parts(MODEL, zero_stage=stage, data_parallel=ranks, accumulation=2)
    assert found["copies"] == copies


def with_knob(name: str, value: KnobValue, stage: int) -> dict[str, float]:
    return parts(MODEL, zero_stage=stage, extras=((name, value),))


@pytest.mark.parametrize(("in_buckets", "copies"), [(True, 0), (False, 4000)])
def test_gradients_outside_of_buckets_are_held_twice(in_buckets: bool, copies: int) -> None:
    assert with_knob("gradient_as_bucket_view", in_buckets, 1)["copies"] == copies


def test_larger_units_and_those_gathered_ahead_are_held() -> None:
    # All 1000 weights (of 200 outside and twice 400), 400 gradients and the buffer for them.
    assert with_knob("blocks_per_unit", 2, 3)["gathered"] == 4000 + 1600 + 1600
    # 200 outside and three blocks of 200; 200 gradients and the buffer for them.
    assert with_knob("forward_prefetch", 2, 3)["gathered"] == 3200 + 800 + 800
    whole = ModelSpec(
        grade=Grade.ARCHITECTURE,
        blocks=(BlockSpec(name="model", parameters=1000, activation_bytes=1),),
    )
    assert parts(whole, zero_stage=3)["gathered"] == 4000 + 4000 + 4000


@pytest.mark.parametrize(
    ("workload", "optimizer"),
    [
        (Workload(optimizer=Optimizer.from_name("Adam"), precision=Precision.FP32), 8000),
        (
            Workload(optimizer=Optimizer.from_name("adam", more=1), precision=Precision.FP32),
            12_000,
        ),
        (Workload(optimizer=Optimizer.from_name("SGD"), precision=Precision.FP32), 0),
        (Workload(optimizer=Optimizer.from_name("SGD", more=1), precision=Precision.FP32), 4000),
        (Workload(optimizer=Optimizer.from_name("Adagrad"), precision=Precision.FP32), 4000),
        (Workload(optimizer=Optimizer.from_name("RMSprop"), precision=Precision.FP32), 4000),
        (Workload(optimizer=Optimizer(), precision=Precision.FP32), 8000),
    ],
)
def test_each_optimizer_has_its_own_state(workload: Workload, optimizer: int) -> None:
    assert parts(MODEL, workload)["optimizer"] == optimizer


def test_optimizer_precision_and_compiler_come_from_the_configuration() -> None:
    config = ResolvedConfig(
        layout=Layout(),
        precision=Precision.BF16,
        optimizer=OptimizerConfig(kind="SGD", parameters=(("lr", 0.1), ("momentum", 0.9))),
    )
    expected = Optimizer(name="sgd", states=1.0)
    assert configured_workload(config) == Workload(optimizer=expected, precision=Precision.BF16)


@pytest.mark.parametrize(("mode", "compiled"), [("off", False), ("default", True)])
def test_a_compiled_model_is_predicted_as_one(mode: str, compiled: bool) -> None:
    config = ResolvedConfig(layout=Layout(), extras=(("compile_mode", mode),))
    assert configured_workload(config).software.compiled == compiled


def test_frozen_copied_and_loss_parts_have_their_bytes() -> None:
    frozen = replace(MODEL.blocks[1], frozen_parameters=200)
    found = parts(replace(MODEL, blocks=(MODEL.blocks[0], frozen)))
    assert (found["weights"], found["gradients"], found["optimizer"]) == (4000, 800, 1600)
    layout: dict[str, Any] = {"zero_stage": 3, "data_parallel": 4}
    every = parts(MODEL, **layout)
    assert parts(MODEL, **layout, extras=(("shard_ranks", True),)) == every
    some = parts(MODEL, **layout, extras=(("shard_ranks", 2),))
    assert {some[name] / every[name] for name in ("weights", "gradients", "optimizer")} == {2.0}
    head = replace(MODEL, vocabulary_size=50, sequence_length=8)
    assert parts(head)["logits"] == 2 * 50 * 8 * 4


def test_autocast_casts_weights_and_fsdp_reduces_in_fp32() -> None:
    assert parts(MODEL, BF16)["gathered"] == 2000
    # 600 weights and 200 gradients of 2 bytes, a buffer of 200 x 4.
    assert parts(MODEL, BF16, zero_stage=3)["gathered"] == 1200 + 400 + 800


def test_recomputation_keeps_inputs_or_products_and_one_whole_block() -> None:
    # A sample: 10 outside, four inputs of 20, and the other 80 of one block.
    found = parts(MODEL, recompute=Recompute.FULL)
    assert found["activations"] == pytest.approx(2 * (10 + 80 + 80))
    # A sample: 10 outside, 20/34 of four blocks, and the other 14/34 of one.
    found = parts(MODEL, recompute=Recompute.SELECTIVE)
    assert found["activations"] == pytest.approx(2 * (10 + 400 * 20 / 34 + 100 * 14 / 34))
    blind = replace(MODEL, blocks=(replace(MODEL.blocks[1], input_bytes=0),))
    assert np.isnan(parts(blind, recompute=Recompute.FULL)["peak"])
    first, rest = replace(MODEL.blocks[1], count=1), replace(MODEL.blocks[1], count=3)
    apart = replace(MODEL, blocks=(MODEL.blocks[0], first, rest))
    together = parts(MODEL, recompute=Recompute.FULL)
    assert parts(apart, recompute=Recompute.FULL)["activations"] == together["activations"]


def see(*bytes_of_1_and_2: int) -> tuple[MicroBatchTiming, ...]:
    return tuple(
        MicroBatchTiming(micro_batch=n, forward_backward_s=0.0, activation_bytes=kept)
        for n, kept in enumerate(bytes_of_1_and_2, 1)
    )


def test_traced_and_measured_activations_weigh_more_than_the_sum_over_blocks() -> None:
    found = parts(replace(MODEL, timings=see(150, 250)), micro_batch=8)
    assert found["activations"] == 50 + 8 * 100
    # 12000 of weights and state; 30 fixed and 500 each beyond.
    spec = replace(MODEL, timings=see(150, 250), traced_peaks=trace(forward=(12_530, 13_030)))
    assert parts(spec, micro_batch=4)["activations"] == 30 + 4 * 500
    peaks = trace(forward=(12_500, 13_000), backward=(16_700, 17_400), optimizer=(16_000, 16_000))
    assert parts(replace(MODEL, traced_peaks=peaks))["activations"] == 2 * 700
    # 12000 of weights and state, 4000 of gradients; the end of "backward" says nothing of samples.
    peaks = trace(backward=(20_000, 20_000), accumulation=(16_700, 17_400))
    assert parts(replace(MODEL, traced_peaks=peaks))["activations"] == 2 * 700
    # A sample: 410 of pieces and 290 of the loss, which are more than what a block makes again.
    peaks = trace(accumulation=(16_700, 17_400))
    found = parts(replace(MODEL, traced_peaks=peaks), recompute=Recompute.FULL)
    assert found["activations"] == pytest.approx(2 * (10 + 80 + 290))


def test_measured_bytes_are_casts_only_ddp_has_and_gradients_come_after_the_loss() -> None:
    measured = replace(MODEL, timings=see(150, 250))
    assert (parts(measured, BF16)["gathered"], parts(measured, BF16)["activations"]) == (50, 200)
    peaks = trace(forward=(4_500, 5_000), accumulation=(12_700, 17_400))
    spec = replace(MODEL, traced_peaks=peaks)
    sgd = replace(ADAM, optimizer=Optimizer.from_name("SGD"))

    def need(accumulation: int) -> float:
        rows = table(f"micro=2 acc={accumulation} recompute=full")
        found = traced_memory(rows, replace(sgd, model=spec))
        return sum(float(sizes[0]) for _, sizes in found)

    assert need(2) - need(1) == pytest.approx(1.04 * 4000, rel=0.02)


def trace(**peaks_of_1_and_2: tuple[int, int]) -> tuple[TracedPeak, ...]:
    return tuple(
        TracedPeak(phase=phase, micro_batch=n, peak_bytes=peak)
        for phase, peaks in peaks_of_1_and_2.items()
        for n, peak in enumerate(peaks, 1)
    )


def test_models_without_a_formula_have_no_prediction_and_updates_need_room() -> None:
    assert np.isnan(parts(replace(MODEL, grade=Grade.OPAQUE))["peak"])
    found = memory_parts(table("micro=2"), replace(ADAM, model=MODEL), foreach=True)
    assert found["update"].tolist() == [4000 - 820]


@pytest.mark.parametrize(
    "layout",
    [{"tensor_parallel": 2}, {"pipeline_parallel": 8}, {"offload": Offload.OPTIMIZER}],
)
def test_layouts_without_a_formula_have_no_prediction(layout: dict[str, Any]) -> None:
    assert np.isnan(parts(MODEL, **layout)["peak"])
