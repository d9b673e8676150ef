"""The flags of ``fit`` to a FitRequest. Not: what they mean together (commands/fit)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from autoconf_launch.core import ALL_LAYERS, ConfigError, Degrees, Layout, Offload, Recompute

from ..flags import VerbParser
from .training_flags import (
    MOST_DEGREE,
    add_output,
    add_own_runs,
    add_training,
    choice_reader,
    frameworks_reader,
    read_money,
    read_tokens,
    trainings_of,
    whole,
    with_dashes,
)
from .training_request import TrainingRequest

if TYPE_CHECKING:
    from autoconf_launch.autotuner.planner import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """What is asked.

    Attributes:
        layout: its data parallelism and accumulation follow from cluster and global batch.
        recompute_layers: of each stage, recomputed in full; -1 for all.
        is_sequence_open: sequence parallelism was not said; trainers switch it on with tensor
            parallelism.
        is_zero_open: the ZeRO stage was not said; it is the trainer's.
    """

    training: TrainingRequest
    layout: Layout
    recompute_layers: int = ALL_LAYERS
    is_sequence_open: bool = False
    is_zero_open: bool = False


def parse_fit(arguments: Sequence[str], *, of_script: bool = False) -> FitRequest:
    """Read the flags; those that a script says are not required of a script.

    Raises:
        ConfigError: an unknown flag or value, or a number that is out of range.
    """
    parser = make_fit_parser(of_script=of_script)
    words = with_dashes(parser, arguments)
    flags = parser.parse_args(words)
    recompute = Recompute(flags.recompute or ("full" if flags.recompute_layers else "none"))
    if flags.recompute_layers and recompute is not Recompute.FULL:
        parser.error(f"--recompute-layers needs --recompute full, got {recompute.value}")
    samples = flags.micro_batch_split
    if samples and len(set(samples)) > 1 and sum(samples) % len(samples):
        parser.error(
            f"--micro-batch-split adds up to {sum(samples)}; it must be a multiple of its "
            f"{len(samples)} ranks, as its mean is the micro-batch"
        )
    layout = Layout(
        tensor_parallel=flags.tp,
        pipeline_parallel=flags.pp,
        virtual_pipeline=flags.vpp,
        context_parallel=flags.cp,
        expert_parallel=flags.ep,
        zero_stage=flags.zero or 0,
        micro_batch=sum(samples) // len(samples) if samples else flags.micro_batch,
        recompute=recompute,
        offload=Offload(flags.offload),
        sequence_parallel=bool(flags.sequence_parallel),
        placement=flags.placement,
        pipeline_split=flags.pipeline_split,
        micro_batch_split=samples,
    )
    return FitRequest(
        training=trainings_of(flags, words, of_script=of_script)[0],
        layout=layout,
        recompute_layers=flags.recompute_layers or ALL_LAYERS,
        is_sequence_open=flags.sequence_parallel is None,
        is_zero_open=flags.zero is None,
    )


def make_fit_parser(*, of_script: bool = False) -> VerbParser:
    """Flags of ``fit``."""
    parser = VerbParser(
        prog="autoconf-launch fit",
        usage="autoconf-launch fit --model M --seq S --global-batch B [--cluster C] [flags], or "
        "[--cluster C] [flags] -- python train.py …",
        description="Say whether a training fits, part by part, without a GPU.",
        examples=(
            "autoconf-launch fit --model llama3-8b --cluster 8xH100 --seq 8192 --global-batch 64 "
            "--recompute full",
            "autoconf-launch fit --model llama3-8b --cluster rtx4090 --seq 2048 "
            "--global-batch 8 --lora-rank 16 --recompute full",
            "autoconf-launch fit -- python train.py --batch_size 8",
        ),
    )
    add_training(parser, of_script=of_script, usual_cluster="local")
    _add_layout(parser.add_argument_group("layout"))
    _add_inference(add_output(parser), "fit")
    return parser


def _add_inference(group: argparse._ArgumentGroup, verb: str) -> None:
    """The flag that asks of text generation, which has a parser of its own."""
    text = f"text generation instead of training; see {verb} --inference --help"
    group.add_argument("--inference", action="store_true", help=text)


def _add_layout(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    degree = whole(1, MOST_DEGREE)
    for flag, text in (
        ("--tp", "tensor-parallel ranks"),
        ("--pp", "pipeline stages"),
        ("--vpp", "virtual stages per pipeline rank"),
        ("--cp", "context-parallel ranks"),
        ("--ep", "expert-parallel ranks"),
        ("--micro-batch", "samples per forward pass of a rank"),
    ):
        add(flag, type=degree, default=1, metavar="N", help=text)
    zero_help = "ZeRO stage; default 1, or 3 if the trainer lacks 1"
    add("--zero", type=whole(0, 3), metavar="0-3", help=zero_help)
    recomputes, offloads = [r.value for r in Recompute], [o.value for o in Offload]
    read = choice_reader("recompute", recomputes)
    add("--recompute", type=read, metavar="KIND", help=", ".join(recomputes))
    add("--recompute-layers", type=degree, metavar="K", help="only K layers of each stage")
    read = choice_reader("offload", offloads)
    add("--offload", type=read, default="none", metavar="WHAT", help=", ".join(offloads))
    for flag, text in (
        ("--placement", "slot of each rank, node by node: 4-7,0-3; default: in order"),
        ("--pipeline-split", "layers of each stage: 14,5,5"),
        ("--micro-batch-split", "micro-batch of each data-parallel rank: 5,3"),
    ):
        add(flag, type=_whole_numbers, metavar="N,N", help=text)
    split_help = "split norms and dropout along the sequence; default with --tp"
    add("--sequence-parallel", action="switch", help=split_help)


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between them; ``4-7`` is 4,5,6,7."""
    parts = [re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part.strip()) for part in text.split(",")]
    runs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if not all(parts) or any(first > last for first, last in runs):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be whole numbers, such as 14,5,5 or 4-7,0-3"
        )
    if sum(last - first + 1 for first, last in runs) > MOST_DEGREE:
        raise argparse.ArgumentTypeError(f"{text!r} has more than {MOST_DEGREE} numbers")
    return tuple(number for first, last in runs for number in range(first, last + 1))


