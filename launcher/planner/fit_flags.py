"""The flags of ``fit`` to a FitRequest. Not: what they mean together (commands/fit).

``-`` and ``_`` are equal in flag names. Other verbs about layouts can reuse the groups.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.cost.trainers import TRAINERS
from autoconf_launch.autotuner.cost.training_setup import (
    OPTIMIZER_BYTES,
    Format,
    FrozenPart,
)
from autoconf_launch.core import ConfigError, Experts, Offload, Recompute
from autoconf_launch.tuning_spaces.hints import hint

from ..commands.arguments import VerbParser
from ..flag_values import parse_bytes

MOST = 1 << 31
_MOST_DEGREE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """What is asked; degrees are as given, data parallelism and accumulation follow.

    ``shapes`` are fields of ``Architecture`` by name, None where no flag gave them.
    """

    model: str | None
    shapes: tuple[tuple[str, Any], ...]
    cluster: str
    sequence: int
    global_batch: int
    tensor: int
    pipeline: int
    virtual: int
    context: int
    expert: int
    zero: int
    micro_batch: int
    recompute: Recompute
    recompute_layers: int | None
    offload: Offload
    sequence_parallel: bool
    precision: Format
    optimizer: str
    trainer: str
    lora_rank: int | None
    frozen: frozenset[FrozenPart]
    flash_attention: bool | None
    memory_bytes: int | None
    compiled: bool
    json: bool


def parse_fit(arguments: Sequence[str]) -> FitRequest:
    """Read the flags.

    Raises:
        ConfigError: an unknown flag or value, or a number that is out of range.
    """
    parser = make_parser()
    flags = parser.parse_args(spelled(parser, arguments))
    return FitRequest(
        model=flags.model,
        shapes=shapes_of(flags),
        cluster=flags.cluster,
        sequence=flags.seq,
        global_batch=flags.global_batch,
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
        precision=Format(flags.precision),
        optimizer=flags.optimizer,
        trainer=flags.trainer,
        lora_rank=flags.lora_rank,
        frozen=flags.freeze,
        flash_attention=flags.flash_attention,
        memory_bytes=flags.memory_limit,
        compiled=flags.compile,
        json=flags.json,
    )


def shapes_of(flags: argparse.Namespace) -> tuple[tuple[str, Any], ...]:
    """Fields of ``Architecture`` by name, None where no flag gave them.

    Raises:
        ConfigError: experts have no width.
    """
    return (*((name, getattr(flags, name)) for name in _SHAPES), ("experts", _experts(flags)))


def make_parser() -> VerbParser:
    """Flags of ``fit``."""
    parser = VerbParser(
        prog="autoconf-launch fit",
        usage="autoconf-launch fit --model M --cluster C --seq S --global-batch B [flags]",
        description="Say whether a training fits, part by part, without a GPU.",
        allow_abbrev=False,
    )
    add_model(parser)
    add_work(parser)
    _add_layout(parser.add_argument_group("layout"))
    parser.add_argument("--memory-limit", type=parse_bytes, metavar="SIZE", help="of each GPU")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    """``--model``, and flags for its shapes."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="M", help="a name, config.json or model_info.json")
    for name in _SHAPES:
        if name in _SWITCHES:
            group.add_argument(f"--{_dashed(name)}", action=argparse.BooleanOptionalAction)
        else:
            group.add_argument(f"--{_dashed(name)}", type=whole(1, MOST), metavar="N")
    group.add_argument("--experts", type=whole(1, _MOST_DEGREE), metavar="N")
    group.add_argument("--experts-per-token", type=whole(1, _MOST_DEGREE), metavar="N", default=2)
    group.add_argument("--expert-ffn", type=whole(1, MOST), metavar="N")


def add_work(parser: argparse.ArgumentParser) -> None:
    """The cluster and what is trained on it."""
    group = parser.add_argument_group("training")
    add = group.add_argument
    add("--cluster", required=True, metavar="C", help="64x8xH100-SXM-80GB, or a file")
    add("--seq", required=True, type=whole(1, MOST), metavar="S", help="tokens of a sample")
    add("--global-batch", required=True, type=whole(1, MOST), metavar="B", help="samples a step")
    add("--precision", type=one_of("precision", [f.value for f in Format]), default="bf16")
    add("--optimizer", type=one_of("optimizer", OPTIMIZER_BYTES), default="adamw")
    add("--trainer", type=one_of("trainer", TRAINERS), default="auto", help="whose rules hold")
    add("--lora-rank", type=whole(1, 1 << 16), metavar="R")
    add("--freeze", type=_frozen, default=frozenset(), metavar="PARTS", help="embedding,mlp,…")
    add("--compile", action="store_true", help="with torch.compile")
    add("--flash-attention", action=argparse.BooleanOptionalAction, help="default: as trainer")


def spelled(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Arguments with ``-`` for ``_`` in flag names.

    Raises:
        ConfigError: a flag is unknown; the message has the nearest one.
    """
    known = parser._option_string_actions
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if re.match(r"--[A-Za-z]", argument):
            name = name.replace("_", "-")
            if name not in known:
                flags = [flag for flag in known if flag.startswith("--")]
                raise ConfigError(f"Unknown flag {name}; {hint(name, flags)}")
        found.append(f"{name}{equals}{value}")
    return found


def whole(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers in a range."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a whole number from {least} to {most}"
            )
        return int(text)

    return read


def one_of(what: str, known: Any) -> Callable[[str], str]:
    """A reader of one of several names."""

    def read(text: str) -> str:
        if text.lower() not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is no {what}; {hint(text, known)}")
        return text.lower()

    return read


_SHAPES = (
    "layers",
    "encoder_layers",
    "hidden",
    "heads",
    "kv_heads",
    "head",
    "ffn",
    "vocabulary",
    "positions",
    "gated",
    "biases",
    "tied_embeddings",
)
_SWITCHES = frozenset({"gated", "biases", "tied_embeddings"})


def _add_layout(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    degree = whole(1, _MOST_DEGREE)
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


def _experts(flags: argparse.Namespace) -> Experts | None:
    if flags.experts is None:
        return None
    ffn = flags.expert_ffn or flags.ffn
    if ffn is None:
        raise ConfigError("--experts needs the width of one; give it with --expert-ffn.")
    return Experts(count=flags.experts, per_token=flags.experts_per_token, ffn=ffn)


def _frozen(text: str) -> frozenset[FrozenPart]:
    known = {part.value: part for part in FrozenPart}
    for name in text.lower().split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is no part; {hint(name, known)}")
    return frozenset(known[name] for name in text.lower().split(","))


def _dashed(name: str) -> str:
    return name.replace("_", "-")
