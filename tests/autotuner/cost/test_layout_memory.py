"""Each expected number is worked out by hand in the comment beside it; properties below."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import LayoutColumns, memory_bytes
from autoconf_launch.autotuner.cost.memory import peak_bytes
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import (
    Architecture,
    Candidate,
    Experts,
    Framework,
    FrozenPart,
    LatentAttention,
    Layout,
    Offload,
    Optimizer,
    Precision,
    Recompute,
    Software,
    Workload,
)
from autoconf_launch.tuning_spaces import named_model, trainer

from ..builders import architecture

# 4 layers of 10 wide: 12 h^2 + 13 h = 1330 weights each; 100 tokens: 1000; last norm: 20.
GPT = architecture(layers=4, hidden=10, heads=2, vocabulary=100)
WEIGHTS = 4 * 1330 + 1000 + 20
OLD = Workload(
    model=GPT,
    sequence_length=8,
    software=Software(framework=Framework.MEGATRON, flash_attention=False, dropout=True),
)
NEW = replace(OLD, software=Software(framework=Framework.MEGATRON))
TORCH = replace(NEW, software=Software(framework=Framework.FSDP))


def parts(workload: Workload, model: Architecture = GPT, **layout: Any) -> dict[str, Any]:
    """Bytes by part: a number for one stage, a list for more."""
    layers = layout.pop("recompute_layers", -1)
    columns = LayoutColumns.from_layouts([Layout(**layout)], [layers])
    stages = np.arange(layout.get("pipeline_parallel", 1))[:, None]
    memory = memory_bytes(columns, replace(workload, model=model), stages)
    found = {}
    for name, sizes in memory.named:
        wide = np.broadcast_to(sizes, stages.shape)[:, 0]
        found[name] = float(wide[0]) if len(wide) == 1 else [float(size) for size in wide]
    return found


def activations(found: dict[str, Any]) -> float:
    names = ("norms", "attention", "scores", "mlp", "dropout", "inputs")
    return sum(float(found[name]) for name in names)


def test_megatron_needs_18_bytes_for_each_weight_in_bf16() -> None:
    found = parts(NEW)
    state = (found["weights"], found["gradients"], found["optimizer"])
    assert state == (2 * WEIGHTS, 4 * WEIGHTS, 12 * WEIGHTS)


def test_its_distributed_optimizer_shares_12_of_them() -> None:
    found = parts(NEW, zero_stage=1, data_parallel=4)
    state = (found["weights"], found["gradients"], found["optimizer"])
    assert state == (2 * WEIGHTS, 4 * WEIGHTS, 3 * WEIGHTS)


def test_fsdp_shares_16_bytes_over_data_and_context_ranks() -> None:
    found = parts(TORCH, zero_stage=3, data_parallel=2, context_parallel=2)
    state = (found["weights"], found["gradients"], found["optimizer"])
    assert state == (WEIGHTS, WEIGHTS, 2 * WEIGHTS)


def test_deepspeed_keeps_fp32_gradients_beside_those_in_bf16() -> None:
    found = parts(replace(NEW, software=Software(framework=Framework.DEEPSPEED)))
    assert found["gradients"] == 6 * WEIGHTS


@pytest.mark.parametrize(
    ("optimizer", "each"), [("sgd", 4.0), ("momentum", 8.0), ("adam8bit", 4 + 2 + 8 / 256)]
)
def test_other_optimizers_keep_less(optimizer: str, each: float) -> None:
    assert (
        parts(replace(NEW, optimizer=Optimizer.from_name(optimizer)))["optimizer"]
        == each * WEIGHTS
    )


def test_a_layer_keeps_what_korthikanti_counts() -> None:
    # 4 layers of s b h (34 + 5 a s / h) = 8 * 10 * (34 + 5 * 2 * 8 / 10) = 3360
    assert activations(parts(OLD)) == 4 * 3360


def test_tensor_parallelism_splits_24_of_34() -> None:
    # s b h (10 + 24 / 2 + 5 a s / h / 2) = 80 * (10 + 12 + 4)
    assert activations(parts(OLD, tensor_parallel=2)) == 4 * 80 * 26


def test_sequence_parallelism_splits_the_other_10_too() -> None:
    found = parts(OLD, tensor_parallel=2, sequence_parallel=True)
    assert activations(found) == 4 * 80 * 21


def test_context_parallelism_splits_all_tokens() -> None:
    assert activations(parts(OLD, context_parallel=2)) == 4 * 3360 / 2


def test_selective_recomputation_drops_the_scores() -> None:
    assert activations(parts(OLD, recompute=Recompute.SELECTIVE)) == 4 * 80 * 34


def test_full_recomputation_keeps_the_inputs_and_works_on_one_layer() -> None:
    found = parts(OLD, recompute=Recompute.FULL)
    # inputs: 2 s b h; one layer again, and gradients of 2 (2 h + 2 * 4 h) for each token,
    # beyond 6 bytes for each of 8 * 100 logits
    assert found["inputs"] == 4 * 160
    assert found["working"] == 3360 + 8 * 2 * (20 + 80) - 4800 * (4800 < 4960) + 0


def test_some_layers_of_a_stage_can_be_recomputed() -> None:
    found = parts(OLD, recompute=Recompute.FULL, recompute_layers=1)
    assert activations(found) == 160 + 3 * 3360


def test_flash_attention_keeps_one_sum_for_each_head() -> None:
    # q, k, v, output, projections' input: 5 * 2 h; 4 bytes for each of 2 heads; 8 tokens
    found = parts(NEW)
    assert (found["scores"], found["attention"]) == (0, 4 * 8 * (100 + 8))


def test_grouped_queries_keep_fewer_keys_and_values() -> None:
    found = parts(NEW, replace(GPT, kv_heads=1))
    assert found["attention"] == 4 * 8 * (80 + 8)


def test_a_gated_perceptron_keeps_both_branches() -> None:
    # input 2 h, two branches and their product of 40 in 16 bits
    assert parts(NEW, replace(GPT, gated=True))["mlp"] == 4 * 8 * (20 + 3 * 80)


def test_stages_hold_fewer_micro_batches_towards_the_end() -> None:
    found = parts(OLD, pipeline_parallel=4, accumulation=8)
    kept = [
        sum(found[name][stage] for name in ("norms", "attention", "scores", "mlp", "dropout"))
        for stage in range(4)
    ]
    assert kept == [4 * 3360, 3 * 3360, 2 * 3360, 3360]


def test_an_interleaved_schedule_holds_more() -> None:
    found = parts(OLD, pipeline_parallel=2, virtual_pipeline=2, accumulation=8)
    # 2 (p - 1) + (v - 1) p + 1 = 5 chunks of one layer; 3 on the last stage
    assert [found["mlp"][stage] / (8 * (2 + 16 + 0) * 10) for stage in (0, 1)] == [5, 3]


def test_no_stage_holds_more_micro_batches_than_a_step_has() -> None:
    found = parts(OLD, pipeline_parallel=4, accumulation=1)
    assert len(set(found["mlp"])) == 1


def test_embedding_and_head_lie_on_the_ends() -> None:
    found = parts(NEW, pipeline_parallel=4)
    # the tied matrix is on both ends, the last norm beside it
    assert found["weights"] == [2 * 2330, 2 * 1330, 2 * 1330, 2 * 2350]


def test_two_layers_too_few_are_missing_at_the_ends() -> None:
    found = parts(NEW, replace(GPT, layers=6, tied_embeddings=False), pipeline_parallel=4)
    assert found["weights"] == [2 * (1330 + 1000), 2 * 2660, 2 * 2660, 2 * (1330 + 1020)]


def test_logits_are_on_the_last_stage_alone() -> None:
    found = parts(NEW, pipeline_parallel=2, tensor_parallel=2)
    # 6 bytes for each of 8 * 100 logits, halved
    assert found["logits"] == [0, 6 * 800 / 2]


@pytest.mark.parametrize("workload", [OLD, NEW, TORCH], ids=["old", "new", "torch"])
@pytest.mark.parametrize("micro_batches", [2, 64])
def test_more_stages_keep_the_logits_of_one_micro_batch(
    workload: Workload, micro_batches: int
) -> None:
    whole = parts(workload)["logits"]
    for stages in (2, 4):
        found = parts(workload, pipeline_parallel=stages, accumulation=micro_batches)
        assert found["logits"] == [0] * (stages - 1) + [whole]


def test_experts_are_split_over_expert_ranks_and_their_copies_kept() -> None:
    moe = replace(GPT, gated=True, biases=False, experts=Experts(count=4, per_token=2, ffn=40))
    one, two = (
        parts(NEW, moe, data_parallel=2),
        parts(NEW, moe, data_parallel=2, expert_parallel=2),
    )
    # 3 * 10 * 40 weights of each of 2 experts in 4 layers lie elsewhere
    assert one["weights"] - two["weights"] == 2 * 4 * 2 * 1200


MOE = replace(GPT, gated=True, biases=False, experts=Experts(count=4, per_token=2, ffn=40))
LATENT = replace(
    GPT,
    biases=False,
    latent=LatentAttention(query_rank=6, key_value_rank=4, rope_head=2, value_head=5),
)


def test_megatron_makes_norms_and_activations_of_experts_again() -> None:
    """8 tokens in 4 layers: 2 copies of 40 values, and two norms' outputs of 10 of them."""
    none, some = (
        parts(NEW, MOE, recompute=kind) for kind in (Recompute.NONE, Recompute.SELECTIVE)
    )
    assert none["mlp"] - some["mlp"] == 2 * 8 * 4 * (2 * 40 + 10)
    assert none["attention"] - some["attention"] == 2 * 8 * 4 * 10
    assert none["norms"] == some["norms"]


