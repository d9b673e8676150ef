"""Bytes of states, loss and offloaded activations, and published runs that need little memory."""

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import LayoutColumns, estimate, memory_bytes, parameters
from autoconf_launch.autotuner.cost.fitting import host_bytes
from autoconf_launch.core import (
    GIB,
    Framework,
    GradientSum,
    Layout,
    Loss,
    Offload,
    Optimizer,
    Recompute,
    Software,
    States,
    WeightFormat,
    Workload,
)
from autoconf_launch.tuning_spaces import machine, named_model, trainer

LLAMA = named_model("llama3.1-8b")
WEIGHTS = parameters(LLAMA)
PLAIN = Workload(model=LLAMA, sequence_length=2048)
ALONE = Layout()
EIGHT_BITS = 2 * (1 + 4 / 256)


def part(workload: Workload, name: str, layout: Layout = ALONE) -> float:
    return float(memory_bytes(LayoutColumns.from_layouts([layout]), workload)[name].max())


def peak(workload: Workload, layout: Layout) -> float:
    return float(memory_bytes(LayoutColumns.from_layouts([layout]), workload).peak_C[0])


@pytest.mark.parametrize(
    ("name", "states", "gradients", "each"),
    [
        ("megatron", None, None, (2, 4, 12)),
        ("megatron", States.BF16_MOMENTS, None, (2, 4, 8)),
        ("megatron", States.BF16_MASTER, GradientSum.BF16, (2, 2, 12)),
        ("nemo", None, GradientSum.FP32, (2, 4, 12)),
        ("deepspeed", None, None, (2, 6, 12)),
        ("deepspeed", States.BF16, None, (2, 2, 4)),
        ("torchtitan", None, None, (4, 4, 8)),
        ("torchtitan", States.BF16, None, (2, 2, 4)),
        ("torchtune", None, None, (2, 2, 4)),
        ("torchtune", States.FP32, None, (4, 4, 8)),
    ],
)
def test_each_word_has_its_bytes_for_weights_gradients_and_optimizer(
    name: str, states: States | None, gradients: GradientSum | None, each: tuple[float, ...]
) -> None:
    """Several micro-batches: gradients wait for the update."""
    asked = replace(PLAIN, states=states, gradients=gradients)
    workload = trainer(name).apply_to(asked)
    layout = Layout(accumulation=8)
    found = [part(workload, x, layout) / WEIGHTS for x in ("weights", "gradients", "optimizer")]
    assert found == pytest.approx(each, rel=1e-3)


def test_nanotron_has_16_bit_gradients_besides_fp32_sums_and_in_buckets() -> None:
    workload = trainer("nanotron").apply_to(replace(PLAIN, sequence_length=64))
    alone, pair = Layout(accumulation=2), Layout(data_parallel=2, accumulation=2)
    assert part(workload, "gradients", alone) / WEIGHTS == pytest.approx(6, rel=0.05)
    assert part(workload, "gradients", pair) / WEIGHTS == pytest.approx(4)
    buckets = part(workload, "communication", pair) - part(workload, "communication", alone)
    assert buckets / WEIGHTS == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("states", [States.BF16, States.FP32])
def test_8_bit_states_do_not_depend_on_the_format_of_weights(states: States) -> None:
    light = replace(PLAIN, states=states, optimizer=Optimizer.from_name("adamw8bit"))
    workload = trainer("torchtune").apply_to(light)
    assert part(workload, "optimizer") / WEIGHTS == pytest.approx(EIGHT_BITS)


def test_paged_states_are_on_the_host_and_take_its_link_unless_backward_hides_them() -> None:
    columns = LayoutColumns.from_layouts([Layout()])

    def seconds(name: str, *, in_backward: bool = False) -> float:
        optimizer = Optimizer.from_name(name)
        asked = replace(PLAIN, optimizer=optimizer, updates_in_backward=in_backward)
        workload = trainer("torchtune").apply_to(asked)
        away = float(host_bytes(columns, workload, 1)[0])
        on_device = part(workload, "optimizer")
        there, elsewhere = (away, on_device) if optimizer.is_paged else (on_device, away)
        assert there / WEIGHTS == pytest.approx(EIGHT_BITS)
        assert elsewhere == 0.0
        return float(estimate(columns, workload, machine("RTX-4090")).step_s_C[0])

    resident, paged = seconds("adamw8bit"), seconds("paged_adamw8bit")
    hidden = seconds("paged_adamw8bit", in_backward=True)
    assert resident < hidden < paged


