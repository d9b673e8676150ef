"""Each expected number is worked out by hand in the comment beside it; properties below."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import memory_bytes
from autoconf_launch.autotuner.cost.memory import broadcast_sum, peak_bytes
from autoconf_launch.core import (
    Architecture,
    Experts,
    Framework,
    FrozenPart,
    LatentAttention,
    Layout,
    Loss,
    Offload,
    Optimizer,
    Precision,
    Recompute,
    Software,
    Workload,
)
from autoconf_launch.tuning_spaces import named_model, trainer

from ...rows import rows
from ..builders import architecture, layouts

# 4 layers of 10 wide: 12 h^2 + 13 h = 1330 weights each; 100 tokens: 1000; last norm: 20.
GPT = architecture(layers=4, hidden=10, heads=2, vocabulary=100)
WEIGHTS = 4 * 1330 + 1000 + 20
MOE = replace(GPT, gated=True, biases=False, experts=Experts(count=4, per_token=2, ffn=40))
LATENT = replace(
    GPT,
    biases=False,
    latent=LatentAttention(query_rank=6, key_value_rank=4, rope_head=2, value_head=5),
)
OLD = Workload(
    model=GPT,
    sequence_length=8,
    software=Software(framework=Framework.MEGATRON, flash_attention=False, dropout=True),
)
NEW = replace(OLD, software=Software(framework=Framework.MEGATRON))
TORCH = replace(NEW, software=Software(framework=Framework.FSDP))
DEEPSPEED = replace(NEW, software=Software(framework=Framework.DEEPSPEED))
ADAM_8 = replace(NEW, optimizer=Optimizer.from_name("adam8bit"))
LORA = replace(NEW, lora_rank=2)
FROZEN = replace(NEW, frozen=frozenset({FrozenPart.EMBEDDING}))
SIX = replace(GPT, layers=6, tied_embeddings=False)
MOES = (replace(NEW, model=MOE),) * 2
ROUTED = (replace(TORCH, model=MOE), replace(NEW, model=MOE))


def parts(workload: Workload, words: str = "") -> dict[str, Any]:
    """Bytes by part, and of what is kept for backward: a number for one stage, a list for more."""
    columns = layouts(words)
    stages = np.arange(columns.pipeline_C[0])[:, None]
    memory = memory_bytes(columns, workload, stages)
    found = {name: np.broadcast_to(sizes, stages.shape)[:, 0] for name, sizes in memory.named}
    names = ("norms", "attention", "scores", "mlp", "dropout", "inputs")
    found["kept"] = np.sum([found[name] for name in names], axis=0)
    return {name: x.tolist() if len(x) > 1 else float(x[0]) for name, x in found.items()}


def of(model: Architecture, workload: Workload = NEW) -> Workload:
    return replace(workload, model=model)


@rows(
    "workload, words, bytes_each",
    {
        "18 by Megatron in bf16": (NEW, "", [2, 4, 12]),
        "12 of them shared by its distributed optimizer": (NEW, "zero=1 dp=4", [2, 4, 3]),
        "16 shared over data and context ranks by FSDP": (TORCH, "zero=3 dp=2 cp=2", [1, 1, 2]),
        "DeepSpeed's gradients in fp32 beside bf16": (DEEPSPEED, "", [2, 6, 12]),
        "no optimizer that is offloaded": (NEW, "offload=optimizer", [2, 4, 0]),
        "SGD's": (replace(NEW, optimizer=Optimizer.from_name("sgd")), "", [2, 4, 4]),
        "momentum's": (replace(NEW, optimizer=Optimizer.from_name("momentum")), "", [2, 4, 8]),
        "8-bit Adam's": (ADAM_8, "", [2, 4, 4 + 2 + 8 / 256]),
    },
)
def test_state_takes_bytes_for_each_weight(
    workload: Workload, words: str, bytes_each: list[float]
) -> None:
    found = parts(workload, words)
    each = [found[name] / WEIGHTS for name in ("weights", "gradients", "optimizer")]
    assert each == bytes_each


@rows(
    "words, kept",
    {
        # 4 layers of s b h (34 + 5 a s / h) = 8 * 10 * (34 + 5 * 2 * 8 / 10) = 3360
        "as Korthikanti counts": ("", 4 * 3360),
        # s b h (10 + 24 / 2 + 5 a s / h / 2) = 80 * (10 + 12 + 4)
        "24 of 34 split by tensor parallelism": ("tp=2", 4 * 80 * 26),
        "the other 10 split by sequence parallelism": ("tp=2 sp", 4 * 80 * 21),
        "all tokens split by context parallelism": ("cp=2", 4 * 3360 / 2),
        "no scores under selective recomputation": ("recompute=selective", 4 * 80 * 34),
        "inputs of 2 s b h under full recomputation": ("recompute=full", 4 * 160),
        "inputs of some layers": ("recompute=full recompute_layers=1", 160 + 3 * 3360),
        "fewer micro-batches towards the end": ("pp=4 acc=8", [n * 3360 for n in (4, 3, 2, 1)]),
        "no more micro-batches than a step has": ("pp=4 acc=1", [3360] * 4),
        # 2 (p - 1) + (v - 1) p + 1 = 5 chunks of one layer; 3 on the last stage
        "more chunks if interleaved": ("pp=2 vpp=2 acc=8", [5 * 3360, 3 * 3360]),
    },
)
def test_layers_keep_for_backward(words: str, kept: Any) -> None:
    assert parts(OLD, words)["kept"] == kept


def test_full_recomputation_works_on_one_layer_and_updates_after_activations() -> None:
    # one layer again, and gradients of 2 (2 h + 2 * 4 h) for each token, beyond 6 bytes for each
    # of 8 * 100 logits
    assert parts(OLD, "recompute=full")["working"] == 3360 + 8 * 2 * (20 + 80) - 4800
    found = parts(replace(NEW, precision=Precision.FP16, sequence_length=1))
    rest = sum(found[name] for name in ("norms", "attention", "mlp", "logits", "working"))
    assert found["update"] == 4 * WEIGHTS - rest - found["embedding"]
    workload = trainer("huggingface").apply_to(
        Workload(model=named_model("gpt2"), sequence_length=1024, global_batch=8)
    )
    first, later = (memory_bytes(layouts(f"micro=4 acc={n}"), workload) for n in (1, 2))
    assert first["gradients"].max() < later["gradients"].max()
    assert first.peak_C[0] < later.peak_C[0]


ENDS = [2 * 2330, 2 * 1330, 2 * 1330, 2 * 2350]
SHORT_ENDS = [2 * (1330 + 1000), 2 * 2660, 2 * 2660, 2 * (1330 + 1020)]
OF_LATENTS = 8 * 4 * (2 * (4 + 2 + 6) + 2 * 2 * 5 + 4 * 2)
ADAPTERS = 4 * (160 + 200)


@rows(
    "workload, words, part, expected",
    {
        # q, k, v, output, projections' input: 5 * 2 h; 4 bytes for each of 2 heads; 8 tokens
        "one sum for each head": (NEW, "", "attention", 4 * 8 * (100 + 8)),
        "no scores of flash attention": (NEW, "", "scores", 0),
        "fewer keys of groups": (of(replace(GPT, kv_heads=1)), "", "attention", 4 * 8 * (80 + 8)),
        # input 2 h, two branches and their product of 40 in 16 bits
        "both gated branches": (of(replace(GPT, gated=True)), "", "mlp", 4 * 8 * (20 + 3 * 80)),
        # latents of 4 + 2 + 6, the output of 2 heads of 5, and a sum in fp32 for each
        "only latents": (of(LATENT), "recompute=selective", "attention", OF_LATENTS),
        # the tied matrix is on both ends, the last norm beside it
        "embedding and head on the ends": (NEW, "pp=4", "weights", ENDS),
        "two layers too few at the ends": (of(SIX), "pp=4", "weights", SHORT_ENDS),
        # 6 bytes for each of 8 * 100 logits, halved
        "logits on the last stage": (NEW, "pp=2 tp=2", "logits", [0, 6 * 800 / 2]),
        # r (d + k): query, key, value, out 4 * 2 * 20, up and down 2 * 2 * 50; 4 layers
        "gradients of adapters": (LORA, "", "gradients", 4 * ADAPTERS),
        "adapters beside all weights": (LORA, "", "weights", 2 * ADAPTERS + 2 * WEIGHTS),
        "no gradients of frozen parts": (FROZEN, "", "gradients", 4 * (WEIGHTS - 1000)),
    },
)
def test_a_part_takes(workload: Workload, words: str, part: str, expected: Any) -> None:
    assert parts(workload, words)[part] == expected


@pytest.mark.parametrize("workload", [OLD, NEW, TORCH], ids=["old", "new", "torch"])
@pytest.mark.parametrize("micro_batches", [2, 64])
def test_more_stages_keep_the_logits_of_one_micro_batch(
    workload: Workload, micro_batches: int
) -> None:
    found = parts(workload, f"pp=4 acc={micro_batches}")
    assert found["logits"] == [0, 0, 0, parts(workload)["logits"]]


MADE_AGAIN = {"mlp": 2 * 8 * 4 * (2 * 40 + 10), "attention": 2 * 8 * 4 * 10, "norms": 0}


@rows(
    "workloads, words, differences",
    {
        # 3 * 10 * 40 weights of each of 2 experts in 4 layers lie elsewhere
        "experts of other ranks": (MOES, ("dp=2", "dp=2 ep=2"), {"weights": 2 * 4 * 2 * 1200}),
        # 8 tokens in 4 layers: 2 copies of 40 values, and two norms' outputs of 10 of them
        "norms and activations made again": (MOES, ("", "recompute=selective"), MADE_AGAIN),
        # 2 copies of 10 values in 16 bits, 8 tokens in 4 layers
        "results the router scales": (ROUTED, ("zero=2", "zero=2"), {"mlp": 2 * 2 * 10 * 8 * 4}),
    },
)
def test_a_mixture_keeps_less_without(
    workloads: tuple[Workload, Workload], words: tuple[str, str], differences: dict[str, float]
) -> None:
    more, less = map(parts, workloads, words)
    assert {name: more[name] - less[name] for name in differences} == differences


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
    return float(peak_bytes(layouts(layout), workload)[0])


@given(LAYOUTS, WORKLOADS)
def test_splitting_and_recomputing_need_no_more_and_a_larger_micro_batch_no_less(
    layout: Layout, workload: Workload
) -> None:
    columns = layouts(
        layout,
        replace(layout, tensor_parallel=2 * layout.tensor_parallel),
        replace(layout, recompute=Recompute.NONE),
        replace(layout, micro_batch=2 * layout.micro_batch),
    )
    one, wider, kept, larger = peak_bytes(columns, workload) * (1 + 1e-9 * np.array([0, -1, 1, 1]))
    assert wider <= one <= min(kept, larger)


@given(LAYOUTS, WORKLOADS)
def test_the_few_stages_looked_at_hold_the_fullest_one(layout: Layout, workload: Workload) -> None:
    stages = np.arange(layout.pipeline_parallel)[:, None]
    every = memory_bytes(layouts(layout), workload, stages)
    assert peak(layout, workload) == pytest.approx(float(every.peak_C[0]))


@settings(max_examples=30)
@given(st.lists(LAYOUTS, min_size=2, max_size=5), WORKLOADS)
def test_a_table_of_one_row_equals_that_row_of_a_longer_one(
    several: list[Layout], workload: Workload
) -> None:
    together = peak_bytes(layouts(*several), workload)
    assert together.tolist() == pytest.approx([peak(one, workload) for one in several])


def test_axes_that_broadcast_give_what_a_flat_table_gives() -> None:
    micro, tensor = np.array([[1, 2, 4]]), np.array([[1], [2]])
    flat = layouts(*(f"micro={m} tp={t}" for t in (1, 2) for m in (1, 2, 4)))
    square = layouts("").map_columns(lambda column: column[:, None])
    axes = replace(square, micro_batch_C=micro, tensor_C=tensor)
    assert peak_bytes(axes, of(LLAMA)).ravel().tolist() == peak_bytes(flat, of(LLAMA)).tolist()


@pytest.mark.parametrize(
    ("recompute", "loss", "published_gib"),
    [(Recompute.NONE, Loss.WHOLE, 51.0), (Recompute.FULL, Loss.CHUNKED, 24.9)],
)
def test_torchtune_s_published_peaks_are_met(
    recompute: Recompute, loss: Loss, published_gib: float
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
    workload = replace(workload, loss=loss)
    found = peak(Layout(micro_batch=2, recompute=recompute), workload)
    assert found / 2**30 == pytest.approx(published_gib, rel=0.07)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=8))
def test_arrays_of_one_shape_are_added_in_their_order(numbers: list[float]) -> None:
    assert broadcast_sum([np.array([x]) for x in numbers]).tolist() == [sum(numbers)]


def test_unequal_shapes_broadcast() -> None:
    total = broadcast_sum([np.array([[1.0], [2.0]]), np.array([[10.0, 20.0]]), np.array(100.0)])
    assert total.tolist() == [[111.0, 121.0], [112.0, 122.0]]
