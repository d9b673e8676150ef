"""``fit --inference`` and ``plan --inference``: the engine, a point, and a ranking."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoconf_launch.autotuner.inference import ENGINE_HABITS
from autoconf_launch.core import Precision

from .parameters import Header, parameter, question
from .training import CLUSTER, PRECISION, PRECISIONS, SHAPES_GROUP, Modelled
from .units import BYTES, DEGREE, MILLISECONDS, ON, PERCENT, PRICE, SEQUENCE, SHOWN, SIZES, choice

USUAL_ENGINE = "vllm"
_GROUPS = ("model", "generation", "point", "ranking", "output", SHAPES_GROUP)


@question
class ServingQuestion(Modelled):
    """A model that generates text, and the machines."""

    cluster: str = parameter(
        "generation", "8xH100-SXM-80GB, a file, or local for this machine", CLUSTER
    )
    input_len: int = parameter(
        "generation", "tokens of a prompt, such as 2048 or 2k (1k: 1024 tokens)", SEQUENCE
    )
    output_len: int = parameter(
        "generation", "tokens of its answer, the first one included", SEQUENCE
    )
    engine: str = parameter(
        "generation",
        f"{', '.join(ENGINE_HABITS)}; default {USUAL_ENGINE}",
        choice("known engine", ENGINE_HABITS),
        default=USUAL_ENGINE,
    )
    precision: Precision | str = parameter(
        "generation", f"{', '.join(PRECISIONS)}; default bf16", PRECISION, default="bf16"
    )
    memory_bytes: int | None = parameter(
        "generation",
        "memory of each GPU that may be used, such as 70GB; default: all that it has",
        BYTES,
        default=None,
        flag="--memory-limit",
    )
    usd_per_gpu_hour: float | None = parameter(
        "generation", "replaces our table of prices", PRICE, default=None
    )


@question
class ServingPoint:
    """A point of a serving: ranks and batch."""

    tp: int = parameter("point", "tensor-parallel ranks; default 1", DEGREE, default=1)
    pp: int = parameter("point", "pipeline stages; default 1", DEGREE, default=1)
    batch: int = parameter(
        "point", "samples that go through the model together; default 1", DEGREE, default=1
    )


@question
class ServingPoints:
    """Points of a serving to rank, and their order."""

    tp: Sequence[int] = parameter(
        "ranking", "tensor-parallel ranks to look at: 1,2,4; default: all", SIZES, default=()
    )
    pp: Sequence[int] = parameter(
        "ranking", "pipeline stages to look at; default: all", SIZES, default=()
    )
    batch: Sequence[int] = parameter(
        "ranking", "batches to look at; default: powers of two, and the largest", SIZES, default=()
    )
    max_latency_ms: float = parameter(
        "ranking",
        "most milliseconds of a batch from its prompt to its last token",
        MILLISECONDS,
        default=math.inf,
    )
    pareto: bool = parameter(
        "ranking",
        "show what no other point beats in both latency and throughput per GPU",
        ON,
        default=False,
    )
    top: int | None = parameter("ranking", "rows to show; default 10, 0: all", SHOWN, default=10)
    headroom: float = parameter(
        "ranking", "share of a GPU's memory that stays free; default 10 %", PERCENT, default=0.1
    )


@question
class FitInferenceQuestion(ServingPoint, ServingQuestion):
    """A model that generates text, and one point."""


@question
class PlanInferenceQuestion(ServingPoints, ServingQuestion):
    """A model that generates text, and which points are ranked, and how."""


@question
class InferenceCommand:
    """Flags that both verbs have only on the command line."""

    inference: bool = parameter("", "generate text instead of training", ON, default=False)
    json: bool = parameter("output", "print one JSON document", ON, default=False)


@question
class FitInferenceCommand(InferenceCommand, FitInferenceQuestion):
    """``fit --inference`` of the command line."""

    header = Header(
        verb="fit --inference",
        usage="autoconf-launch fit --inference --model M --cluster C --input-len S "
        "--output-len S [flags]",
        description="Say whether a model generates text with a batch in memory, and how fast.",
        examples=(
            "autoconf-launch fit --inference --model llama3.1-8b --cluster 1xL4 --input-len 2048 "
            "--output-len 128 --batch 4",
        ),
        groups=_GROUPS,
    )


@question
class PlanInferenceCommand(InferenceCommand, PlanInferenceQuestion):
    """``plan --inference`` of the command line."""

    header = Header(
        verb="plan --inference",
        usage="autoconf-launch plan --inference --model M --cluster C --input-len S "
        "--output-len S [flags]",
        description="Rank tensor and pipeline ranks and batches by predicted latency and "
        "throughput per GPU, without a GPU.",
        examples=(
            "autoconf-launch plan --inference --model llama3.1-8b --cluster 8xA100-SXM-80GB "
            "--input-len 2048 --output-len 128 --max-latency-ms 2000 --pareto",
            "autoconf-launch plan --inference --model llama3-70b --cluster 8xH100 --input-len 1k "
            "--output-len 256 --tp 4,8 --batch 1,8,64",
        ),
        groups=_GROUPS,
    )
