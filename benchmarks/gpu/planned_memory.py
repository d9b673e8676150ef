"""Memory that is planned for six models, beside what a card's driver counts in real steps.

Runs on a GPU, or on the one that computes nothing (``make test-null-gpu``), where nothing but
times and values differs. The planner knows the models from a trace, as ``fit -- python train.py``
does. Ends with 1 if the bound is missed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from autoconf_launch.autotuner.cost import traced_memory
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import (
    Candidate,
    Layout,
    ModelSpec,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)
from autoconf_launch.runtime.profile import trace_model

RESULTS = Path(__file__).parents[1] / "results" / "null_gpu_memory.md"
MEAN_ERROR, WORST_ERROR = 0.05, 0.12
GIB = 2**30
STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model of transformers with random weights, and one batch of it.

    Attributes:
        task: which head; a part of ``AutoModelFor…``.
        config: fields of its configuration; dropout is off.
        sequence: tokens of a sample.
        micro_batch: samples of a forward pass.
    """

    task: str
    config: Mapping[str, Any]
    sequence: int
    micro_batch: int

    def build(self, device: str) -> nn.Module:
        """The model in fp32; its weights are whatever the memory holds."""
        config = transformers.AutoConfig.for_model(**self.config)
        config.use_cache = False
        with torch.device("meta"):
            model = getattr(transformers, f"AutoModelFor{self.task}").from_config(config)
        model = model.float().train()
        if device != "meta":
            model.to_empty(device=device).tie_weights()
        return model

    def batch(self, samples: int, device: str) -> dict[str, torch.Tensor]:
        """Arguments of a forward pass that returns a loss."""
        if self.task == "ImageClassification":
            pictures = torch.zeros(samples, 3, 224, 224, device=device)
            labels = torch.zeros(samples, dtype=torch.long, device=device)
            return {"pixel_values": pictures, "labels": labels}
        text = torch.zeros(samples, self.sequence, dtype=torch.long, device=device)
        return {"input_ids": text, "labels": text.clone()}