def test_an_update_in_the_backward_pass_holds_the_largest_gradient_only() -> None:
    workload = trainer("torchtune").apply_to(replace(PLAIN, updates_in_backward=True))
    assert part(workload, "gradients") == 2 * LLAMA.vocabulary * LLAMA.hidden


def test_logits_are_whole_in_pieces_or_never_whole() -> None:
    hf = trainer("huggingface").apply_to(PLAIN)
    whole, chunked, fused = (part(replace(hf, loss=loss), "logits") for loss in Loss)
    values = 2048 * LLAMA.vocabulary
    assert whole == 14 * values
    assert 2 * values < chunked < whole / 3
    assert fused < 16 * 2048 * LLAMA.hidden


def test_what_leaves_the_gpu_is_on_the_host_and_its_way_back_is_hidden_or_paid() -> None:
    workload = trainer("torchtune").apply_to(replace(PLAIN, sequence_length=8192))
    for recompute in (Recompute.FULL, Recompute.NONE):
        stay = Layout(micro_batch=4, recompute=recompute)
        columns = LayoutColumns.from_layouts([stay, replace(stay, offload=Offload.ACTIVATIONS)])
        memory = memory_bytes(columns, workload)
        kept = dict(memory.full())
        held = sum(kept[name].max(axis=0) for name in ("inputs", "attention", "mlp"))
        assert held[1] / held[0] == pytest.approx(2 / 32)
        assert host_bytes(columns, workload, 1)[1] >= held[0] - held[1]
        node = machine("A100")
        slow, fast = (
            estimate(
                columns,
                workload,
                replace(node, physics=replace(node.physics, host_link_bytes_per_s=rate)),
            ).step_s_C
            for rate in (1e8, 1e12)
        )
        assert slow[1] > 2 * slow[0]
        assert fast[1] == fast[0] == slow[0]


def test_adapters_keep_their_own_activations() -> None:
    """Seven matrices of a layer, each with as many 16-bit values as its rank."""
    lora = replace(PLAIN, lora_rank=64, software=Software(framework=Framework.FSDP))
    assert part(lora, "adapters") == 2048 * 32 * 7 * 64 * 2


def test_torchtune_s_run_on_an_rtx_4090_is_met() -> None:
    """Llama 3.1 8B in full with PagedAdamW8bit in the backward pass: 18.9 GiB (README.md)."""
    asked = replace(
        PLAIN,
        states=States.BF16,
        optimizer=Optimizer.from_name("paged_adamw8bit"),
        updates_in_backward=True,
        software=Software(compiled=True),
    )
    layout = Layout(micro_batch=2, recompute=Recompute.FULL)
    assert peak(trainer("torchtune").apply_to(asked), layout) / GIB == pytest.approx(18.9, rel=0.1)


@pytest.mark.parametrize(
    ("model", "gpu_gib", "tokens"),
    [
        *(("llama3.1-8b", 8, 2972), ("llama3.1-8b", 24, 78475), ("llama3.1-8b", 80, 342733)),
        *(("llama3.3-70b", 48, 12106), ("llama3.3-70b", 80, 89389)),
    ],
)
def test_unsloth_s_longest_samples_nearly_fill_their_gpus(
    model: str, gpu_gib: int, tokens: int
) -> None:
    """QLoRA of rank 32 on all matrices (github.com/unslothai/unsloth, README.md)."""
    asked = Workload(
        model=named_model(model),
        sequence_length=tokens,
        lora_rank=32,
        weight_format=WeightFormat.NF4,
        optimizer=Optimizer.from_name("adamw8bit"),
    )
    layout = Layout(recompute=Recompute.FULL, offload=Offload.ACTIVATIONS)
    found = peak(trainer("unsloth").apply_to(asked), layout)
    assert found / GIB == pytest.approx(gpu_gib, rel=0.12)