def test_megatron_makes_what_comes_of_latents_again() -> None:
    """It keeps latents of 4 + 2 + 6, the output of 2 heads of 5, and a sum in fp32 for each."""
    some = parts(NEW, LATENT, recompute=Recompute.SELECTIVE)
    assert some["attention"] == 8 * 4 * (2 * (4 + 2 + 6) + 2 * 2 * 5 + 4 * 2)


def test_results_of_experts_are_kept_where_the_router_scales_them_behind() -> None:
    ours, torch = (parts(one, MOE, zero_stage=2)["mlp"] for one in (NEW, TORCH))
    # 2 copies of 10 values in 16 bits, 8 tokens in 4 layers
    assert torch - ours == 2 * 2 * 10 * 8 * 4


def test_lora_trains_its_adapters_alone() -> None:
    found = parts(replace(NEW, lora_rank=2))
    # r (d + k): query, key, value, out 4 * 2 * 20, up and down 2 * 2 * 50; 4 layers
    adapters = 4 * (160 + 200)
    assert found["gradients"] == 4 * adapters
    assert found["weights"] == 2 * adapters + 2 * WEIGHTS


def test_frozen_parts_have_no_gradients() -> None:
    found = parts(replace(NEW, frozen=frozenset({FrozenPart.EMBEDDING})))
    assert found["gradients"] == 4 * (WEIGHTS - 1000)