SHAPES = {
    "GPT-2": Shape(
        task="CausalLM",
        config={
            "model_type": "gpt2",
            "n_layer": 24,
            "n_embd": 1024,
            "n_head": 16,
            "vocab_size": 50257,
            "n_positions": 1024,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
        sequence=1024,
        micro_batch=8,
    ),
    "Llama": Shape(
        task="CausalLM",
        config={
            "model_type": "llama",
            "num_hidden_layers": 16,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
        },
        sequence=2048,
        micro_batch=4,
    ),
    "Mixtral": Shape(
        task="CausalLM",
        config={
            "model_type": "mixtral",
            "num_hidden_layers": 8,
            "hidden_size": 1024,
            "intermediate_size": 3584,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        sequence=2048,
        micro_batch=4,
    ),
    "T5": Shape(
        task="Seq2SeqLM",
        config={
            "model_type": "t5",
            "num_layers": 8,
            "num_decoder_layers": 3,
            "d_model": 1024,
            "d_ff": 4096,
            "num_heads": 16,
            "d_kv": 64,
            "vocab_size": 32128,
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
        },
        sequence=512,
        micro_batch=16,
    ),
    "BERT": Shape(
        task="MaskedLM",
        config={
            "model_type": "bert",
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "vocab_size": 30522,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        sequence=512,
        micro_batch=16,
    ),
    "ViT": Shape(
        task="ImageClassification",
        config={
            "model_type": "vit",
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "image_size": 224,
            "patch_size": 16,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        sequence=197,
        micro_batch=64,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration of a training on one GPU."""

    model: str
    precision: str = "bf16"
    optimizer: str = "adamw"
    recompute: str = "none"
    zero: int = 0
    accumulation: int = 2

    @property
    def words(self) -> str:
        """A row's first cells."""
        return (
            f"{self.model} | {self.precision} | {self.optimizer} | {self.recompute} | "
            f"{self.zero} | {self.accumulation}"
        )


def cases(model: str) -> Iterator[Case]:
    """All configurations of a model."""
    for precision, optimizer in itertools.product(("bf16", "fp32"), ("adamw", "sgd")):
        for recompute in ("none", "full"):
            given = {"model": model, "precision": precision, "optimizer": optimizer}
            yield Case(**given, recompute=recompute)
            yield Case(**given, recompute=recompute, accumulation=1)
            if optimizer == "adamw" and precision == "bf16":
                yield Case(**given, recompute=recompute, zero=1)


def new_optimizer(case: Case, weights: Any) -> torch.optim.Optimizer:
    """ZeRO 1 as our runtime has it, without DDP on one GPU; otherwise torch's own optimizer."""
    kind = torch.optim.AdamW if case.optimizer == "adamw" else torch.optim.SGD
    if case.zero:
        return ZeroRedundancyOptimizer(weights, kind, lr=1e-4)
    return kind(weights, lr=1e-4)


def measured_bytes(case: Case) -> int:
    """Highest bytes of the driver in some steps: reserved by torch, and the process's context."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    shape = SHAPES[case.model]
    model: Any = shape.build("cuda")
    if case.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = new_optimizer(case, model.parameters())
    for _ in range(STEPS):
        for _ in range(case.accumulation):
            batch = shape.batch(shape.micro_batch, "cuda")
            with torch.autocast("cuda", torch.bfloat16, enabled=case.precision == "bf16"):
                loss = model(**batch).loss
            loss.backward()
            del batch, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    free, total = torch.cuda.mem_get_info()
    return torch.cuda.max_memory_reserved() + total - free - torch.cuda.memory_reserved()


def traced(case: Case) -> ModelSpec:
    """The planner's description of a model that it does not know by its shapes."""
    shape = SHAPES[case.model]
    return trace_model(
        shape.build("meta"),
        shape.batch(1, "cpu"),
        loss=lambda model, batch: model(**batch).loss,
        make_optimizer=lambda weights: new_optimizer(
            Case(model=case.model, optimizer=case.optimizer), weights
        ),
        precision=Precision(case.precision),
    )


def planned_bytes(case: Case, spec: ModelSpec) -> float:
    """The planner's peak."""
    layout = Layout(
        micro_batch=SHAPES[case.model].micro_batch,
        accumulation=case.accumulation,
        zero_stage=case.zero,
        recompute=Recompute(case.recompute),
    )
    table = CandidateTable.from_candidates([Candidate(layout=layout)])
    optimizer = Optimizer.from_name(case.optimizer)
    work = Workload(model=spec, optimizer=optimizer, precision=Precision(case.precision))
    return sum(float(sizes[0]) for _, sizes in traced_memory(table, work))


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one configuration needs, and what was planned for it, in bytes."""

    case: Case
    planned: float
    measured: int

    @property
    def error(self) -> float:
        """Positive if too much was planned."""
        return self.planned / self.measured - 1

    @property
    def text(self) -> str:
        """A line of the table."""
        sizes = f"{self.measured / GIB:.2f} | {self.planned / GIB:.2f} | {100 * self.error:+.1f} %"
        return f"| {self.case.words} | {sizes} |"


def measured_alone(cases: list[Case]) -> list[int]:
    """Measure in a new process, whose context is on the GPU while its cases run."""
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("nccl", f"file://{store.name}", world_size=1, rank=0)
        try:
            return [measured_bytes(case) for case in cases]
        finally:
            dist.destroy_process_group()


def rows(model: str) -> Iterator[Row]:
    """Measure and plan all configurations of a model."""
    every = list(cases(model))
    specs: dict[tuple[str, str], ModelSpec] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as processes:
        sizes = processes.submit(measured_alone, every).result()
    for case, size in zip(every, sizes, strict=True):
        kind = (case.precision, case.optimizer)
        if kind not in specs:
            specs[kind] = traced(case)
        yield Row(case=case, planned=planned_bytes(case, specs[kind]), measured=size)


def summary(rows: list[Row]) -> str:
    """Mean and worst error of some rows."""
    errors = [abs(row.error) for row in rows]
    mean = sum(errors) / len(errors)
    return f"{len(rows)} configurations: mean {100 * mean:.1f} %, worst {100 * max(errors):.1f} %"


def is_within(rows: list[Row]) -> bool:
    """Whether the bound holds."""
    errors = [abs(row.error) for row in rows]
    return sum(errors) / len(errors) < MEAN_ERROR and max(errors) < WORST_ERROR


def report(rows: list[Row], gpu: str) -> str:
    """The results file."""
    bound = f"mean below {100 * MEAN_ERROR:.0f} %, worst below {100 * WORST_ERROR:.0f} %"
    models = [[row for row in rows if row.case.model == name] for name in SHAPES]
    lines = [
        "# Planned memory beside the driver's, on one GPU",
        f"`benchmarks/gpu/planned_memory.py` on {gpu}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}. Measured is what the driver counts: reserved by torch and "
        "the process's context. GiB.",
        "",
        f"Bound: {bound}. {'It holds.' if is_within(rows) else '**It is missed.**'}",
        f"- All models: {summary(rows)}.",
        *(f"- {part[0].case.model}: {summary(part)}." for part in models if part),
        "",
        "| model | precision | optimizer | recompute | ZeRO | accumulation | measured | planned "
        "| error |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row.text for row in rows),
    ]
    return "\n".join(lines) + "\n"


def gpu_name() -> str:
    """The driver's name of the GPU; this process does not start CUDA, which takes memory."""
    command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"a GPU that computes nothing, as {name}" if "NULLGPU_TABLE" in os.environ else name


def main() -> int:
    """Print each row, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    done: list[Row] = []
    for model in options.models:
        for row in rows(model):
            print(row.text, flush=True)
            done.append(row)
        options.output.write_text(report(done, gpu_name()))
    print(summary(done))
    return 0 if is_within(done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
