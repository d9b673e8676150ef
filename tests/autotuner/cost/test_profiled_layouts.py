"""Layouts beyond data parallelism of a model that was profiled; numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
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
    MicroBatchTiming,
    ModelSpec,
    Node,
    Optimizer,
    Precision,
    Recompute,
    SplitPart,
    Workload,
)

from ...rows import rows
from ..builders import OneLayout, table

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


def of(spec: ModelSpec) -> Workload:
    return replace(WORKLOAD, model=spec)


def step(words: OneLayout, network: Network | None = None, spec: ModelSpec = MODEL) -> StepParts:
    return profiled_step_parts(table(words), of(spec), network)


def step_s(words: OneLayout, network: Network | None = None) -> float:
    return float(step(words, network).step_s_C[0])


def exchanged_s(network: Network, words: str, spec: ModelSpec = MODEL) -> float:
    return float(step(words, network, spec).communication_s_C[0])


def memory(words: OneLayout, spec: ModelSpec = MODEL) -> dict[str, float]:
    found = memory_parts(table(words), of(spec))
    return {**{name: float(sizes[0]) for name, sizes in found.named}, "peak": found.peak_C[0]}


def with_blocks(**changes: Any) -> ModelSpec:
    first, blocks, head = MODEL.blocks
    return replace(MODEL, blocks=(first, replace(blocks, **changes), head))


@rows(
    "words, expected_s",
    {
        # 5 s in all, 3.6 s of them split: a half of these is saved, of the profiled 10 s.
        "between columns and rows by tensor ranks": ("tp=2", 10 * (1 - 1.8 / 5.0)),
        "of all of a block under sequence parallelism": ("tp=2 sp", 10 * (1 - 2.0 / 5.0)),
        "of all tokens by context ranks": ("cp=2", 10 / 2),
    },
)
def test_ranks_share_the_time_of_samples(words: str, expected_s: float) -> None:
    assert step(words).ideal_s_C[0] == pytest.approx(expected_s)


def test_tensor_ranks_update_their_weights_and_share_their_traffic() -> None:
    assert step("tp=2").update_s_C[0] == pytest.approx(1 - 4 * 160 / 2 / 1200)
    times = tuple(replace(t, forward_backward_s=2.0 + t.micro_batch) for t in MODEL.timings)
    found = step("tp=2", spec=replace(MODEL, timings=times)).launch_s_C[0]
    assert found == pytest.approx(2 - 4 / 7 * 4 * 160 / 2 / 1200)


@rows(
    "network, words, more_than, expected_s",
    {
        "for each row and column": (STARTS, "tp=2", "", 4 * (3 + 1)),
        "for rows made again": (STARTS, "tp=2 recompute=full", "", 4 * (3 + 1 + 1)),
        # Two samples of 5 x 2 values of 4 bytes: 80 bytes, whose halves go to and fro.
        "of the hidden state": (BYTES, "tp=2 micro=2", "", 4 * 4 * 80),
        # One gather before the columns, one after the rows of each block; norms once a step.
        "of norms under sequence parallelism": (STARTS, "tp=2 sp", "tp=2", 4 * 2 + 1),
        # ZeRO 1 reduces with the last micro-batch; the others have the blocks' own reductions.
        "of each micro-batch": (STARTS, "tp=2 dp=2 zero=1 acc=3", "tp=2 dp=2 zero=1", 2 * 4 * 4),
        # There and back in each block; DDP's one bucket travels beside the backward pass.
        "of keys and values by context ranks": (STARTS, "cp=2", "", 2 * 4),
        "of gradients by context as by data ranks": (
            STARTS,
            *("cp=2 zero=2 acc=3", "dp=2 zero=2 acc=3", 3 * 2 * 4),
        ),
    },
)
def test_ranks_exchange(network: Network, words: str, more_than: str, expected_s: float) -> None:
    found = exchanged_s(network, words) - exchanged_s(network, more_than)
    assert found == pytest.approx(expected_s)


VALUES = 1200 - 4 * 160 / 2
GPIPE = "pp=2 acc=8 pipeline_schedule=gpipe"
KEYS = 2 * 2 * 5 * 4 / 2  # two of 5 x 2 values of 4 bytes, half of them others'
TIED = replace(
    MODEL, blocks=(*MODEL.blocks[:2], replace(MODEL.blocks[2], parameters=0, tied_parameters=200))
)
SPARSE = with_blocks(expert_parameters=100, experts_per_token=2)


@rows(
    "words, part, expected",
    {
        "weights of tensor ranks": ("tp=2", "weights", 4 * VALUES),
        "gradients of tensor ranks": ("tp=2", "gradients", 4 * VALUES),
        "state of tensor ranks": ("tp=2", "optimizer", 8 * VALUES),
        "shares between columns and rows": ("tp=2", "activations", 440 - 4 * 30),
        "ZeRO 1's shards of weights": ("tp=2 dp=4 zero=1", "weights", 4 * VALUES / 4),
        # First stage: 10 + 2 x 100, twice under 1F1B. Last stage: 2 x 100 + 30, once.
        "activations that wait": ("pp=2 acc=8", "activations", 2 * 210),
        "activations of all micro-batches": (GPIPE, "activations", 8 * 230),
        "weights of a stage": ("pp=2", "weights", 4 * 600),
        "whole gradients in ZeRO 2": ("pp=2 dp=2 zero=2 acc=4", "copies", 4 * 600),
        "a share of tokens and others' keys": ("cp=2", "activations", 440 / 2 + 4 * KEYS),
        "shards over some ranks": ("dp=8 zero=3 shard_ranks=2", "weights", 4 * 1200 / 2),
        # One block is computed again, one at a time is whole.
        "a block that is recomputed": (
            "recompute=full recompute_layers=1",
            *("activations", 440 - 80 + 80),
        ),
    },
)
def test_a_rank_holds(words: str, part: str, expected: float) -> None:
    assert memory(words)[part] == expected


def test_experts_and_tied_weights_lie_where_their_ranks_are() -> None:
    assert memory("pp=2 acc=2", TIED)["weights"] == 4 * 600
    assert memory("dp=2 ep=2", SPARSE)["weights"] == 4 * (1200 - 4 * 50)
    assert memory("tp=2 dp=4 zero=1")["gathered"] > 4 * VALUES
    sparse = replace(MODEL.blocks[1], expert_parameters=200, experts_per_token=2)
    found = exchanged_s(BYTES, "dp=2 ep=2", replace(MODEL, blocks=(sparse,)))
    # Four blocks, twice there and back, of 2 x 5 x 2 values of 4 bytes, half of them away.
    assert found == pytest.approx(4 * 4 * 80 / 2)


@rows(
    "words, expected_s",
    {
        # Stages of 2.1 s and 2.9 s of 5; ten micro-batches, the first through both.
        "the slowest one": ("pp=2 acc=10", 10 / 5 * (10 * 2.9 + 2.1) + 0.5),
        # 0.1 + 3 x 1 s and 1 x 1 + 0.9 s.
        "a split": ("pp=2 acc=10 split=3,1", 10 / 5 * (10 * 3.1 + 1.9) + 800 / 1200),
        # Interleaved ones fill half of the bubble.
        "interleaving": ("pp=2 acc=4 vpp=2", 10 / 5 * (4 * 2.9 + 2.1 / 2) + 0.5),
    },
)
def test_stages_keep_the_pace_of(words: str, expected_s: float) -> None:
    assert step_s(words) == pytest.approx(expected_s)


@rows(
    "words, spec",
    {
        "tensor ranks without a plan": ("tp=2", with_blocks(split=None)),
        "more stages than blocks": ("pp=5", MODEL),
        "more chunks than blocks": ("pp=4 vpp=2 acc=4", MODEL),
        "expert ranks without experts": ("dp=2 ep=2", MODEL),
    },
)
def test_nothing_is_predicted_of(words: str, spec: ModelSpec) -> None:
    assert np.isnan(step(words, spec=spec).step_s_C[0])
    assert np.isnan(memory(words, spec)["peak"]) or "pp=4" in words


def test_uneven_micro_batches_and_recomputed_layers_lie_between() -> None:
    assert step_s("dp=2 micro=4 micros=5,3") == step_s("dp=2 micro=5")
    none, full = step_s(""), step_s("recompute=full")
    some = step_s("recompute=full recompute_layers=1")
    assert some == pytest.approx(none + (full - none) / 4)


def test_a_limit_of_memory_leaves_the_layouts_that_share_the_model_out() -> None:
    sharing = table("dp=2", "tp=2", "pp=2")
    device = Device(name="cpu (arm)", memory_bytes=15_000)
    cluster = ClusterSpec(nodes=(Node(host="h", devices=(device, device)),))
    found = estimate(sharing, WORKLOAD, cluster)
    kept = memory_rule(found, cluster, band=0.1).keep(sharing)
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


@given(layout=LAYOUTS, tensor=DEGREES, sequence=st.booleans())
def test_more_tensor_ranks_never_have_more_weights_or_activations(
    layout: dict[str, Any], tensor: int, sequence: bool
) -> None:
    few = memory({"tensor_parallel": tensor, **layout})
    more = memory(
        {"tensor_parallel": 2 * tensor, "sequence_parallel": sequence, **layout},
    )
    assert all(more[x] <= few[x] for x in ("weights", "gradients", "optimizer", "activations"))


@given(layout=LAYOUTS, more=st.integers(2, 5))
def test_more_micro_batches_make_the_bubble_a_smaller_share(
    layout: dict[str, Any], more: int
) -> None:
    def share(accumulation: int) -> float:
        even = {**layout, "pipeline_parallel": 2, "accumulation": accumulation}
        parts = step(even, spec=replace(MODEL, optimizer_step_s=0.0))
        return float(parts.bubble_s_C[0] / parts.step_s_C[0])

    assert share(layout["accumulation"] * more) < share(layout["accumulation"])


@given(layout=LAYOUTS, tensor=DEGREES)
def test_no_step_comes_below_that_of_equal_work_on_all_ranks(
    layout: dict[str, Any], tensor: int
) -> None:
    ranks = tensor * layout["pipeline_parallel"] * layout["context_parallel"]
    samples = layout["micro_batch"] * layout["accumulation"]
    assert step_s({"tensor_parallel": tensor, **layout}, BYTES) >= 10 * samples / ranks


@given(layouts=st.lists(LAYOUTS, min_size=2, max_size=3))
def test_a_row_is_predicted_as_it_is_alone(layouts: list[dict[str, Any]]) -> None:
    together = table(*layouts)
    together_s = profiled_step_parts(together, WORKLOAD, BYTES).step_s_C
    assert together_s.tolist() == [step_s(one, BYTES) for one in layouts]
    peaks = memory_parts(together, WORKLOAD).peak_C
    assert peaks.tolist() == [memory(one)["peak"] for one in layouts]


@pytest.mark.parametrize("name", ["offload_optimizer.device", "offload_param.device"])
def test_memory_is_not_predicted_if_the_framework_keeps_a_part_elsewhere(name: str) -> None:
    devices = [f"zero=3 dp=2 {name}={device}" for device in ("cpu", "nvme", "none")]
    parts = memory_parts(table(*devices, "zero=3 dp=2"), WORKLOAD)
    assert np.isnan(parts["optimizer"]).tolist() == [True, True, False, False]