CLUSTER_TEMPLATE = "--cluster-template"
_PRESET = "--preset"
_MOST_SHOWN = 1 << 24
_USUALLY_SHOWN = 10
USUAL_HEADROOM = 0.1
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Goal(str, Enum):
    """What layouts are ranked by."""

    TIME = "time"
    COST = "cost"


class CsvForm(str, Enum):
    """Columns of a plan's table."""

    FULL = "full"
    FASOP = "fasop"
    """Those of FASOP, with ``*`` between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is asked; None where a flag was not given.

    Attributes:
        degrees: of a preset that looks at some layouts alone.
        others: the same training on further clusters, to be compared.
        gpus_needed: the cluster is a node; so many GPUs of its kind are taken as the training
            needs to fit and be within the limits.
        top: families of layouts to show, the best layout of each; None for all that fit.
        headroom: share of a GPU's memory that a safe layout leaves free.
        deadline_s: of the whole training of ``tokens``.
        max_cost_usd: the same in money.
        prices: of GPUs by name, USD an hour; they replace those of the table and of files.
        pareto: the front of time and money over all parts of the cluster is asked for.
        layer_times: file of measured layers in place of predicted ones.
        measured: file of real runs that correct predicted steps.
        verify: of the further runs to name.
        runnable: only layouts that our runtime trains are ranked.
        export: frameworks that a row's layout is written for; ``row`` is the table's, None for the
            first one, or for the first that runs where our own runtime is among them; ``output``
            is the folder.
    """

    training: TrainingRequest
    degrees: Degrees | None = None
    others: tuple[TrainingRequest, ...] = ()
    gpus_needed: bool = False
    top: int | None = _USUALLY_SHOWN
    headroom: float = USUAL_HEADROOM
    explain: bool = False
    goal: Goal = Goal.TIME
    tokens: int | None = None
    deadline_s: float | None = None
    max_cost_usd: float | None = None
    usd_per_gpu_hour: float | None = None
    prices: tuple[tuple[str, float], ...] = ()
    pareto: bool = False
    layer_times: Path | None = None
    measured: Path | None = None
    verify: Bounds | None = None
    csv: Path | None = None
    csv_form: CsvForm = CsvForm.FULL
    html: Path | None = None
    runnable: bool = False
    export: tuple[str, ...] = ()
    row: int | None = None
    output: Path | None = None


