"""The flags of ``plan --inference`` and ``fit --inference`` to requests."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.autotuner.inference import ENGINE_HABITS
from autoconf_launch.core import Architecture, ClusterSpec, Precision

from ..estimates import (
    MODEL_HELP,
    MOST_DEGREE,
    PRECISIONS,
    USUAL_HEADROOM,
    add_shapes,
    choice_reader,
    read_price,
    read_sequence,
    read_share,
    shapes_of,
    whole,
    with_dashes,
)
from ..flags import VerbParser, parse_bytes

INFERENCE = "--inference"
USUAL_ENGINE = "vllm"
_USUALLY_SHOWN = 10
_MOST_SHOWN = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What generates what, and on which machines.

    Attributes:
        input_len, output_len: tokens of a prompt and of its answer.
        limit_bytes: memory of each GPU.
        engine: a name of ``ENGINE_HABITS``.
        usd_per_gpu_hour: None: our price.
    """

    model: Architecture
    cluster: ClusterSpec
    limit_bytes: int
    input_len: int
    output_len: int
    precision: Precision = Precision.BF16
    engine: str = USUAL_ENGINE
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitInferenceRequest:
    """One point of a serving."""

    serving: Serving
    tp: int = 1
    pp: int = 1
    batch: int = 1
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInferenceRequest:
    """How the points of a serving are ranked.

    Attributes:
        tp, pp, batch: values to look at; empty for all.
        max_latency_ms: of a batch, from its prompt to its last token; infinite without a bound.
        pareto: the front of latency and throughput is shown.
        top: rows to show; None for all.
        headroom: share of a GPU's memory that stays free.
    """

    serving: Serving
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    max_latency_ms: float = math.inf
    pareto: bool = False
    top: int | None = _USUALLY_SHOWN
    headroom: float = USUAL_HEADROOM
    json: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether the latency has a bound."""
        return math.isfinite(self.max_latency_ms)


def parse_fit_inference(arguments: Sequence[str]) -> FitInferenceRequest:
    """Read the flags.

    Raises:
        ConfigError: an unknown flag, name or value, or a number that is out of range.
    """
    parser = make_fit_inference_parser()
    flags = parser.parse_args(with_dashes(parser, arguments))
    return FitInferenceRequest(
        serving=_serving(flags),
        tp=flags.tp,
        pp=flags.pp,
        batch=flags.batch,
        json=flags.json,
    )


def parse_plan_inference(arguments: Sequence[str]) -> PlanInferenceRequest:
    """Read the flags.

    Raises:
        ConfigError: an unknown flag, name or value, or a number that is out of range.
    """
    parser = make_plan_inference_parser()
    flags = parser.parse_args(with_dashes(parser, arguments))
    return PlanInferenceRequest(
        serving=_serving(flags),
        tp=flags.tp,
        pp=flags.pp,
        batch=flags.batch,
        max_latency_ms=flags.max_latency_ms,
        pareto=flags.pareto,
        top=flags.top or None,
        headroom=flags.headroom,
        json=flags.json,
    )


def _serving(flags: argparse.Namespace) -> Serving:
    from ..estimates import choose_cluster, limit_memory, model_of_flags  # with numpy

    cluster = choose_cluster(flags.cluster)
    return Serving(
        model=model_of_flags(flags.model, shapes_of(flags)),
        cluster=cluster,
        limit_bytes=limit_memory(flags.memory_limit, cluster),
        input_len=flags.input_len,
        output_len=flags.output_len,
        precision=Precision(flags.precision),
        engine=flags.engine,
        usd_per_gpu_hour=flags.usd_per_gpu_hour,
    )


def make_fit_inference_parser() -> VerbParser:
    """Flags of ``fit --inference``."""
    parser = VerbParser(
        prog="autoconf-launch fit --inference",
        usage="autoconf-launch fit --inference --model M --cluster C --input-len S "
        "--output-len S [flags]",
        description="Say whether a model generates text with a batch in memory, and how fast.",
        examples=(
            "autoconf-launch fit --inference --model llama3.1-8b --cluster 1xL4 --input-len 2048 "
            "--output-len 128 --batch 4",
        ),
    )
    _add_serving(parser)
    add = parser.add_argument_group("point").add_argument
    count = whole(1, MOST_DEGREE)
    for flag, text in (
        ("--tp", "tensor-parallel ranks"),
        ("--pp", "pipeline stages"),
        ("--batch", "samples that go through the model together"),
    ):
        add(flag, type=count, default=1, metavar="N", help=f"{text}; default 1")
    _add_output(parser)
    return parser


def make_plan_inference_parser() -> VerbParser:
    """Flags of ``plan --inference``."""
    parser = VerbParser(
        prog="autoconf-launch plan --inference",
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
    )
    _add_serving(parser)
    _add_ranking(parser.add_argument_group("ranking"))
    _add_output(parser)
    return parser


def _add_serving(parser: VerbParser) -> None:
    parser.add_argument(INFERENCE, action="store_true", help="generate text instead of training")
    parser.add_argument_group("model").add_argument("--model", metavar="M", help=MODEL_HELP)
    add = parser.add_argument_group("generation").add_argument
    cluster_help = "8xH100-SXM-80GB, a file, or local for this machine"
    add("--cluster", required=True, metavar="C", help=cluster_help)
    length_help = "tokens of a prompt, such as 2048 or 2k (1k: 1024 tokens)"
    add("--input-len", type=read_sequence, required=True, metavar="S", help=length_help)
    answer_help = "tokens of its answer, the first one included"
    add("--output-len", type=read_sequence, required=True, metavar="S", help=answer_help)
    engines = choice_reader("known engine", ENGINE_HABITS)
    engine_help = f"{', '.join(ENGINE_HABITS)}; default {USUAL_ENGINE}"
    add("--engine", type=engines, default=USUAL_ENGINE, metavar="NAME", help=engine_help)
    precisions = choice_reader("precision", PRECISIONS)
    precision_help = f"{', '.join(PRECISIONS)}; default bf16"
    add("--precision", type=precisions, default="bf16", metavar="NAME", help=precision_help)
    limit_help = "memory of each GPU that may be used, such as 70GB; default: all that it has"
    add("--memory-limit", type=parse_bytes, metavar="SIZE", help=limit_help)
    price_help = "replaces our table of prices"
    add("--usd-per-gpu-hour", type=read_price, metavar="USD", help=price_help)


def _add_ranking(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    for flag, text in (
        ("--tp", "tensor-parallel ranks to look at: 1,2,4; default: all"),
        ("--pp", "pipeline stages to look at; default: all"),
        ("--batch", "batches to look at; default: powers of two, and the largest"),
    ):
        add(flag, type=_sizes, default=(), metavar="N,N", help=text)
    bound_help = "most milliseconds of a batch from its prompt to its last token"
    add("--max-latency-ms", type=_milliseconds, default=math.inf, metavar="MS", help=bound_help)
    front_help = "show what no other point beats in both latency and throughput per GPU"
    add("--pareto", action="store_true", help=front_help)
    count = whole(0, _MOST_SHOWN)
    top_help = "rows to show; default 10, 0: all"
    add("--top", type=count, default=_USUALLY_SHOWN, metavar="N", help=top_help)
    headroom_help = "share of a GPU's memory that stays free; default 10"
    add(
        "--headroom",
        type=read_share,
        default=USUAL_HEADROOM,
        metavar="PERCENT",
        help=headroom_help,
    )


def _add_output(parser: VerbParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON document")
    add_shapes(parser)


def _sizes(text: str) -> tuple[int, ...]:
    read = whole(1, MOST_DEGREE)
    return tuple(sorted({read(part.strip()) for part in text.split(",")}))


def _milliseconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", text.strip()) or not float(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be milliseconds above 0, such as 2000")
    return float(text)