def test_an_offloaded_optimizer_is_not_on_the_device() -> None:
    assert parts(NEW, offload=Offload.OPTIMIZER)["optimizer"] == 0


def test_fp32_gradients_of_fp16_are_made_when_activations_are_gone() -> None:
    found = parts(replace(NEW, precision=Precision.FP16, sequence_length=1))
    rest = sum(found[name] for name in ("norms", "attention", "mlp", "logits", "working"))
    assert found["update"] == 4 * WEIGHTS - rest - found["embedding"]


LAYOUTS = st.builds(
    Layout,
    data_parallel=st.sampled_from([2, 8, 64]),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    pipeline_parallel=st.sampled_from([1, 2, 4, 8]),
    context_parallel=st.sampled_from([1, 2]),
    zero_stage=st.integers(0, 3),
    micro_batch=st.sampled_from([1, 2, 4]),
    accumulation=st.sampled_from([1, 8, 64]),
    recompute=st.sampled_from(list(Recompute)),
    sequence_parallel=st.booleans(),
    offload=st.sampled_from([Offload.NONE, Offload.OPTIMIZER]),
)
LLAMA = architecture(
    "llama",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    vocabulary=128256,
    gated=True,
    tied_embeddings=False,
    biases=False,
)
MODELS = st.sampled_from(
    [
        LLAMA,
        replace(LLAMA, gated=False, tied_embeddings=True, biases=True),
        replace(LLAMA, experts=Experts(count=8, per_token=2, ffn=2048, shared=1, first_dense=3)),
        replace(LLAMA, encoder_layers=32),
    ]
)
WORKLOADS = st.builds(
    Workload,
    model=MODELS,
    sequence_length=st.sampled_from([512, 4096]),
    precision=st.sampled_from([Precision.BF16, Precision.FP16, Precision.FP32]),
    software=st.builds(
        Software,
        framework=st.sampled_from(list(Framework)),
        flash_attention=st.booleans(),
        dropout=st.booleans(),
    ),
)


def peak(layout: Layout, workload: Workload) -> float:
    return float(peak_bytes(LayoutColumns.from_layouts([layout]), workload)[0])


