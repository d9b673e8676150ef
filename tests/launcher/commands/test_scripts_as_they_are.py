"""``fit`` and ``plan`` of an unmodified script, from the command line to the last line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.first_forward import TracedScript, script
from autoconf_launch.launcher.first_forward import command as reader

from .verb import Ran, Run

SCRIPT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4))
        self.out = nn.Linear(64, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.zeros(16).long())
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "checkpoint.pt")
"""
WEIGHTS = 4 * (64 * 64 + 64) + 64 * 8 + 8
COMMAND = ("--", sys.executable, "train.py")


TRACES: dict[object, TracedScript] = {}
"""Traces of scripts that ran; torch imports slowly, and tests ask about the same script."""


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script, "_SLOW_S", 1e9)  # a busy machine is slow, too
    run = reader.trace_script

    def trace_once(command: Any, *rest: Any) -> TracedScript:
        key = (Path("train.py").read_text(), repr(command))
        if key not in TRACES or script._SLOW_S < 1.0:
            TRACES[key] = run(command, *rest)
        return TRACES[key]

    monkeypatch.setattr(reader, "trace_script", trace_once)


def test_fit_answers_without_a_step_of_training_and_says_where_a_slow_script_writes(
    fit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "_SLOW_S", 0.1)
    ran: Ran = fit("--cluster", "4xA100", "--json", *COMMAND)
    document = ran.document
    assert (ran.code, document["verdict"], document["limit_gib"]) == (0, "yes", 79.0)
    assert document["parameters"] == document["script"]["parameters"] == WEIGHTS
    assert document["layout"]["micro_batch"] == 16
    assert sum(document["stages"][0]["parts"].values()) == pytest.approx(
        document["peak_memory_gib"], abs=0.01
    )
    assert [room["zero_stage"] for room in document["script"]["rooms"]] == [0, 1, 2, 3] * 2
    assert not Path("checkpoint.pt").exists()
    assert "train.py has run for 0.1 s to reach its first forward and backward pass" in ran.err
    assert ran.err.count("\n") == 1


def test_plan_ranks_what_a_script_of_unknown_kind_can_do(plan: Run) -> None:
    ran: Ran = plan("--cluster", "8xH100", "--global-batch", "256", *COMMAND)
    assert ran.code == 0
    assert "train.py, stopped at its first forward pass (on fake tensors" in ran.out
    assert "Models that it makes later, such as an EMA copy after a warm-up, are not" in ran.out
    assert "tensor and pipeline parallelism need a known architecture" in ran.out
    assert "48 layouts considered" in ran.out
    assert ran.err == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--cluster", "8xA100"), "Several clusters are compared for a model whose architecture"),
        (("--gpus-needed",), "--gpus-needed needs a model whose architecture is known"),
    ],
)
def test_numbers_of_gpus_of_a_script_of_unknown_kind_are_refused(
    plan: Run, flags: tuple[str, ...], says: str
) -> None:
    ran: Ran = plan("--cluster", "8xH100", *flags, "--global-batch", "256", *COMMAND)
    assert (ran.code, ran.is_one_line) == (2, True), ran.err
    assert says in ran.err


def test_a_script_that_fails_ends_with_code_3_and_its_own_words(plan: Run) -> None:
    Path("train.py").write_text("raise ValueError('no data')")
    ran: Ran = plan("--cluster", "4xA100", *COMMAND)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.endswith("| ValueError: no data\n")


DISTILL = """
import torch
from torch import nn

teacher = nn.Sequential(nn.Linear(64, 9000), nn.ReLU(), nn.Linear(9000, 9000))
teacher.requires_grad_(False)
student = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 9000))
optimizer = torch.optim.AdamW(student.parameters())
x = torch.randn(16, 64)
with torch.no_grad():
    wanted = teacher(x)
nn.functional.mse_loss(student(x), wanted).backward()
optimizer.step()
"""


