"""Layouts beyond data parallelism of a model that was profiled; numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import (
    Network,
    StepParts,
    estimate,
    memory_rule,
    profiled_step_parts,
)
from autoconf_launch.autotuner.cost.memory import memory_parts
from autoconf_launch.core import (
    BlockSpec,
    ClusterSpec,
    Device,
    Grade,
    KnobValue,
    MicroBatchTiming,
    ModelSpec,
    Node,
    Optimizer,
    Precision,
    Recompute,
    SplitPart,
    Workload,
)

from ..builders import table

ADAM = Workload(optimizer=Optimizer.from_name("AdamW"), precision=Precision.FP32)
SPLIT = SplitPart(parameters=160, activation_bytes=60, forward_s=0.9, columns=3, rows=1)

# 1200 weights; a sample takes 0.4 s outside of blocks and 0.9 s, or 1 s in all, in each of four.
MODEL = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(
        BlockSpec(name="embedding", parameters=200, activation_bytes=10, forward_s=0.1),
        BlockSpec(
            name="blocks",
            count=4,
            parameters=200,
            activation_bytes=100,
            input_bytes=20,
            forward_s=1.0,
            split=SPLIT,
        ),
        BlockSpec(name="head", parameters=200, activation_bytes=30, forward_s=0.9),
    ),
    timings=tuple(
        MicroBatchTiming(micro_batch=n, forward_backward_s=10.0 * n, activation_bytes=0)
        for n in (1, 2)
    ),
    optimizer_step_s=1.0,
    sequence_length=5,
    hidden_size=2,
)
WORKLOAD = replace(ADAM, model=MODEL)
STARTS = Network(latency_s=1.0, bytes_per_s=1e30, overlaps=False)
BYTES = Network(latency_s=0.0, bytes_per_s=1.0, overlaps=False)


def step(network: Network | None = None, spec: ModelSpec = MODEL, **layout: Any) -> StepParts:
    return profiled_step_parts(table(layout), replace(WORKLOAD, model=spec), network)


def step_s(network: Network | None = None, spec: ModelSpec = MODEL, **layout: Any) -> float:
    return float(step(network, spec, **layout).step_s_C[0])


def samples_s(**layout: Any) -> float:
    return float(step(**layout).ideal_s_C[0])


def exchanged_s(network: Network, **layout: Any) -> float:
    return float(step(network, **layout).communication_s_C[0])


def memory(spec: ModelSpec = MODEL, **layout: Any) -> dict[str, float]:
    found = memory_parts(table(layout), replace(WORKLOAD, model=spec))
    return {**{name: float(sizes[0]) for name, sizes in found.named}, "peak": found.peak_C[0]}


class TestTensorRanks:
    def test_they_share_the_time_between_columns_and_rows(self) -> None:
        # 5 s in all, 3.6 s of them split: a half of these is saved, of the profiled 10 s.
        assert samples_s(tensor_parallel=2) == pytest.approx(10 * (1 - 1.8 / 5.0))

    def test_with_sequence_parallelism_they_share_all_of_a_block(self) -> None:
        found = samples_s(tensor_parallel=2, sequence_parallel=True)
        assert found == pytest.approx(10 * (1 - 2.0 / 5.0))

    def test_they_update_their_weights(self) -> None:
        found = float(step(tensor_parallel=2).update_s_C[0])
        assert found == pytest.approx(1 - 4 * 160 / 2 / 1200)

    def test_of_what_a_micro_batch_takes_at_least_they_share_the_traffic_of_weights(self) -> None:
        times = [replace(t, forward_backward_s=2.0 + t.micro_batch) for t in MODEL.timings]
        found = float(
            step(spec=replace(MODEL, timings=tuple(times)), tensor_parallel=2).launch_s_C[0]
        )
        assert found == pytest.approx(2 - 4 / 7 * 4 * 160 / 2 / 1200)

    def test_each_row_and_column_is_one_reduction(self) -> None:
        assert exchanged_s(STARTS, tensor_parallel=2) == pytest.approx(4 * (3 + 1))

    def test_recomputation_reduces_the_rows_once_more(self) -> None:
        found = exchanged_s(STARTS, tensor_parallel=2, recompute=Recompute.FULL)
        assert found == pytest.approx(4 * (3 + 1 + 1))

    def test_a_reduction_is_of_the_hidden_state(self) -> None:
        # Two samples of 5 x 2 values of 4 bytes: 80 bytes, whose halves go to and fro.
        found = exchanged_s(BYTES, tensor_parallel=2, micro_batch=2)
        assert found == pytest.approx(4 * 4 * 80)

    def test_gathering_tokens_costs_reductions_of_sequence_parallel_norms_too(self) -> None:
        plain = exchanged_s(STARTS, tensor_parallel=2)
        found = exchanged_s(STARTS, tensor_parallel=2, sequence_parallel=True)
        # One gather before the columns, one after the rows of each block; norms once a step.
        assert found == pytest.approx(plain + 4 * 2 + 1)

    def test_their_weights_gradients_and_state_are_what_is_not_split_and_a_share(self) -> None:
        found = memory(tensor_parallel=2)
        values = 1200 - 4 * 160 / 2
        assert (found["weights"], found["gradients"], found["optimizer"]) == (
            4 * values,
            4 * values,
            8 * values,
        )

    def test_activations_between_columns_and_rows_are_shared(self) -> None:
        assert memory(tensor_parallel=2)["activations"] == 440 - 4 * 30

    def test_a_model_without_a_plan_is_not_predicted(self) -> None:
        blocks = tuple(replace(block, split=None) for block in MODEL.blocks)
        plain = replace(MODEL, blocks=blocks)
        assert np.isnan(step_s(spec=plain, tensor_parallel=2))
        assert np.isnan(memory(plain, tensor_parallel=2)["peak"])

    def test_zero_1_keeps_whole_weights_beside_shards(self) -> None:
        found = memory(tensor_parallel=2, data_parallel=4, zero_stage=1)
        values = 1200 - 4 * 160 / 2
        assert found["weights"] == 4 * values / 4
        assert found["gathered"] > 4 * values

    def test_zero_1_reduces_with_the_last_micro_batch(self) -> None:
        few = exchanged_s(STARTS, tensor_parallel=2, data_parallel=2, zero_stage=1)
        many = exchanged_s(
            STARTS, tensor_parallel=2, data_parallel=2, zero_stage=1, accumulation=3
        )
        assert many - few == pytest.approx(2 * 4 * 4)  # the blocks' own reductions alone


class TestStages:
    def test_the_slowest_one_sets_the_pace(self) -> None:
        # Stages of 2.1 s and 2.9 s of 5; ten micro-batches, the first through both.
        found = step_s(pipeline_parallel=2, accumulation=10)
        assert found == pytest.approx(10 / 5 * (10 * 2.9 + 2.1) + 0.5)

    def test_a_split_that_evens_them_out_is_faster(self) -> None:
        # 0.1 + 3 x 1 s and 1 x 1 + 0.9 s.
        found = step_s(pipeline_parallel=2, accumulation=10, pipeline_split=(3, 1))
        assert found == pytest.approx(10 / 5 * (10 * 3.1 + 1.9) + 800 / 1200)

    def test_interleaved_ones_fill_a_part_of_the_bubble(self) -> None:
        plain = step_s(pipeline_parallel=2, accumulation=4)
        found = step_s(pipeline_parallel=2, accumulation=4, virtual_pipeline=2)
        assert found == pytest.approx(plain - 10 / 5 * 2.1 / 2)

    def test_activations_wait_for_their_backward_pass(self) -> None:
        # First stage: 10 + 2 x 100, twice under 1F1B. Last stage: 2 x 100 + 30, once.
        assert memory(pipeline_parallel=2, accumulation=8)["activations"] == 2 * 210

    def test_gpipe_holds_those_of_all_micro_batches(self) -> None:
        extras = (("pipeline_schedule", "gpipe"),)
        found = memory(pipeline_parallel=2, accumulation=8, extras=extras)
        assert found["activations"] == 8 * 230

    def test_each_has_its_own_weights(self) -> None:
        assert memory(pipeline_parallel=2)["weights"] == 4 * 600

    def test_a_tied_weight_is_on_both_ends(self) -> None:
        tied = replace(MODEL.blocks[2], parameters=0, tied_parameters=200)
        found = memory(
            replace(MODEL, blocks=(*MODEL.blocks[:2], tied)), pipeline_parallel=2, accumulation=2
        )
        assert found["weights"] == 4 * 600

    def test_zero_2_holds_whole_gradients(self) -> None:
        alone = memory(pipeline_parallel=2, data_parallel=2, zero_stage=2, accumulation=4)
        assert alone["copies"] == 4 * 600

    def test_more_of_them_than_blocks_are_not_predicted(self) -> None:
        assert np.isnan(memory(pipeline_parallel=5)["peak"])
        assert np.isnan(step_s(pipeline_parallel=4, virtual_pipeline=2, accumulation=4))


class TestContextAndExpertRanks:
    def test_context_ranks_share_all_tokens(self) -> None:
        assert step_s(context_parallel=2) == pytest.approx(10 / 2 + 1)

    def test_context_ranks_gather_keys_and_values_of_each_block(self) -> None:
        # There and back in each block; DDP's one bucket travels beside the backward pass.
        assert exchanged_s(STARTS, context_parallel=2) == pytest.approx(2 * 4)

    def test_context_ranks_average_gradients_as_data_ranks_do(self) -> None:
        shared = {"zero_stage": 2, "accumulation": 3}
        more = exchanged_s(STARTS, context_parallel=2, **shared) - 3 * 2 * 4
        assert more == pytest.approx(exchanged_s(STARTS, data_parallel=2, **shared))

    def test_context_ranks_hold_a_share_and_each_others_keys(self) -> None:
        keys = 2 * 2 * 5 * 4 / 2  # two of 5 x 2 values of 4 bytes, half of them others'
        assert memory(context_parallel=2)["activations"] == 440 / 2 + 4 * keys

    def test_expert_ranks_hold_their_experts(self) -> None:
        sparse = replace(MODEL.blocks[1], expert_parameters=100, experts_per_token=2)
        spec = replace(MODEL, blocks=(MODEL.blocks[0], sparse, MODEL.blocks[2]))
        assert memory(spec, data_parallel=2, expert_parallel=2)["weights"] == 4 * (1200 - 4 * 50)

    def test_tokens_travel_to_experts_and_back_in_both_passes(self) -> None:
        sparse = replace(MODEL.blocks[1], expert_parameters=200, experts_per_token=2)
        spec = replace(MODEL, blocks=(sparse,))
        parts = step(BYTES, spec, data_parallel=2, expert_parallel=2)
        # Four blocks, twice there and back, of 2 x 5 x 2 values of 4 bytes, half of them away.
        assert parts.communication_s_C[0] == pytest.approx(4 * 4 * 80 / 2)

    def test_without_experts_nothing_is_predicted(self) -> None:
        assert np.isnan(step_s(data_parallel=2, expert_parallel=2))


def test_uneven_micro_batches_go_at_the_pace_of_the_largest() -> None:
    uneven = step_s(data_parallel=2, micro_batch=4, micro_batch_split=(5, 3))
    assert uneven == step_s(data_parallel=2, micro_batch=5)


def test_some_recomputed_layers_lie_between_none_and_all() -> None:
    def seconds(layers: int) -> float:
        extras = (("recompute_layers", layers),)
        return step_s(recompute=Recompute.FULL, extras=extras)

    none, full = step_s(), step_s(recompute=Recompute.FULL)
    assert seconds(1) == pytest.approx(none + (full - none) / 4)
    kept = memory(recompute=Recompute.FULL, extras=(("recompute_layers", 1),))["activations"]
    assert kept == 440 - 80 + 80  # one block is computed again, one at a time is whole


def test_hybrid_sharding_shards_over_some_ranks() -> None:
    found = memory(data_parallel=8, zero_stage=3, extras=(("shard_ranks", 2),))
    assert found["weights"] == 4 * 1200 / 2


def test_a_limit_of_memory_leaves_the_layouts_that_share_the_model_out() -> None:
    rows = table({"data_parallel": 2}, {"tensor_parallel": 2}, {"pipeline_parallel": 2})
    device = Device(name="cpu (arm)", memory_bytes=15_000)
    cluster = ClusterSpec(nodes=(Node(host="h", devices=(device, device)),))
    found = estimate(rows, WORKLOAD, cluster)
    kept = memory_rule(found, cluster, band=0.1).keep(rows)
    assert kept.tolist() == [False, True, True]
    assert not np.isnan(found.step_s_C).any()


DEGREES = st.sampled_from([1, 2, 4])
LAYOUTS = st.fixed_dictionaries(
    {
        "data_parallel": DEGREES,
        "pipeline_parallel": DEGREES,
        "context_parallel": DEGREES,
        "zero_stage": st.integers(0, 3),
        "micro_batch": st.integers(1, 4),
        "accumulation": st.integers(1, 8),
        "recompute": st.sampled_from(list(Recompute)),
    }
)


@settings(deadline=None, max_examples=60)
@given(layout=LAYOUTS, tensor=DEGREES, sequence=st.booleans())
def test_more_tensor_ranks_never_have_more_weights_or_activations(
    layout: dict[str, Any], tensor: int, sequence: bool
) -> None:
    few = memory(tensor_parallel=tensor, **layout)
    more = {"tensor_parallel": 2 * tensor, "sequence_parallel": sequence, **layout}
    for part in ("weights", "gradients", "optimizer", "activations"):
        assert memory(**more)[part] <= few[part]


@settings(deadline=None, max_examples=60)
@given(layout=LAYOUTS, more=st.integers(2, 5))
def test_more_micro_batches_make_the_bubble_a_smaller_share(
    layout: dict[str, Any], more: int
) -> None:
    def share(accumulation: int) -> float:
        given_layout = {**layout, "pipeline_parallel": 2, "accumulation": accumulation}
        even = {**given_layout, "extras": ()}
        parts = step(None, replace(MODEL, optimizer_step_s=0.0), **even)
        return float(parts.bubble_s_C[0] / parts.step_s_C[0])

    assert share(layout["accumulation"] * more) < share(layout["accumulation"])


@settings(deadline=None, max_examples=60)
@given(layout=LAYOUTS, tensor=DEGREES)
def test_no_step_comes_below_that_of_equal_work_on_all_ranks(
    layout: dict[str, Any], tensor: int
) -> None:
    ranks = tensor * layout["pipeline_parallel"] * layout["context_parallel"]
    samples = layout["micro_batch"] * layout["accumulation"]
    assert step_s(BYTES, tensor_parallel=tensor, **layout) >= 10 * samples / ranks


@settings(deadline=None, max_examples=60)
@given(layouts=st.lists(LAYOUTS, min_size=1, max_size=6))
def test_a_row_is_predicted_as_it_is_alone(layouts: list[dict[str, Any]]) -> None:
    rows = table(*layouts)
    together_s = profiled_step_parts(rows, WORKLOAD, BYTES).step_s_C
    together = memory_parts(rows, WORKLOAD).peak_C
    assert together_s.tolist() == [step_s(BYTES, **one) for one in layouts]
    assert together.tolist() == [memory(**one)["peak"] for one in layouts]


@pytest.mark.parametrize("name", ["offload_optimizer.device", "offload_param.device"])
def test_memory_is_not_predicted_if_the_framework_keeps_a_part_elsewhere(name: str) -> None:
    devices: tuple[KnobValue, ...] = ("cpu", "nvme", "none")
    rows = [
        {"zero_stage": 3, "data_parallel": 2, "extras": ((name, device),)} for device in devices
    ]
    parts = memory_parts(table(*rows, {"zero_stage": 3, "data_parallel": 2}), WORKLOAD)
    assert np.isnan(parts["optimizer"]).tolist() == [True, True, False, False]
