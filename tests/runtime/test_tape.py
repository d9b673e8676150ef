"""The tape of one forward pass, and the ModelSpec made of two."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.core import Grade, ModelSpec
from autoconf_launch.runtime.model import first_samples, flop_counter
from autoconf_launch.runtime.profile.describe import describe, record

WIDTH, TOKENS, WORDS, LAYERS = 16, 8, 50, 3
FLOAT = 4


@pytest.fixture(scope="module")
def spec(tiny: Any) -> ModelSpec:
    return spec_of(tiny.Tiny(layers=LAYERS), tiny.global_batches(2, 1)[0])


def spec_of(model: nn.Module, batch: tuple[Tensor, ...]) -> ModelSpec:
    return describe(model, forward_of(model, batch), Grade.MEASURED).spec


def forward_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Callable[[int], Tensor]:
    def forward(samples: int) -> Tensor:
        loss: Tensor = model(*first_samples(batch, samples))
        return loss

    return forward


def test_a_model_is_embedding_blocks_and_head_with_their_weights(spec: ModelSpec) -> None:
    block = 2 * WIDTH + 3 * WIDTH * (WIDTH + 1) + 2 * WIDTH * (WIDTH + 1) + WIDTH * (2 * WIDTH + 1)
    assert [(b.name, b.count, b.parameters) for b in spec.blocks] == [
        ("embedding", 1, WORDS * WIDTH),
        ("blocks", LAYERS, block),
        ("head", 1, WORDS * (WIDTH + 1)),
    ]


def test_operations_of_a_block_are_its_products(spec: ModelSpec) -> None:
    products = 2 * TOKENS * (3 * WIDTH * WIDTH + 2 * 2 * WIDTH * WIDTH)
    attention = 2 * 2 * TOKENS * TOKENS * WIDTH
    assert spec.blocks[1].flops == products + attention


def test_a_block_takes_its_input_and_the_head_keeps_the_logits(spec: ModelSpec) -> None:
    assert spec.blocks[1].input_bytes == TOKENS * WIDTH * FLOAT
    assert spec.blocks[2].activation_bytes >= TOKENS * WORDS * FLOAT


def test_shapes_are_read_from_what_goes_into_a_block(spec: ModelSpec) -> None:
    shown = (spec.hidden_size, spec.sequence_length, spec.layers, spec.vocabulary_size)
    assert shown == (WIDTH, TOKENS, LAYERS, WORDS)


def test_a_model_without_blocks_is_one_piece() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    found = record(model, lambda: model(torch.zeros(1, 3)).sum())
    assert [(seen.name, seen.parameters) for seen in found] == [("model", 21)]


def test_frozen_weights_are_told_apart(tiny: Any) -> None:
    model = tiny.Tiny()
    model.words.weight.requires_grad_(False)
    found = spec_of(model, tiny.global_batches(2, 1)[0])
    assert found.blocks[0].frozen_parameters == WORDS * WIDTH


def test_shared_weights_count_once(tiny: Any) -> None:
    model = tiny.Tiny()
    model.head.weight = model.words.weight
    found = spec_of(model, tiny.global_batches(2, 1)[0])
    assert found.parameters == sum(p.numel() for p in model.parameters())


def test_what_does_not_grow_with_the_samples_is_no_activation() -> None:
    model = nn.Linear(8, 8, bias=False)
    batch = (torch.zeros(2, 8),)

    def forward(samples: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss: Tensor = model(first_samples(batch, samples)[0]).float().square().mean()
            return loss

    found = describe(model, forward, Grade.MEASURED)
    one_sample = found.spec.activation_bytes_per_sample
    weight_in_bf16 = found.kept_bytes[0] - one_sample
    assert weight_in_bf16 in (0, 8 * 8 * 2)
    assert one_sample < 8 * 8


def test_hooks_are_gone_afterwards(tiny: Any) -> None:
    model = tiny.Tiny()
    spec_of(model, tiny.global_batches(2, 1)[0])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_backward_pass_of_attention_on_cpu_is_counted() -> None:
    query, key, value = (torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3))
    with flop_counter() as counter:
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        forward = counter.get_total_flops()
        torch.autograd.backward(mixed.sum())
    assert (forward, counter.get_total_flops() - forward) == (2048, 5120)


@pytest.mark.parametrize("fast", [True, False])
def test_the_products_of_an_lstm_are_counted(fast: bool) -> None:
    model = nn.LSTM(40, 64, num_layers=2, batch_first=True)
    with torch.backends.mkldnn.flags(enabled=fast), flop_counter() as counter:
        model(torch.randn(8, 50, 40))
    assert counter.get_total_flops() == 2 * 8 * 50 * 4 * 64 * (40 + 64 + 64 + 64)