def parse_plan(arguments: Sequence[str], *, of_script: bool = False) -> PlanRequest:
    """Read the flags; those that a script says are not required of a script.

    Raises:
        ConfigError: an unknown flag or value, a number out of range, or a limit without tokens.
    """
    from .verifying import run_bounds  # with numpy, which --help does not wait for

    parser = make_plan_parser(of_script=of_script)
    words, degrees = _with_preset(with_dashes(parser, arguments))
    flags = parser.parse_args(words)
    for flag, limit in (("--deadline", flags.deadline), ("--max-cost", flags.max_cost)):
        if limit is not None and flags.tokens is None:
            parser.error(f"{flag} bounds the whole training; give its --tokens too, such as 15T")
    if flags.csv is None and flags.csv_form != CsvForm.FULL.value:
        parser.error("--csv-form says what --csv writes; give its file too")
    if flags.price and flags.usd_per_gpu_hour is not None:
        parser.error("--price and --usd-per-gpu-hour exclude each other; give one of them")
    if flags.export and flags.output is None:
        parser.error("--export writes files; give their folder with -o DIR")
    if not flags.export and (flags.row, flags.output) != (None, None):
        parser.error("--row and -o say what --export writes, and where; give --export too")
    trainings = trainings_of(flags, words, of_script=of_script, runnable=flags.runnable)
    alone = [flag for flag in _OF_ONE_CLUSTER if flag in trainings[0].given]
    if alone and len(trainings) > 1:
        parser.error(f"{alone[0]} is about the layouts of one cluster; give one --cluster")
    prices = _named_prices(flags.price)
    _require_in_cluster(prices, trainings)
    return PlanRequest(
        training=trainings[0],
        degrees=degrees,
        others=trainings[1:],
        gpus_needed=flags.gpus_needed,
        top=flags.top or None,
        headroom=flags.headroom,
        explain=flags.explain,
        runnable=flags.runnable,
        goal=Goal(flags.objective),
        tokens=flags.tokens,
        deadline_s=flags.deadline,
        max_cost_usd=flags.max_cost,
        usd_per_gpu_hour=flags.usd_per_gpu_hour,
        prices=prices,
        pareto=flags.pareto,
        layer_times=flags.layer_times,
        measured=flags.measured,
        verify=run_bounds(flags.verify, flags.verify_budget),
        csv=flags.csv,
        csv_form=CsvForm(flags.csv_form),
        html=flags.html,
        export=flags.export,
        row=flags.row,
        output=flags.output,
    )


def _with_preset(words: Sequence[str]) -> tuple[list[str], Degrees | None]:
    """Words with the flags of a preset before them, save those that are given, and its degrees."""
    names = [word.partition("=")[0] for word in words]
    if _PRESET not in names:
        return [*words], None
    from autoconf_launch.tuning_spaces import preset  # with numpy, which --help does not wait for

    place = names.index(_PRESET)
    _, equals, value = words[place].partition("=")
    name = value if equals else "".join(words[place + 1 : place + 2])
    if not name:
        return [*words], None
    found = preset(name)
    usual = {flag: value for flag, value in found.flags.items() if flag not in names}
    return [word for pair in usual.items() for word in pair] + [*words], found.degrees


def make_plan_parser(*, of_script: bool = False) -> VerbParser:
    """Flags of ``plan``."""
    parser = VerbParser(
        prog="autoconf-launch plan",
        usage="autoconf-launch plan --model M --cluster C --seq S --global-batch B [flags], or "
        "--cluster C [flags] -- python train.py …",
        description="Rank every layout of a training by its predicted step time, without a GPU.",
        examples=(
            "autoconf-launch plan --model llama3-70b --cluster 16x8xH100 --seq 8192 "
            "--global-batch 512 --tokens 2T",
            "autoconf-launch plan --model gpt3-175b --cluster 64x8xA100 --seq 2048 "
            "--global-batch 1536 --explain",
            "autoconf-launch plan --model llama3-70b --cluster 16x8xH100 --cluster 32x8xA100 "
            "--seq 8k --global-batch 512 --tokens 2T",
            "autoconf-launch plan --model llama3-70b --cluster 8xH100 --seq 8k --global-batch 512 "
            "--tokens 2T --deadline 30d --gpus-needed",
            "autoconf-launch plan --cluster 2x8xH100 -- python train.py --batch_size 8",
            "autoconf-launch plan --preset fasop/bert",
            "autoconf-launch plan --cluster-template > my-cluster.yaml",
        ),
    )
    preset_help = "a training with its cluster, such as fasop/bert; other flags change it"
    parser.add_argument(_PRESET, metavar="NAME", help=preset_help)
    add_training(parser, of_script=of_script, several=True)
    _add_ranking(parser.add_argument_group("ranking"))
    add_own_runs(parser.add_argument_group("real runs"))
    output = add_output(parser)
    _add_files(output)
    template_help = "print a cluster file with all its keys, and nothing else"
    _add_inference(output, "plan")
    output.add_argument(CLUSTER_TEMPLATE, action="store_true", help=template_help)
    return parser


_OF_ONE_CLUSTER = (
    *("--top", "--explain", "--export", "--pareto", "--csv-form", "--layer-times"),
    *("--measured", "--verify", "--verify-budget"),
)
EXPORTED = ("megatron", "torchtitan", "nemo2", "deepspeed", "native")
"""Frameworks that ``plan`` writes a layout for."""


