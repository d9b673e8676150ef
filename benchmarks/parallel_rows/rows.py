"""Layouts whose five steps must be those of one process, as configurations. Not: how they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LOSS, NORM = 1e-5, 1e-3
"""Largest differences that count as equal; norms are compared relatively, like all of bf16."""
ROUNDED = 1e-2
GLOBAL_BATCH, CLIP, RATE, DECAY = 8, 0.5, 1e-2, 0.1
STAGES = range(4)
FOREIGN = ("llama", "qwen2", "qwen3", "mistral", "gemma")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One layout of one model."""

    ranks: int = 2
    model: str = "own"
    tensor: int = 1
    context: int = 1
    expert: int = 1
    sequence: bool = False
    pipeline: int = 1
    virtual: int = 1
    schedule: str | None = None
    split: tuple[int, ...] | None = None
    stage: int = 0
    accumulation: int = 1
    recompute: str = "none"
    precision: str = "fp32"
    shards: int | None = None
    samples: tuple[int, ...] | None = None
    layers: int | None = None

    @property
    def name(self) -> str:
        """``TP 2 x ZeRO 3, sequence parallel``."""
        averaging = self.data * self.context
        hybrid = f"{averaging // self.shards}x{self.shards}" if self.shards else averaging
        degrees = [self.stages] if self.pipeline > 1 else []
        degrees += [f"CP {self.context}"] if self.context > 1 else []
        degrees += [f"TP {self.tensor}"] if self.tensor > 1 else []
        degrees += [f"EP {self.expert}"] if self.expert > 1 else []
        degrees += [f"ZeRO {self.stage} on {hybrid}"] if self.data > 1 or self.stage else []
        more = ["sequence parallel"] if self.sequence else []
        more += [f"{self.accumulation} micro-batches"] if self.accumulation > 1 else []
        more += [f"samples {'+'.join(map(str, self.samples))}"] if self.samples else []
        blocks = f" of {self.layers} blocks" if self.layers else ""
        more += [f"{self.recompute} recomputation{blocks}"] if self.recompute != "none" else []
        more += [self.precision] if self.precision != "fp32" else []
        return ", ".join((" x ".join(degrees), *more))

    @property
    def data(self) -> int:
        """Ranks that train on different samples."""
        return self.ranks // (self.tensor * self.context * self.pipeline)

    @property
    def stages(self) -> str:
        """``PP 2 1f1b``, with what is uneven or interleaved."""
        kind = "interleaved" if self.virtual > 1 else self.schedule or "1f1b"
        parts = f" split {'+'.join(map(str, self.split))}" if self.split else ""
        return f"PP {self.pipeline} {kind}{parts}"

    @property
    def limits(self) -> tuple[float, float]:
        """Largest differences of losses and of norms."""
        return (LOSS, NORM) if self.precision == "fp32" else (ROUNDED, ROUNDED)

    @property
    def case(self) -> dict[str, Any]:
        """What ``train.py`` takes."""
        parallelism: dict[str, Any] = {
            "tensor": self.tensor,
            "sequence_parallel": self.sequence,
            "context": self.context,
            "expert": self.expert,
            "pipeline": self.pipeline,
            "virtual_pipeline": self.virtual,
        }
        named = {"pipeline_schedule": self.schedule, "pipeline_split": self.split}
        named |= {"micro_batch_split": self.samples}
        parallelism |= {key: value for key, value in named.items() if value}
        share = GLOBAL_BATCH // self.data
        config = {
            "train_micro_batch_size_per_gpu": share // self.accumulation,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": CLIP,
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY}},
            "zero_optimization": {"stage": self.stage, "shard_ranks": self.shards},
            "activation_checkpointing": {"mode": self.recompute, "layers": self.layers},
            "parallelism": parallelism,
            self.precision: {"enabled": self.precision != "fp32"},
        }
        return {"model": self.model, "config": config}


