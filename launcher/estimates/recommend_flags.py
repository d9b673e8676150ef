"""The flags of ``recommend`` to a RecommendRequest. Not: what follows from them (commands)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from autoconf_launch.core import ConfigError

from ..export import BASE_EXPORTERS
from ..flags import VerbParser
from .training_flags import (
    SEQUENCE_HELP,
    add_own_runs,
    frameworks_reader,
    read_sequence,
    read_tokens,
    whole,
    with_dashes,
)
from .training_request import MOST

if TYPE_CHECKING:
    from autoconf_launch.autotuner.planner import Bounds
    from autoconf_launch.autotuner.sizing import Goodput

_MOST_GPUS = 1 << 20


def _usual_goodput() -> Goodput:
    from autoconf_launch.autotuner.sizing import Goodput  # with numpy, unlike --help

    return Goodput()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRequest:
    """What is asked; None where a flag was not given.

    Attributes:
        family: None where a model says it.
        model: a name, an id or a file, as ``fit`` takes it.
        tokens_b: in billions; 0 where the flag was not given.
        custom_config: a file whose keys win over those of the base configuration.
        measured: file of real runs that correct predicted steps.
        verify: of the further runs to name.
        export: frameworks that the base configuration is written for, too.
    """

    tokens_b: float
    family: str | None = None
    model: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    cluster: str | None = None
    gpu_memory_gb: float | None = None
    tflops_per_gpu: float | None = None
    max_days: float | None = None
    model_size_b: float | None = None
    vocabulary: int | None = None
    sequence: int | None = None
    global_batch: int | None = None
    goodput: Goodput = field(default_factory=_usual_goodput)
    usd_per_gpu_hour: float | None = None
    measured: Path | None = None
    verify: Bounds | None = None
    base_config: Path | None = None
    custom_config: Path | None = None
    export: tuple[str, ...] = ()
    wandb_project: str | None = None
    json: bool = False
    html: Path | None = None


def parse_recommend(arguments: Sequence[str]) -> RecommendRequest:
    """Read the flags.

    Raises:
        ConfigError: an unknown flag or value, a number out of range, or nothing to answer.
    """
    from autoconf_launch.autotuner.sizing import with_assumption

    from .verifying import run_bounds

    parser = make_recommend_parser()
    flags = parser.parse_args(with_dashes(parser, arguments))
    goodput = _usual_goodput()
    for name, value in flags.assume:
        goodput = with_assumption(goodput, name, value)
    request = RecommendRequest(
        family=flags.family,
        model=flags.model,
        tokens_b=flags.tokens or 0.0,
        gpus=flags.gpus,
        nodes=flags.num_nodes,
        cluster=flags.cluster,
        gpu_memory_gb=flags.gpu_memory_gb,
        tflops_per_gpu=flags.tflops_per_gpu,
        max_days=flags.max_days,
        model_size_b=flags.model_size,
        vocabulary=flags.vocab,
        sequence=flags.seq,
        global_batch=flags.global_batch,
        goodput=goodput,
        usd_per_gpu_hour=flags.usd_per_gpu_hour,
        measured=flags.measured,
        verify=run_bounds(flags.verify, flags.verify_budget),
        base_config=flags.base_config,
        custom_config=flags.custom_config,
        export=flags.export,
        wandb_project=flags.wandb_project,
        json=flags.json,
        html=flags.html,
    )
    if missing := what_is_missing(request):
        parser.error(missing)
    return request


def what_is_missing(request: RecommendRequest) -> str | None:
    """What must be omitted, or all that must be given too; None where the question is whole."""
    contradiction = _applying(_contradictions(request))
    if contradiction:
        return contradiction[0]
    return "; ".join(_applying(_gaps(request))) or None


def _applying(rules: Iterable[tuple[bool, str]]) -> list[str]:
    return [sentence for is_wrong, sentence in rules if is_wrong]


def _gaps(request: RecommendRequest) -> Iterator[tuple[bool, str]]:
    nothing = request.cluster is None
    yield request.family is None and request.model is None, "give --family, or --model"
    yield not request.tokens_b, "give --tokens, such as 2T"
    yield (
        (request.max_days or request.model_size_b or request.model) is None,
        "give --max-days for a size, or --model-size or --model for the days; both for the "
        "number of GPUs",
    )
    yield request.gpus is None and nothing, "give --gpus, or --cluster, such as 8xH100"
    yield (
        request.tflops_per_gpu is None and nothing,
        "give --tflops-per-gpu, or --cluster to have it predicted",
    )


def _contradictions(request: RecommendRequest) -> tuple[tuple[bool, str], ...]:
    return (
        (
            request.model is not None and request.model_size_b is not None,
            "--model has a size; omit --model-size",
        ),
        (
            request.cluster is not None and request.nodes is not None,
            "--cluster says how many nodes there are; omit --num-nodes",
        ),
        (
            request.custom_config is not None and request.base_config is None,
            "--custom-config changes what --base-config writes; give --base-config too",
        ),
        (
            request.wandb_project is not None and request.base_config is None,
            "--wandb-project is written into --base-config; give --base-config too",
        ),
        (
            bool(request.export) and request.base_config is None,
            "--export exports what --base-config writes; give --base-config too",
        ),
    )


def make_recommend_parser() -> VerbParser:
    """Flags of ``recommend``."""
    parser = VerbParser(
        prog="autoconf-launch recommend",
        usage="autoconf-launch recommend --family F --gpus N --tflops-per-gpu T --max-days D "
        "--tokens 300B [flags]",
        description="Recommend the model size that GPUs can train in a number of days, the days "
        "of a size, or the GPUs for a size and days, by our planner and by NVIDIA's formula; "
        "write its base configuration.",
        examples=(
            "autoconf-launch recommend --family llama --tokens 2T --cluster 16x8xH100 "
            "--max-days 30",
            "autoconf-launch recommend --family llama --tokens 2T --model-size 70 --max-days 30 "
            "--cluster 8xH100",
            "autoconf-launch recommend --family gpt3 --tokens 300B --gpus 160 "
            "--tflops-per-gpu 140 --model-size 5",
            "autoconf-launch recommend --family llama --tokens 1T --cluster 8x8xH100 "
            "--max-days 14 --base-config base.yaml --export nemo2",
        ),
    )
    _add_question(parser.add_argument_group("question"))
    _add_model(parser.add_argument_group("model"))
    _add_planner(parser.add_argument_group("planner"))
    _add_output(parser.add_argument_group("output"))
    return parser


def _add_question(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--family", type=_family, metavar="F", help="gpt3, t5, mt5, bert, llama, …")
    add("--tokens", type=_billions, metavar="N", help="to train on: 300B, 1.8T, …")
    add(
        "--gpus",
        type=whole(1, _MOST_GPUS),
        metavar="N",
        help="in all; --cluster has them",
    )
    add("--num-nodes", type=whole(1, _MOST_GPUS), metavar="N", help="nodes that hold --gpus")
    rate_help = "TFLOP/s that each GPU achieves, not its datasheet's peak"
    add("--tflops-per-gpu", type=_number(1e-3, 1e6), metavar="T", help=rate_help)
    add(
        "--max-days",
        type=_number(1e-4, 1e5),
        metavar="D",
        help="days to train in: for a model size, or the GPUs of one",
    )
    size_help = "billions of parameters: predict the days; with --max-days the GPUs"
    add("--model-size", type=_number(1e-6, 1e6), metavar="B", help=size_help)
    model_help = "in place of --model-size: a name, a Hugging Face id or config.json"
    add("--model", metavar="M", help=model_help)


def _add_model(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--vocab", type=whole(1, MOST), metavar="V", help="vocabulary size")
    add("--seq", type=read_sequence, metavar="S", help=SEQUENCE_HELP)
    add("--global-batch", type=whole(1, MOST), metavar="B", help="samples per optimizer step")


def _add_planner(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--cluster", metavar="C", help="20x8xA100-SXM-80GB, a file, or local")
    add("--gpu-memory-gb", type=_number(1, 1e4), metavar="GB", help="of each GPU")
    price_help = "replaces our table of prices"
    add("--usd-per-gpu-hour", type=_number(0, 1e4), metavar="USD", help=price_help)
    assume_help = "an assumption on failures and pauses, such as restart_s=600"
    add(
        "--assume",
        type=_assumption,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=assume_help,
    )
    add_own_runs(group)


def _add_output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--base-config", type=Path, metavar="OUT.yaml", help="write the base configuration")
    custom_help = "its keys override the base configuration; a whole one replaces it"
    add("--custom-config", type=Path, metavar="FILE", help=custom_help)
    frameworks, export_help = "|".join(BASE_EXPORTERS), "also write it for these frameworks"
    read = frameworks_reader(BASE_EXPORTERS)
    add("--export", type=read, default=(), metavar=frameworks, help=export_help)
    add("--wandb-project", metavar="NAME", help="that the base configuration logs to")
    add("--json", action="store_true", help="print one JSON document")
    add("--html", type=Path, metavar="FILE", help="write the answer with charts as one page")


def _family(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a family")
    from autoconf_launch.autotuner.sizing import family_named

    try:
        return family_named(text).name
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _billions(text: str) -> float:
    """Exact in decimals, as the formula rounds."""
    return float(Decimal(read_tokens(text)).scaleb(-9))


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a number from {least:g} to {most:g}"
            )
        return value

    return read


def _assumption(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.replace("-", "_"), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be NAME=VALUE, such as restart_s=600"
        ) from None


def tokens_text(tokens_b: float) -> str:
    """``2 T tokens``, ``300 B tokens``, ``0.3 M tokens``."""
    scales = ((1e3, "T"), (1.0, "B"))
    scale, letter = next((one for one in scales if tokens_b >= one[0]), (1e-3, "M"))
    return f"{tokens_b / scale:g} {letter} tokens"