def _add_files(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--csv", type=Path, metavar="FILE", help="write the table with all numbers of its rows")
    add("--html", type=Path, metavar="FILE", help="write the answer with charts as one page")
    forms = [form.value for form in CsvForm]
    read_form = choice_reader("form", forms)
    form_help = (
        "of --csv: full, or fasop (FASOP's columns with * between them, every candidate, out of "
        "memory or not); default full"
    )
    add("--csv-form", type=read_form, default="full", metavar="FORM", help=form_help)
    read, export_help = frameworks_reader(EXPORTED), "write a row's layout for these frameworks"
    add("--export", type=read, default=(), metavar="|".join(EXPORTED), help=export_help)
    row_help = "the row of the table that is exported; default 1, for native the first that runs"
    add("--row", type=whole(1, _MOST_SHOWN), metavar="N", help=row_help)
    add("-o", "--output", type=Path, metavar="DIR", help="folder of what is exported")


def _add_ranking(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    count = whole(0, _MOST_SHOWN)
    add(
        "--top",
        type=count,
        default=_USUALLY_SHOWN,
        metavar="N",
        help="families to show, the best layout of each; default 10, 0: all layouts that fit",
    )
    headroom_help = "share of a GPU's memory that a safe layout leaves free; default 10"
    add(
        "--headroom",
        type=read_share,
        default=USUAL_HEADROOM,
        metavar="PERCENT",
        help=headroom_help,
    )
    explain_help = "say why well-known layouts lost and where the winner's step time goes"
    add("--explain", action="store_true", help=explain_help)
    runnable_help = "rank only layouts that our own runtime trains"
    add("--runnable", action="store_true", help=runnable_help)
    goals = [goal.value for goal in Goal]
    read = choice_reader("objective", goals)
    add(
        "--objective",
        type=read,
        default="time",
        metavar="GOAL",
        help=f"{', '.join(goals)}; default time",
    )
    add(
        "--tokens",
        type=read_tokens,
        metavar="T",
        help="of the whole training, such as 300B or 15T",
    )
    needed_help = "the fewest GPUs of this kind that fit it, or train within --deadline"
    add("--gpus-needed", action="store_true", help=needed_help)
    add("--deadline", type=_duration, metavar="TIME", help="to train on all tokens, such as 5d")
    add("--max-cost", type=read_money, metavar="USD", help="to train on all tokens, such as 5M")
    price_help = "replaces our table of prices"
    each_help = "USD an hour of a GPU by its name, such as A10G-24GB=0.9; may be repeated"
    add(
        "--price",
        action="append",
        default=[],
        type=_named_price,
        metavar="GPU=USD",
        help=each_help,
    )
    times_help = "measured forward passes of layers in place of predicted ones, a CSV file"
    add("--layer-times", type=Path, metavar="FILE", help=times_help)
    pareto_help = "rank the front of time and money over all parts of the cluster"
    add("--pareto", action="store_true", help=pareto_help)
    add("--usd-per-gpu-hour", type=read_price, metavar="USD", help=price_help)


def read_share(text: str) -> float:
    """``10``, ``10%``: a share below 1."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%?", text.strip())
    if not found or float(found[1]) >= 100:
        raise argparse.ArgumentTypeError(f"{text!r} must be a percentage from 0 to below 100")
    return float(found[1]) / 100


def _duration(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhdw])", text.strip().lower())
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a time with its unit, such as 5d or 12h"
        )
    return float(found[1]) * _SECONDS[found[2]]


def _named_price(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not (name.strip() and equals):
        raise argparse.ArgumentTypeError(f"{text!r} must be a GPU and its price, as A10G=0.9")
    return name.strip(), read_price(amount)


def _named_prices(given: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Prices by the names of our table of GPUs.

    Raises:
        ConfigError: a GPU is unknown, or has two prices.
    """
    if not given:
        return ()
    from autoconf_launch.tuning_spaces import known_accelerator, unknown_gpu  # with numpy

    found: dict[str, float] = {}
    for name, usd in given:
        known = known_accelerator(name)
        if known is None:
            raise unknown_gpu(name)
        if found.setdefault(known, usd) != usd:
            raise ConfigError(f"--price names {known} twice; give it once.")
    return tuple(found.items())


def _require_in_cluster(
    prices: Sequence[tuple[str, float]], trainings: Sequence[TrainingRequest]
) -> None:
    """Refuse a price of a GPU that no cluster has.

    Raises:
        ConfigError: there is one.
    """
    gpus = {device.name for training in trainings for device in training.cluster.devices}
    for name, _ in prices:
        if name not in gpus:
            raise ConfigError(
                f"--price names {name}, but the cluster has {', '.join(sorted(gpus))}."
            )


def read_price(text: str) -> float:
    """``2.5``, ``$2.5``: USD."""
    plain = text.strip().removeprefix("$").replace("_", "")
    if not re.fullmatch(r"[0-9]{1,15}(?:\.[0-9]{1,15})?", plain) or not float(plain):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0 (price in USD)")
    return float(plain)
