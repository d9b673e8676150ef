"""``fit`` and ``plan``: a training and its machines, one layout, and how all are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autoconf_launch.autotuner.cost import AUTO_TRAINER
from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Dispatcher,
    Experts,
    FrozenPart,
    GradientSum,
    LatentAttention,
    Loss,
    Offload,
    Precision,
    Recompute,
    StateMixer,
    States,
    WeightFormat,
)
from autoconf_launch.tuning_spaces import SCHEDULES, TRAINER_NAMES, fabric_names

from .parameters import VerbQuestion, parameter, question
from .units import (
    BYTES,
    DEGREE,
    DURATION,
    FILE,
    FROZEN_PARTS,
    MOST,
    MOST_DEGREE,
    ON,
    PERCENT,
    PRICE,
    SEQUENCE,
    SHOWN,
    SIZE,
    SWITCH,
    TOKENS,
    USD,
    WHOLE_NUMBERS,
    ValueUnit,
    choice,
    mapping_of,
    refuse_other_than_texts,
    whole,
)

MODEL = ValueUnit(metavar="M")
SHAPES_GROUP = "shapes (they change the model, or are all of it)"
_EXPERTS = replace(
    DEGREE, refuse=lambda value: None if isinstance(value, Experts) else DEGREE.refuse(value)
)
_SHAPES: Mapping[str, tuple[ValueUnit, str]] = MappingProxyType(
    {
        "layers": (SIZE, "transformer layers"),
        "encoder_layers": (SIZE, "layers of the encoder, of a model that has one"),
        "hidden": (SIZE, "hidden size"),
        "heads": (SIZE, "attention heads"),
        "kv_heads": (SIZE, "key and value heads; default: as many as heads"),
        "head": (SIZE, "head_dim; default: hidden size over heads"),
        "ffn": (SIZE, "width of the MLP"),
        "vocabulary": (SIZE, "vocabulary size"),
        "positions": (SIZE, "learned positions"),
        "gated": (SWITCH, "whether the MLP is gated (SwiGLU)"),
        "biases": (SWITCH, "whether linear layers have biases"),
        "tied_embeddings": (SWITCH, "whether input and output share an embedding"),
        "experts": (_EXPERTS, "of each MoE layer"),
        "experts_per_token": (DEGREE, "experts that each token is routed to; default 2"),
        "expert_ffn": (SIZE, "width of an expert; default --ffn"),
    }
)
_OTHER_SHAPES: Mapping[str, type] = MappingProxyType(
    {
        "latent": LatentAttention,
        "state": StateMixer,
        "causal": bool,
        **dict.fromkeys(("window", "full_every", "predictions"), int),
        **dict.fromkeys(("other_parameters", "other_layer_parameters"), int),
    }
)
"""Fields of Architecture without a flag."""
_MOST_RUNS = 16
"""Verifying runs that may be asked for."""
PRECISIONS = tuple(precision.value for precision in Precision)
HABITS_GROUP = "what is trained, and how"
TRAINER = choice("trainer", TRAINER_NAMES)
PRECISION = choice("precision", PRECISIONS)
DISPATCHERS = tuple(dispatcher.value for dispatcher in Dispatcher)
CLUSTER = ValueUnit(metavar="C")
FABRIC = ValueUnit(metavar="FABRIC", known=fabric_names())
_CLUSTERS = replace(CLUSTER, action="append", refuse=refuse_other_than_texts)
SEQUENCE_ABOUT = "sequence length in tokens, such as 8192 or 8k (1k: 1024 tokens)"
_CLUSTER_ABOUT = "64x8xH100-SXM-80GB, a file, or local for this machine"
_OF_ONE_CLUSTER = (
    *("--top", "--explain", "--export", "--pareto", "--csv-form", "--layer-times"),
    *("--measured", "--verify", "--verify-budget"),
)


@question
class Modelled(VerbQuestion):
    """A model, by its name or its shapes."""

    model: str | None = parameter(
        "model", "a name, a Hugging Face id, config.json or model_info.json", MODEL, default=None
    )
    shapes: Mapping[str, Any] | None = parameter(
        SHAPES_GROUP,
        "fields of Architecture, such as layers, that change the model or are all of it",
        mapping_of(_SHAPES, _OTHER_SHAPES),
        default=None,
        parts=_SHAPES,
    )


class Goal(str, Enum):
    """Goal of a ranking."""

    TIME = "time"
    COST = "cost"


def _names(kind: type[Enum]) -> str:
    return ", ".join(one.value for one in kind)


@question
class TrainingQuestion(Modelled):
    """A training and its machines."""

    cluster: str | list[str] | tuple[str, ...] = parameter("training", _CLUSTER_ABOUT, CLUSTER)
    seq: int | None = parameter(
        "training",
        f"{SEQUENCE_ABOUT}; default: the tokens of an image or a sound, if the model reads these",
        SEQUENCE,
        default=None,
    )
    images: int | None = parameter(
        "training",
        "of each sample, for a model with a vision tower; default 1",
        whole(1, 1 << 16, "N"),
        default=None,
    )
    global_batch: int = parameter("training", "samples per optimizer step", whole(1, MOST, "B"))
    fabric: str | None = parameter(
        "training",
        f"network between nodes: {', '.join(fabric_names())}, or another ratio N:1; default: the "
        "cluster file's, or nonblocking",
        FABRIC,
        default=None,
    )
    memory_bytes: int | None = parameter(
        "training",
        "memory of each GPU that may be used, such as 70GB; default: all that it has",
        BYTES,
        default=None,
        flag="--memory-limit",
    )
    precision: Precision | str = parameter(
        HABITS_GROUP, f"{', '.join(PRECISIONS)}; default bf16", PRECISION, default="bf16"
    )
    optimizer: str = parameter(
        HABITS_GROUP,
        f"{', '.join(OPTIMIZER_STATES)}; default adamw",
        choice("optimizer", OPTIMIZER_STATES),
        default="adamw",
    )
    states: States | str | None = parameter(
        HABITS_GROUP,
        f"formats of weights, gradients and moments: {_names(States)}; default: the trainer's",
        choice("format of states", States),
        default=None,
    )
    gradients: GradientSum | str | None = parameter(
        HABITS_GROUP,
        f"format in which gradients are summed: {_names(GradientSum)}; default: the trainer's",
        choice("format of gradients", GradientSum, "FORMAT"),
        default=None,
    )
    update_in_backward: bool = parameter(
        HABITS_GROUP,
        "each weight is updated in the backward pass, which then frees its gradient",
        ON,
        default=False,
    )
    loss: Loss | str | None = parameter(
        HABITS_GROUP,
        "logits at once: whole, chunked (the loss in pieces), fused (the head too); default: the "
        "trainer's",
        choice("loss", Loss),
        default=None,
    )
    trainer: str = parameter(
        HABITS_GROUP,
        f"framework whose rules apply: {', '.join(TRAINER_NAMES)}; default {AUTO_TRAINER}",
        TRAINER,
        default=AUTO_TRAINER,
    )
    dispatcher: Dispatcher | str | None = parameter(
        HABITS_GROUP,
        f"library that sends tokens to their experts: {', '.join(DISPATCHERS)}; default: the "
        "trainer's",
        choice("dispatcher", DISPATCHERS),
        default=None,
    )
    schedule: str = parameter(
        HABITS_GROUP,
        f"order of the micro-batches in a pipeline: {', '.join(SCHEDULES)}; default 1f1b",
        choice("schedule", SCHEDULES),
        default="1f1b",
    )
    lora_rank: int | None = parameter(
        HABITS_GROUP, "train adapters of this rank", whole(1, 1 << 16, "R"), default=None
    )
    weights: WeightFormat | str | None = parameter(
        HABITS_GROUP,
        "how frozen weights are stored under --lora-rank: int8, or nf4 (QLoRA)",
        choice("weight format", WeightFormat, "FORMAT"),
        default=None,
    )
    freeze: Set[FrozenPart | str] | Sequence[FrozenPart | str] = parameter(
        HABITS_GROUP,
        f"parts that are not trained, with commas between them: {_names(FrozenPart)}",
        FROZEN_PARTS,
        default=frozenset(),
    )
    compile: bool = parameter(
        HABITS_GROUP, "the model runs under torch.compile", ON, default=False
    )
    flash_attention: bool | None = parameter(
        HABITS_GROUP, "default: the trainer's", SWITCH, default=None
    )


@question
class FitQuestion(TrainingQuestion):
    """A training and one layout of it."""

    cluster: str = parameter(
        "training", f"{_CLUSTER_ABOUT}; default local", CLUSTER, default="local"
    )
    tp: int = parameter("layout", "tensor-parallel ranks", DEGREE, default=1)
    pp: int = parameter("layout", "pipeline stages", DEGREE, default=1)
    vpp: int = parameter("layout", "virtual stages per pipeline rank", DEGREE, default=1)
    cp: int = parameter("layout", "context-parallel ranks", DEGREE, default=1)
    ep: int = parameter("layout", "expert-parallel ranks", DEGREE, default=1)
    micro_batch: int = parameter("layout", "samples per forward pass of a rank", DEGREE, default=1)
    zero: int | None = parameter(
        "layout",
        "ZeRO stage; default 1, or 3 if the trainer lacks 1",
        whole(0, 3, "0-3"),
        default=None,
    )
    recompute: Recompute | str | None = parameter(
        "layout", _names(Recompute), choice("recompute", Recompute, "KIND"), default=None
    )
    recompute_layers: int | None = parameter(
        "layout", "only K layers of each stage", whole(1, MOST_DEGREE, "K"), default=None
    )
    offload: Offload | str = parameter(
        "layout", _names(Offload), choice("offload", Offload, "WHAT"), default="none"
    )
    placement: Sequence[int] | None = parameter(
        "layout",
        "slot of each rank, node by node: 4-7,0-3; default: in order",
        WHOLE_NUMBERS,
        default=None,
    )
    pipeline_split: Sequence[int] | None = parameter(
        "layout", "layers of each stage: 14,5,5", WHOLE_NUMBERS, default=None
    )
    micro_batch_split: Sequence[int] | None = parameter(
        "layout", "micro-batch of each data-parallel rank: 5,3", WHOLE_NUMBERS, default=None
    )
    sequence_parallel: bool | None = parameter(
        "layout",
        "split norms and dropout along the sequence; default with --tp",
        SWITCH,
        default=None,
    )

    def recomputes(self) -> Recompute:
        """The kind of recomputation; layers to recompute are in full."""
        return Recompute(self.recompute or ("full" if self.recompute_layers else "none"))

    def contradictions(self) -> Iterator[str]:
        """Sentences on layers and samples that do not go together."""
        recompute, samples = self.recomputes(), self.micro_batch_split
        if self.recompute_layers and recompute is not Recompute.FULL:
            yield f"--recompute-layers needs --recompute full, got {recompute.value}"
        if samples and len(set(samples)) > 1 and sum(samples) % len(samples):
            yield (
                f"--micro-batch-split adds up to {sum(samples)}; it must be a multiple of its "
                f"{len(samples)} ranks, as its mean is the micro-batch"
            )


@question
class PlanRanking:
    """Order and limits of a ranking of layouts."""

    top: int | None = parameter(
        "ranking",
        "families to show, the best layout of each; default 10, 0: all layouts that fit",
        SHOWN,
        default=10,
    )
    headroom: float = parameter(
        "ranking",
        "share of a GPU's memory that a safe layout leaves free; default 10 %",
        PERCENT,
        default=0.1,
    )
    explain: bool = parameter(
        "ranking",
        "say why well-known layouts lost and where the winner's step time goes",
        ON,
        default=False,
    )
    runnable: bool = parameter(
        "ranking", "rank only layouts that our own runtime trains", ON, default=False
    )
    exclude_offload: bool = parameter(
        "ranking", "rank only layouts that keep all states on the GPUs", ON, default=False
    )
    objective: Goal | str = parameter(
        "ranking",
        f"{_names(Goal)}; default time, or cost for mixed nodes with --deadline",
        choice("objective", Goal, "GOAL"),
        default="time",
    )
    gpus_needed: bool = parameter(
        "ranking",
        "the fewest GPUs of this kind that fit it, or train within --deadline",
        ON,
        default=False,
    )


@question
class TrainingBudget:
    """Tokens of a whole training, the most time and money for them, and a GPU's price."""

    tokens: int | None = parameter(
        "ranking", "of the whole training, such as 300B or 15T", TOKENS, default=None
    )
    deadline_s: float | None = parameter(
        "ranking", "to train on all tokens, such as 5d", DURATION, default=None, flag="--deadline"
    )
    max_cost_usd: float | None = parameter(
        "ranking", "to train on all tokens, such as 5M", USD, default=None, flag="--max-cost"
    )
    usd_per_gpu_hour: float | None = parameter(
        "ranking", "replaces our table of prices", PRICE, default=None
    )

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits that are given, in seconds and USD, by their flags."""
        both = {"--deadline": self.deadline_s, "--max-cost": self.max_cost_usd}
        return {flag: limit for flag, limit in both.items() if limit is not None}

    @property
    def is_only_timed(self) -> bool:
        return [*self.limits] == ["--deadline"]

    def steps(self, batch_tokens: int) -> int | None:
        """Optimizer steps of the whole training; None if its tokens are not known."""
        return None if self.tokens is None else math.ceil(self.tokens / batch_tokens)

    def step_limits(self, batch_tokens: int) -> tuple[float, float]:
        """Seconds and USD of the longest and most expensive step; infinite without a limit."""
        if (steps := self.steps(batch_tokens)) is None:
            return math.inf, math.inf
        longest_s, most_usd = (
            math.inf if x is None else x for x in (self.deadline_s, self.max_cost_usd)
        )
        return longest_s / steps, most_usd / steps

    def price_need(self) -> str:
        """The flag of a limit that needs a price; empty without one."""
        return "" if self.max_cost_usd is None else "--max-cost"

    def exceeded_limits(self, seconds: float, usd: float | None) -> Mapping[str, float]:
        """The limits, by their flags, that a training exceeds."""
        both = {"--deadline": seconds, "--max-cost": usd or 0.0}
        return {flag: limit for flag, limit in self.limits.items() if both[flag] > limit}


@question
class RealRuns:
    """Real runs that correct a prediction, and how many more to name."""

    measured: str | Path | None = parameter(
        "real runs",
        "real runs of this training, smaller ones too, that correct the answer (as validate)",
        FILE,
        default=None,
    )
    verify: int | None = parameter(
        "real runs",
        "name the N cheapest real runs that narrow the error band most",
        whole(1, _MOST_RUNS),
        default=None,
    )
    verify_budget_usd: float | None = parameter(
        "real runs",
        "the same, of as many runs as this money pays for",
        USD,
        default=None,
        flag="--verify-budget",
    )

    def contradictory_runs(self) -> Iterator[str]:
        """A sentence on two bounds of the runs to name."""
        if self.verify is not None and self.verify_budget_usd is not None:
            yield "--verify and --verify-budget cannot be given together; give one of them"


@question
class PlanQuestion(RealRuns, TrainingBudget, PlanRanking, TrainingQuestion):
    """A training, and how its layouts are ranked."""

    cluster: str | list[str] | tuple[str, ...] = parameter(
        "training", f"{_CLUSTER_ABOUT}; several are compared", _CLUSTERS
    )

    @property
    def clusters(self) -> tuple[str, ...]:
        """Each cluster once."""
        texts = [self.cluster] if isinstance(self.cluster, str) else self.cluster
        return tuple(dict.fromkeys(texts))

    def contradictions(self) -> Iterator[str]:
        for flag in self.limits if self.tokens is None else ():
            yield f"{flag} bounds the whole training; give its --tokens too, such as 15T"
        yield from self.contradictory_runs()
        if not self.clusters:
            yield "--cluster is empty; give at least one, such as '8xH100'"
        for flag in (one for one in _OF_ONE_CLUSTER if one in self.given):
            if len(self.clusters) > 1:
                yield f"{flag} is about the layouts of one cluster; give one --cluster"
