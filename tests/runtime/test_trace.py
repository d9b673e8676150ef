"""Fake tensors against real ones, and models of a size that no test could build."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from autoconf_launch.core import Grade, ModelSpec, Precision
from autoconf_launch.runtime.model import first_samples
from autoconf_launch.runtime.profile import trace_model
from autoconf_launch.runtime.profile.describe import describe

SHORT, LONG = 3, 5
TOKENS = 2048
SEVEN_BILLION = (6.5e9, 7.5e9)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        y = self.norms[1](x)
        z: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return z


class Llama(nn.Module):
    def __init__(self, layers: int = 32, width: int = 4096, words: int = 32000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        inner = width * 11008 // 4096
        self.layers = nn.ModuleList(LlamaBlock(width, inner, width // 128) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        x = self.words(text)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def text(samples: int = 1) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(samples, TOKENS, dtype=torch.long)
    return zeros, zeros


@pytest.fixture(scope="module")
def large() -> ModelSpec:
    return trace_model(Llama, text())


def test_seven_billion_weights_are_traced_without_their_memory(large: ModelSpec) -> None:
    assert SEVEN_BILLION[0] < large.parameters < SEVEN_BILLION[1]


def test_every_phase_has_weights_and_both_moments(large: ModelSpec) -> None:
    assert min(peak.peak_bytes for peak in large.traced_peaks) > 3 * 4 * large.parameters


def test_extrapolated_peaks_are_those_of_a_direct_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    extrapolated = trace_model(lambda: Llama(layers=LONG), text(), precision=Precision.BF16)
    monkeypatch.setattr("autoconf_launch.runtime.profile.trace._MORE", LONG)
    direct = trace_model(lambda: Llama(layers=LONG), text(), precision=Precision.BF16)
    assert extrapolated == direct


def test_shared_weights_stay_shared(tiny: Any) -> None:
    model = tiny.Tiny()
    model.head.weight = model.words.weight
    spec = trace_model(model, tiny.global_batches(2, 1)[0])
    assert spec.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("layers", [SHORT, LONG])
def test_fake_blocks_are_as_the_real_ones_which_stay_as_they_are(tiny: Any, layers: int) -> None:
    model, batch = tiny.Tiny(layers=layers), tiny.global_batches(2, 1)[0]
    before = [parameter.clone() for parameter in model.parameters()]

    def forward(samples: int) -> Tensor:
        loss: Tensor = model(*first_samples(batch, samples))
        return loss

    fake = trace_model(model if layers == LONG else lambda: tiny.Tiny(layers=layers), batch)
    real = describe(model, forward, Grade.TRACED).spec
    assert (fake.blocks, fake.layers) == (real.blocks, real.layers)
    assert all(map(torch.equal, before, model.parameters()))


class Named(nn.Module):
    """Names CUDA, as scripts for GPUs do, and keeps a result of its forward pass."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.device = device
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            y: Tensor = self.layer(x.to(self.device)) * torch.ones(8, device=self.device)
        self.kept = y
        return y.float().square().mean()


def test_a_model_that_names_cuda_is_traced_as_on_the_cpu() -> None:
    on_gpu, on_cpu = (
        trace_model(Named(device), torch.ones(2, 8), loss=lambda model, x: model(x))
        for device in ("cuda", "cpu")
    )
    assert on_gpu == on_cpu


def test_a_model_that_keeps_a_result_of_an_earlier_pass_is_traced() -> None:
    model, batch = Named("cpu"), torch.ones(2, 8)
    model(batch).backward()
    assert trace_model(model, batch, loss=lambda model, x: model(x)).traced_peaks