def test_a_frozen_teacher_takes_its_place_in_memory(fit: Run) -> None:
    Path("train.py").write_text(DISTILL)
    ran: Ran = fit("--cluster", "1xRTX-4090", "--memory-limit", "1GB", *COMMAND)
    assert ran.code == 1
    assert "trainer native" in ran.out
    assert "Also on the device: Sequential of 81.6 M parameters (0.30 GiB)." in ran.out
    assert "It fits without --memory-limit 0.9 GiB (each RTX-4090-24GB has 23.7 GiB)." in ran.out
    assert "larger GPUs" not in ran.out
    document = fit("--cluster", "4xRTX-4090", "--json", *COMMAND).document
    assert document["stages"][0]["parts"]["other models"] == pytest.approx(0.304, abs=0.001)
    (one,) = document["script"]["bystanders"]
    assert (one["name"], one["parameters"]) == ("Sequential", 81594000)


LLAMA = """
import copy
import torch
from torch import nn

WORDS, WIDTH, LAYERS, TOKENS = 512, 128, 4, 64


class Config:
    def to_dict(self):
        return {"model_type": "llama", "vocab_size": WORDS, "hidden_size": WIDTH,
                "num_hidden_layers": LAYERS, "intermediate_size": 2 * WIDTH,
                "num_attention_heads": 4, "num_key_value_heads": 4,
                "tie_word_embeddings": False}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = {"q": (1, 1), "k": (1, 1), "v": (1, 1), "o": (1, 1), "gate": (1, 2), "up": (1, 2)}
        for name, (into, out) in sizes.items():
            self.add_module(name, nn.Linear(into * WIDTH, out * WIDTH, bias=False))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x):
        y = self.first(x)
        split = lambda z: z.view(*z.shape[:2], 4, -1).transpose(1, 2)
        heads = map(split, (self.q(y), self.k(y), self.v(y)))
        y = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    config = Config()

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.words(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


policy = Llama()
reference = copy.deepcopy(policy).eval()
optimizer = torch.optim.AdamW(policy.parameters())
x = torch.randint(0, WORDS, (4, TOKENS))
with torch.no_grad():
    wanted = reference(x)
nn.functional.mse_loss(policy(x), wanted).backward()
optimizer.step()
"""


def test_a_reference_model_takes_its_time_beside_a_model_of_known_architecture(plan: Run) -> None:
    """A forward pass of the same model: about a quarter of both forwards and the backward."""
    Path("train.py").write_text(LLAMA)
    found: dict[str, Any] = plan("--cluster", "1xA100", "--json", *COMMAND).document
    traced, row = found["script"], found["best"][0]
    assert traced["known_by"] == "architecture"
    assert traced["frozen_flops"] == pytest.approx(traced["forward_backward_flops"] / 4, rel=0.05)
    assert row["parts"]["frozen_s"] > 0
    assert sum(row["parts"].values()) == pytest.approx(row["step_time_s"])


ACCUMULATES = """
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--gradient_accumulation_steps", type=int, default=3)
given = parser.parse_args()
model = torch.nn.Linear(64, 8)
for _ in range(given.gradient_accumulation_steps):
    model(torch.randn(given.batch_size, 64)).square().mean().backward()
"""


def test_the_accumulation_that_the_script_s_arguments_say_is_in_the_global_batch(
    fit: Run,
) -> None:
    Path("train.py").write_text(ACCUMULATES)
    ran: Ran = fit("--cluster", "1xRTX-4090", *COMMAND, "--batch_size", "8")
    assert "global batch 24\n" in ran.out


def test_a_script_with_samples_beyond_its_learned_positions_is_refused(
    fit: Run, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LONG)
    ran = fit("--cluster", "A100", *COMMAND)
    assert ran.code == 2
    assert "64 learned positions, so a sequence of 128 tokens fails" in ran.err


LONG = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=500, n_positions=64)
model = GPT2LMHeadModel(config)
text = torch.randint(500, (2, 128))
model(input_ids=text, labels=text).loss.backward()
"""