EXPERTS_ON_TWO = (
    Row(expert=2, model="mixtral"),
    Row(expert=2, model="own_experts", stage=1, accumulation=2),
    Row(expert=2, model="own_experts", stage=2, precision="bf16"),
    Row(expert=2, model="qwen3_moe", stage=3, recompute="full"),
)
EXPERTS_ON_FOUR = (
    *(Row(ranks=4, expert=4, model="mixtral", stage=stage) for stage in STAGES),
    *(Row(ranks=4, expert=2, model="mixtral", stage=s, accumulation=2) for s in STAGES),
    *(Row(ranks=4, expert=2, model="own_experts", stage=stage) for stage in (0, 3)),
    Row(ranks=4, expert=2, model="qwen3_moe", stage=3, recompute="selective"),
    Row(ranks=4, expert=4, model="qwen3_moe", stage=2, recompute="full"),
    Row(ranks=4, expert=2, model="own_experts", stage=3, precision="bf16"),
    *(Row(ranks=4, expert=2, context=2, model="mixtral", stage=stage) for stage in (0, 3)),
    *(
        Row(ranks=4, expert=2, pipeline=2, model="mixtral", stage=stage, accumulation=2)
        for stage in STAGES
    ),
    Row(ranks=4, expert=2, pipeline=2, schedule="gpipe", model="own_experts", accumulation=4),
    Row(ranks=4, expert=2, tensor=2, model="mixtral"),
    Row(ranks=4, expert=2, tensor=2, model="mixtral", stage=3, sequence=True),
)
TWO_RANKS = (
    *EXPERTS_ON_TWO,
    Row(tensor=2, model="own_tied"),
    *(Row(tensor=2, model=model) for model in ("qwen2", "mistral", "gemma")),
    Row(tensor=2, sequence=True, accumulation=2),
    Row(tensor=2, sequence=True, recompute="full", stage=3),
    Row(tensor=2, sequence=True, model="llama", recompute="selective"),
    Row(tensor=2, sequence=True, model="qwen3"),
    Row(tensor=2, precision="bf16", sequence=True, stage=2),
    Row(context=2, model="llama"),
    Row(context=2, model="own_placed", stage=3, recompute="selective"),
    Row(pipeline=2, accumulation=4, schedule="gpipe", model="own_placed", recompute="full"),
    Row(pipeline=2, accumulation=2, model="own_tied", stage=3, split=(1, 2)),
    Row(pipeline=2, virtual=2, accumulation=2, model="own_deep", stage=1),
    Row(pipeline=2, accumulation=2, model="gpt2"),
    Row(pipeline=2, accumulation=2, model="qwen2", precision="bf16"),
    *(Row(stage=stage, samples=(5, 3)) for stage in (0, 2)),
    Row(stage=3, samples=(3, 1), accumulation=2, recompute="full", layers=2),
)
TESTED_ON_FOUR = tuple(
    Row(ranks=4, tensor=2, stage=stage, model="own_tied", accumulation=2) for stage in (0, 3)
)
"""Rows of a mesh of two dimensions for every test run."""
MORE_RANKS = (
    *(Row(stage=stage) for stage in STAGES),
    Row(tensor=2),
    Row(tensor=2, precision="bf16"),
    *(Row(tensor=2, model=model) for model in ("llama", "qwen3")),
    *TESTED_ON_FOUR,
    *EXPERTS_ON_FOUR,
    *(Row(ranks=4, stage=stage) for stage in STAGES),
    Row(ranks=4, tensor=4, model="llama"),
    Row(ranks=4, tensor=4, sequence=True),
    *(Row(ranks=4, tensor=2, stage=stage, accumulation=2) for stage in STAGES),
    *(Row(ranks=4, tensor=2, stage=stage, model="own_tied") for stage in (1, 2)),
    *(Row(ranks=4, tensor=2, stage=stage, model="llama", sequence=True) for stage in STAGES),
    Row(ranks=4, tensor=2, stage=3, model="gemma", recompute="full"),
    Row(ranks=4, tensor=2, stage=2, precision="bf16"),
    *(Row(ranks=4, stage=stage, shards=2) for stage in (2, 3)),
    Row(ranks=4, stage=1, samples=(3, 1, 2, 2)),
    *(Row(ranks=4, tensor=2, stage=stage, samples=(5, 3)) for stage in (0, 3)),
    Row(ranks=4, pipeline=2, stage=1, samples=(3, 1), accumulation=2, model="own_deep"),
    Row(ranks=4, pipeline=2, stage=2, samples=(3, 1), accumulation=2, recompute="full", layers=1),
    *(Row(ranks=8, tensor=2, stage=stage, shards=2, accumulation=2) for stage in (1, 3)),
)
CONTEXT_RANKS = (
    *(Row(context=2, stage=stage, model="own_placed") for stage in STAGES),
    *(Row(context=2, model=model) for model in ("qwen2", "qwen3", "mistral", "gemma", "gpt2")),
    Row(context=2, model="qwen3", stage=1, accumulation=2, recompute="full"),
    Row(context=2, precision="bf16"),
    Row(context=2, precision="bf16", model="llama", stage=2),
    *(Row(ranks=4, context=4, model=model) for model in ("qwen2", "gpt2", "own_placed")),
    Row(ranks=4, context=4, model="llama", stage=3),
    *(Row(ranks=4, context=2, model="llama", stage=s, accumulation=2) for s in STAGES),
    *(Row(ranks=4, context=2, tensor=2, model="qwen2", stage=stage) for stage in STAGES),
    Row(ranks=4, context=2, tensor=2, model="own_tied", sequence=True, stage=2),
    Row(ranks=4, context=2, tensor=2, sequence=True, precision="bf16"),
    Row(ranks=4, context=2, pipeline=2, model="llama", accumulation=2),
    Row(ranks=4, context=2, pipeline=2, model="gpt2", accumulation=2, recompute="full"),
    Row(
        ranks=4,
        context=2,
        pipeline=2,
        model="own_placed",
        accumulation=4,
        schedule="gpipe",
        stage=3,
    ),
    Row(ranks=4, context=2, pipeline=2, virtual=2, model="own_deep", accumulation=2, stage=1),
    Row(ranks=8, context=2, tensor=2, pipeline=2, model="qwen2", accumulation=2, stage=2),
)
"""Rows of context ranks that only ``make test-parallel`` trains."""
_SCHEDULES = (
    {"schedule": "gpipe", "model": "own_tied"},
    {"schedule": "1f1b", "model": "own_tied"},
    {"virtual": 2, "model": "own_deep"},
)
STAGED: tuple[Any, ...] = (
    *(
        Row(pipeline=2, accumulation=2, model=model)
        for model in ("llama", "mistral", "qwen2", "gemma", "mixtral", "bert")
    ),
    Row(pipeline=2, accumulation=2, precision="bf16", stage=2),
    *(
        Row(ranks=4, pipeline=2, accumulation=2, stage=stage, **schedule)
        for schedule in _SCHEDULES
        for stage in STAGES
    ),
    Row(ranks=4, pipeline=4, accumulation=4, model="own_deep"),
    Row(ranks=4, pipeline=2, accumulation=4, split=(2, 1), stage=3, recompute="selective"),
    Row(ranks=4, pipeline=2, tensor=2, accumulation=2, model="llama"),
    Row(ranks=4, pipeline=2, tensor=2, accumulation=2, model="own_tied", sequence=True),
    Row(ranks=4, pipeline=2, virtual=2, tensor=2, accumulation=2, model="own_deep"),
    Row(ranks=4, pipeline=2, accumulation=2, model="gpt2", stage=3, precision="bf16"),
    *(
        Row(ranks=8, pipeline=2, tensor=2, accumulation=2, stage=stage, **schedule)
        for schedule in _SCHEDULES[1:]
        for stage in (0, 3)
    ),
)
"""Rows of pipelines that only ``make test-parallel`` trains."""
ALL = (*TWO_RANKS, *MORE_RANKS, *CONTEXT_RANKS, *STAGED)
"""What ``make test-parallel`` trains."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a layout's steps are from those of one process, at most."""

    loss: float
    norm: float
    applied: dict[str, Any] = field(default_factory=dict)

    def within(self, row: Row) -> bool:
        """Whether it counts as equal."""
        loss, norm = row.limits
        return self.loss <= loss and self.norm <= norm

    def ran_as(self, row: Row) -> bool:
        """Whether the live model was seen to be laid out as asked."""
        asked = {
            "zero_stage": row.stage,
            "data_parallel": row.data,
            "pipeline_parallel": row.pipeline,
            "virtual_pipeline": row.virtual,
            "pipeline_split": list(row.split) if row.split else None,
            "tensor_parallel": row.tensor,
            "context_parallel": row.context,
            "expert_parallel": row.expert,
            "sequence_parallel": row.sequence,
            "recompute": row.recompute,
            "precision": row.precision,
            "micro_batch_split": list(row.samples) if row.samples else None,
        }
        extras = {"shard_ranks": row.shards, "recompute_layers": row.layers}
        asked["extras"] = {name: value for name, value in extras.items() if value is not None}
        found = dict(self.applied["extras"])
        ran = {**self.applied, "extras": {name: found.get(name) for name in asked["extras"]}}
        return asked.items() <= ran.items()


def difference(here: dict[str, Any], alone: dict[str, Any]) -> Difference:
    """Between what ``train.py`` printed and ``models.one_process``."""
    losses = zip(here["losses"], alone["losses"], strict=True)
    norms = zip(here["norms"], alone["norms"], strict=True)
    return Difference(
        loss=max(abs(a - b) for a, b in losses),
        norm=max(abs(a - b) / b for a, b in norms),
        applied=here["applied"],
    )