class Powers(nn.Module):
    """Blocks that keep what they take a power of, in whatever format that is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        powers: Tensor = self.first(x).pow(3.0)
        return powers.softmax(-1)


def test_a_trace_keeps_in_fp32_what_autocast_on_cuda_does() -> None:
    batch = torch.zeros(1, 64)
    found = trace_model(Powers(64), batch, loss=lambda m, x: m(x).sum(), precision=Precision.BF16)
    # 64 values each: the input in 16 bits, what the power reads and what softmax gives in fp32.
    assert found.activation_bytes_per_sample == 64 * (2 + 4 + 4)


def test_autocast_on_the_cpu_is_as_before_after_a_trace() -> None:
    trace_model(Powers(8), torch.zeros(1, 8), loss=lambda m, x: m(x).sum())
    with torch.autocast("cpu", torch.bfloat16):
        assert Powers(8)(torch.zeros(1, 8)).dtype == torch.bfloat16


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.zeros(4, 32, 16))

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.full((4,), x.shape[0], dtype=torch.int32)
        rows: Tensor = F.grouped_mm(x, self.experts, offs=ends)
        return rows.sum()


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="torch has no grouped_mm")
def test_products_of_experts_in_fp32_are_traced() -> None:
    found = trace_model(Grouped(), torch.zeros(1, 32), loss=lambda m, x: m(x))
    assert found.traced_peaks
    assert found.blocks[0].flops == 2 * 32 * 16


class Attends(nn.Module):
    """Attention with dropout and a learned bias, as T5 has it."""

    def __init__(self, dropout: float, *, biased: bool) -> None:
        super().__init__()
        self.project = nn.Linear(64, 64)
        self.bias = nn.Parameter(torch.zeros(1, 1, 256, 256)) if biased else None
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (4, 16)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, self.bias, self.dropout)
        return mixed.square().mean()


def activation_bytes(model: nn.Module) -> int:
    batch = torch.zeros(8, 256, 64)
    found = trace_model(model, batch, loss=lambda model, batch: model(batch).square().mean())
    return found.activation_bytes_per_sample


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_mask_of_dropout_on_cuda_has_a_byte_for_each_value(kind: torch.dtype) -> None:
    layers = [
        nn.Sequential(nn.Linear(64, 64), nn.Dropout(dropout)).to(kind) for dropout in (0.0, 0.1)
    ]
    plain, drops = map(activation_bytes, layers)
    assert drops - plain == 256 * 64


def test_an_encoder_s_layer_keeps_masks_and_no_scores() -> None:
    plain, drops = (
        activation_bytes(nn.TransformerEncoderLayer(64, 4, 128, dropout, batch_first=True))
        for dropout in (0.0, 0.1)
    )
    assert drops - plain == 256 * (64 + 128 + 64)


def test_attention_on_cuda_keeps_no_scores_with_dropout_and_a_learned_bias() -> None:
    plain = activation_bytes(Attends(0.0, biased=False))
    scores = 4 * 4 * 256 * 256
    assert activation_bytes(Attends(0.1, biased=False)) == plain
    assert activation_bytes(Attends(0.1, biased=True)) < plain + scores


class Keeps(nn.Module):
    """Keeps a result in an attribute, so that the update begins with some of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.first(x).relu()
        loss: Tensor = self.second(self.kept).square().mean()
        return loss


def tracked_by_torch(samples: int) -> list[int]:
    """Peaks of forward, backward, accumulation and update of a second step, by MemTracker."""
    with FakeTensorMode():
        fake = Keeps()
        optimizer = torch.optim.AdamW(fake.parameters())
        for parameter in fake.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        tracker, loss, peaks = MemTracker(), list[Tensor](), list[int]()
        tracker.track_external(fake, optimizer)

        def forward() -> None:
            loss.append(fake(torch.empty(samples, 64)))

        def backward() -> None:
            torch.autograd.backward(loss.pop())

        def both() -> None:
            tracker.reset_mod_stats()
            forward()
            backward()

        for run in (forward, backward, both, optimizer.step):
            with tracker:
                run()
            peaks.append(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])
    return peaks


def test_peaks_are_those_of_torchs_own_tracker() -> None:
    found = trace_model(Keeps, torch.empty(1, 64), loss=lambda model, x: model(x)).traced_peaks
    expected = [*tracked_by_torch(8), *tracked_by_torch(16)]
    assert [peak.peak_bytes for peak in found] == expected
