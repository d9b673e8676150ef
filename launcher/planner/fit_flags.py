"""The flags of ``fit`` to a FitRequest. Not: what they mean together (commands/fit)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.core import Offload, Recompute

from ..commands.arguments import VerbParser
from .training_flags import (
    MOST_DEGREE,
    TrainingRequest,
    add_training,
    one_of,
    spelled,
    training_of,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """What is asked; degrees are as given, data parallelism and accumulation follow."""

    training: TrainingRequest
    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    zero: int = 1
    micro_batch: int = 1
    recompute: Recompute = Recompute.NONE
    recompute_layers: int | None = None
    offload: Offload = Offload.NONE
    sequence_parallel: bool = False


def parse_fit(arguments: Sequence[str], *, of_script: bool = False) -> FitRequest:
    """Read the flags; those that a script says are not required of a script.

    Raises:
        ConfigError: an unknown flag or value, or a number that is out of range.
    """
    parser = make_parser(of_script=of_script)
    words = spelled(parser, arguments)
    flags = parser.parse_args(words)
    return FitRequest(
        training=training_of(flags, words),
        tensor=flags.tp,
        pipeline=flags.pp,
        virtual=flags.vpp,
        context=flags.cp,
        expert=flags.ep,
        zero=flags.zero,
        micro_batch=flags.micro_batch,
        recompute=Recompute.FULL if flags.recompute_layers else Recompute(flags.recompute),
        recompute_layers=flags.recompute_layers,
        offload=Offload(flags.offload),
        sequence_parallel=flags.sequence_parallel,
    )


def make_parser(*, of_script: bool = False) -> VerbParser:
    """Flags of ``fit``."""
    parser = VerbParser(
        prog="autoconf-launch fit",
        usage="autoconf-launch fit --model M --cluster C --seq S --global-batch B [flags], or "
        "--cluster C [flags] -- python train.py …",
        description="Say whether a training fits, part by part, without a GPU.",
        allow_abbrev=False,
    )
    add_training(parser, of_script=of_script)
    _add_layout(parser.add_argument_group("layout"))
    return parser


def _add_layout(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    degree = whole(1, MOST_DEGREE)
    for flag, text in (
        ("--tp", "tensor-parallel ranks"),
        ("--pp", "pipeline stages"),
        ("--vpp", "virtual stages of each"),
        ("--cp", "context-parallel ranks"),
        ("--ep", "expert-parallel ranks"),
        ("--micro-batch", "samples of one pass"),
    ):
        add(flag, type=degree, default=1, metavar="N", help=text)
    add("--zero", type=whole(0, 3), default=1, metavar="0-3", help="default 1")
    add("--recompute", type=one_of("recompute", [r.value for r in Recompute]), default="none")
    add("--recompute-layers", type=degree, metavar="K", help="of each stage, in full")
    add("--offload", type=one_of("offload", [o.value for o in Offload]), default="none")
    add("--sequence-parallel", action=argparse.BooleanOptionalAction, default=False)
