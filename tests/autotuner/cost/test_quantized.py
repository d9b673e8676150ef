"""Quantized weights: bytes and seconds by hand, and against what was published of QLoRA."""

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import estimate, memory_bytes
from autoconf_launch.core import Framework, Layout, Recompute, Software, WeightFormat, Workload
from autoconf_launch.tuning_spaces import machine, named_model

from ..builders import layout_of, layouts

LLAMA = named_model("llama-7b")
LORA = Workload(
    model=LLAMA,
    sequence_length=512,
    lora_rank=16,
    software=Software(framework=Framework.FSDP),
)
MATRICES = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
OUTSIDE = 2 * 32000 * 4096 + (2 * 32 + 1) * 4096  # embedding, head and norms
ADAPTERS = 32 * 16 * (8 * 4096 + 3 * (4096 + 11008))
ONE = Layout(zero_stage=0)


def parts(workload: Workload, layout: Layout = ONE) -> dict[str, float]:
    memory = memory_bytes(layouts(layout), workload)
    return {name: float(np.broadcast_to(sizes, (2, 1))[0, 0]) for name, sizes in memory.named}


def step(workload: Workload, layout: Layout = ONE) -> dict[str, float]:
    columns = layouts(layout)
    found = estimate(columns, workload, machine("A100", gpus_per_node=8))
    return {name: float(seconds[0]) for name, seconds in found.parts}


def test_matrices_are_unpacked_for_use_and_adapters_trained_in_16_bits() -> None:
    assert 8 * WeightFormat.NF4.bytes_each == pytest.approx(4.127, abs=5e-4)
    assert parts(LORA)["gathered"] == 0
    quantized = replace(LORA, weight_format=WeightFormat.NF4)
    assert parts(quantized)["gathered"] == 4096 * 11008 * 2
    halved = parts(quantized, replace(ONE, tensor_parallel=2))["gathered"]
    assert halved == 4096 * 11008
    several = parts(quantized, replace(ONE, accumulation=2))
    assert (several["gradients"], several["optimizer"]) == (2 * ADAPTERS, 8 * ADAPTERS)
    assert replace(LORA, weight_format=None) == LORA
    assert LORA.frozen_matrix_bytes == 2


@pytest.mark.parametrize("form", list(WeightFormat))
def test_matrices_are_stored_in_the_format_and_the_rest_in_16_bits(form: WeightFormat) -> None:
    quantized = replace(LORA, weight_format=form)
    expected = MATRICES * form.bytes_each + 2 * (OUTSIDE + ADAPTERS)
    assert parts(quantized)["weights"] == pytest.approx(expected)


def test_sharded_quantized_weights_are_unpacked_for_each_pass() -> None:
    layout = layout_of("zero=3 dp=8")
    nf4 = parts(replace(LORA, weight_format=WeightFormat.NF4), layout)
    plain = parts(LORA, layout)
    assert nf4["weights"] == pytest.approx(parts_of_one(WeightFormat.NF4) / 8)
    assert nf4["gathered"] < plain["gathered"]
    # Traffic of forward and backward; with full recomputation forward comes twice.
    quantized, a100 = replace(LORA, weight_format=WeightFormat.NF4), machine("A100")
    moved = MATRICES * (WeightFormat.NF4.bytes_each + 2)
    rate = a100.accelerator.memory_bytes_per_s * a100.physics.memory_efficiency
    starts = 32 * 7 * a100.physics.kernel_s
    once = moved / rate + starts
    more = step(quantized)["kernels"] - step(LORA)["kernels"]
    assert more == pytest.approx(2 * once, rel=1e-6)
    full = replace(ONE, recompute=Recompute.FULL)
    again = step(quantized, full)["recompute"] - step(LORA, full)["recompute"]
    assert again == pytest.approx(once, rel=1e-6)


def parts_of_one(form: WeightFormat) -> float:
    return parts(replace(LORA, weight_format=form))["weights"]


@pytest.mark.parametrize(
    ("model", "published_gb", "within"),
    [
        ("llama-7b", 6.9, 0.10),
        ("llama-13b", 11.3, 0.06),
        ("llama-33b", 24.7, 0.04),
        ("llama-65b", 45.0, 0.04),
    ],
)
def test_memory_is_that_of_the_qlora_paper(model: str, published_gb: float, within: float) -> None:
    """Dettmers et al. 2023, appendix, "Memory footprint": sums for one sample of 512 tokens with
    rank 64 on every matrix, without the device's context (numbers recalled); its scripts
    accumulate 16 micro-batches (github.com/artidoro/qlora, scripts)."""
    qlora = replace(LORA, model=named_model(model), lora_rank=64, weight_format=WeightFormat.NF4)
    found = parts(qlora, replace(ONE, recompute=Recompute.FULL, accumulation=16))
    total = sum(size for name, size in found.items() if name != "context")
    assert total / 1e9 == pytest.approx(published_gb, rel=within)


def test_published_qlora_runs_fit_as_they_did() -> None:
    # The paper's abstract: 65B on one GPU of 48 GB.
    lora = replace(LORA, model=named_model("llama-65b"), lora_rank=64)
    layout = replace(ONE, recompute=Recompute.FULL)
    quantized = replace(lora, weight_format=WeightFormat.NF4)
    assert sum(parts(quantized, layout).values()) < 48e9
    assert sum(parts(lora, layout).values()) > 130e9
    # 44.8 GB a GPU on 8 A100 with QLoRA and FSDP (torchtune's README, "Memory and training
    # speed", Llama 3.1 405B); its batch is taken for one sample of 2048 tokens.
    llama = named_model("llama3.1-405b")
    qlora = replace(LORA, model=llama, sequence_length=2048, weight_format=WeightFormat.NF4)
    layout = layout_of("zero=3 dp=8 recompute=full")
    peak = float(memory_bytes(layouts(layout), qlora).peak_C[0])
    assert peak / 1e9 == pytest.approx(44.8, rel=0.12)