@settings(max_examples=150, deadline=None)
@given(LAYOUTS, WORKLOADS)
def test_more_tensor_parallelism_never_needs_more(layout: Layout, workload: Workload) -> None:
    wider = replace(layout, tensor_parallel=2 * layout.tensor_parallel)
    assert peak(wider, workload) <= peak(layout, workload) * (1 + 1e-9)


@settings(max_examples=150, deadline=None)
@given(LAYOUTS, WORKLOADS)
def test_recomputation_never_needs_more(layout: Layout, workload: Workload) -> None:
    kept = peak(replace(layout, recompute=Recompute.NONE), workload)
    assert peak(layout, workload) <= kept * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(LAYOUTS, WORKLOADS)
def test_a_larger_micro_batch_never_needs_less(layout: Layout, workload: Workload) -> None:
    larger = replace(layout, micro_batch=2 * layout.micro_batch)
    assert peak(larger, workload) >= peak(layout, workload) * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(LAYOUTS, WORKLOADS)
def test_the_few_stages_looked_at_hold_the_fullest_one(layout: Layout, workload: Workload) -> None:
    columns = LayoutColumns.from_layouts([layout])
    every = memory_bytes(columns, workload, np.arange(layout.pipeline_parallel)[:, None])
    assert peak(layout, workload) == pytest.approx(float(every.peak_C[0]))


@settings(max_examples=30, deadline=None)
@given(st.lists(LAYOUTS, min_size=2, max_size=5), WORKLOADS)
def test_a_table_of_one_row_equals_that_row_of_a_longer_one(
    layouts: list[Layout], workload: Workload
) -> None:
    table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
    together = peak_bytes(LayoutColumns.from_table(table), workload)
    assert together.tolist() == pytest.approx([peak(one, workload) for one in layouts])


def test_axes_that_broadcast_give_what_a_flat_table_gives() -> None:
    micro, tensor = np.array([[1, 2, 4]]), np.array([[1], [2]])
    layouts = [Layout(micro_batch=m, tensor_parallel=t) for t in (1, 2) for m in (1, 2, 4)]
    one = LayoutColumns.from_layouts([Layout()])
    square = one.map_columns(lambda column: column[:, None])
    axes = replace(square, micro_batch_C=micro, tensor_C=tensor)
    llama = replace(NEW, model=LLAMA)
    flat = peak_bytes(LayoutColumns.from_layouts(layouts), llama)
    assert peak_bytes(axes, llama).reshape(-1).tolist() == flat.tolist()


def test_layers_to_recompute_come_from_the_extra_of_a_table() -> None:
    rows = [
        Candidate(layout=Layout(recompute=Recompute.FULL), extras=(("recompute_layers", 2),)),
        Candidate(layout=Layout(recompute=Recompute.FULL)),
    ]
    table = CandidateTable.from_candidates(rows)
    assert LayoutColumns.from_table(table).recompute_layers_C.tolist() == [2, -1]


@pytest.mark.parametrize(
    ("recompute", "chunks", "published_gib"),
    [(Recompute.NONE, 1, 51.0), (Recompute.FULL, 8, 24.9)],
)
def test_torchtune_s_published_peaks_are_met(
    recompute: Recompute, chunks: int, published_gib: float
) -> None:
    """Llama 3.2 3B, two samples of 4,096 tokens, compiled (pytorch/torchtune, README.md)."""
    workload = trainer("torchtune").apply_to(
        Workload(
            model=named_model("llama3.2-3b"),
            sequence_length=4096,
            global_batch=2,
            software=Software(compiled=True),
        )
    )
    workload = replace(workload, software=replace(workload.software, loss_chunks=chunks))
    layout = LayoutColumns.from_layouts([Layout(micro_batch=2, recompute=recompute)])
    peak = float(memory_bytes(layout, workload).peak_C[0])
    assert peak / 2**30 == pytest.approx(published_gib, rel=0.07)


def test_gradients_of_several_micro_batches_stay_beside_activations() -> None:
    workload = trainer("huggingface").apply_to(
        Workload(model=named_model("gpt2"), sequence_length=1024, global_batch=8)
    )
    once, often = (
        LayoutColumns.from_layouts([Layout(micro_batch=4, accumulation=n)]) for n in (1, 2)
    )
    first, later = (memory_bytes(one, workload) for one in (once, often))
    assert first["gradients"].max() < later["gradients"].max()
    assert first.peak_C[0] < later.peak_C[0]
