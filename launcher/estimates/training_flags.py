"""The flags that describe a training, which the verbs about layouts share.

``-`` and ``_`` are equal in flag names.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
)
from autoconf_launch.core import (
    OPTIMIZER_STATES,
    ConfigError,
    Experts,
    FrozenPart,
    Optimizer,
    Precision,
    Software,
    WeightFormat,
    Workload,
    nearest_known,
)
from autoconf_launch.tuning_spaces import (
    TRAINER_NAMES,
    hint,
)

from ..flags import parse_bytes, unknown_flag
from .training_request import MOST, TIME_LIMIT_S, TrainingRequest

MOST_DEGREE = 1 << 20
_FEWEST_TOKENS, _MOST_TOKENS = 10**5, 10**18
POWERS = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}
"""Powers of ten by their letters."""
_LONGEST_S = 7 * 86400
_USUAL_EXPERTS = 2


def trainings_of(
    flags: argparse.Namespace, words: Sequence[str], *, of_script: bool, runnable: bool = False
) -> tuple[TrainingRequest, ...]:
    """Flags of :func:`add_training` as values: the training on each cluster, with one trainer.

    Args:
        flags: as the parser read them.
        words: the command line, which says which flags were given.
        of_script: a script says what is trained.
        runnable: only layouts of our own runtime are ranked.

    Raises:
        ConfigError: an unknown name, a file that cannot be read, a shape that is missing, or one
            that a script says itself.
    """
    from .training_choice import with_trainer  # with numpy, which --help does not wait for

    texts = [flags.cluster] if isinstance(flags.cluster, str) else dict.fromkeys(flags.cluster)
    return with_trainer(
        [_training_of(flags, text, words, of_script=of_script) for text in texts],
        flags.trainer,
        flash_attention=flags.flash_attention,
        runnable=runnable,
    )


def _training_of(
    flags: argparse.Namespace, cluster_text: str, words: Sequence[str], *, of_script: bool
) -> TrainingRequest:
    """The training on one cluster; its trainer is still open."""
    from .model_choice import model_of_flags  # with numpy, which --help does not wait for
    from .training_choice import choose_cluster, limit_memory

    shapes = shapes_of(flags)
    if of_script:
        _require_no_model(flags.model, shapes)
    elif flags.time_limit is not None:
        raise ConfigError("--time-limit is for the script after --, but none is given; omit it.")
    cluster = choose_cluster(cluster_text)
    workload = Workload(
        model=None if of_script else model_of_flags(flags.model, shapes),
        sequence_length=flags.seq,
        global_batch=flags.global_batch,
        precision=Precision(flags.precision),
        optimizer=Optimizer.from_name(flags.optimizer),
        lora_rank=flags.lora_rank,
        weight_format=WeightFormat(flags.weights) if flags.weights else None,
        frozen=flags.freeze,
        software=Software(compiled=flags.compile),
    )
    return TrainingRequest(
        workload=workload,
        cluster=cluster,
        limit_bytes=limit_memory(flags.memory_limit, cluster),
        cluster_text=cluster_text,
        time_limit_s=flags.time_limit or TIME_LIMIT_S,
        json=flags.json,
        given=frozenset(word.partition("=")[0] for word in words if word.startswith("--")),
    )


def shapes_of(flags: argparse.Namespace) -> dict[str, Any]:
    """Fields of an architecture that flags of :func:`add_shapes` give, else None.

    Raises:
        ConfigError: experts are described without their number or width.
    """
    return {name: getattr(flags, name) for name in _SHAPES} | {"experts": _experts(flags)}


def _require_no_model(model: str | None, shapes: Mapping[str, Any]) -> None:
    named = ["model"] if model is not None else []
    named += [_flag_name(name) for name, value in shapes.items() if value is not None]
    if named:
        raise ConfigError(
            f"--{named[0]} and the command after -- both say what the model is; omit one."
        )


def add_training(
    parser: argparse.ArgumentParser,
    *,
    of_script: bool,
    usual_cluster: str | None = None,
    several: bool = False,
) -> None:
    """The model and its shapes, the cluster, the training, and the form of the answer.

    Args:
        parser: takes the flags.
        of_script: a script says how long its samples are and how many a step has; until it has
            run both are 1, so that all other flags are checked before.
        usual_cluster: where none is named; None: one must be.
        several: ``--cluster`` may be given several times, and is a list.
    """
    _add_model(parser.add_argument_group("model"))
    group = parser.add_argument_group("training")
    action, more = ("append", "; several are compared") if several else ("store", "")
    usual = "; default local" if usual_cluster else ""
    group.add_argument(
        "--cluster",
        action=action,
        required=not usual_cluster,
        default=usual_cluster,
        metavar="C",
        help=f"64x8xH100-SXM-80GB, a file, or local for this machine{usual}{more}",
    )
    _add_work(group, of_script)


MOST_RUNS = 16
"""Verifying runs that may be asked for."""


def add_own_runs(group: argparse._ArgumentGroup) -> None:
    """Real runs that correct a prediction, and which further ones would narrow it."""
    add = group.add_argument
    text = "real runs of this training, smaller ones too, that correct the answer (as validate)"
    add("--measured", type=Path, metavar="FILE", help=text)
    verify_help = "name the N cheapest real runs that narrow the error band most"
    add("--verify", type=whole(1, MOST_RUNS), metavar="N", help=verify_help)
    budget_help = "the same, of as many runs as this money pays for"
    add("--verify-budget", type=read_money, metavar="USD", help=budget_help)


def read_money(text: str) -> float:
    """USD of ``250000``, ``$5M``."""
    found = re.fullmatch(r"\$?([0-9]{1,15}(?:\.[0-9]{1,15})?)([kmb]?)", text.strip().lower())
    amount = float(Decimal(found[1]) * 10 ** POWERS[found[2]]) if found else 0.0
    if amount <= 0.0:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be an amount in USD, such as 250000 or 5M"
        )
    return amount


def add_output(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The form of the answer; then the flags that few need."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON document")
    _add_habits(parser.add_argument_group("what is trained, and how"))
    add_shapes(parser)
    return group


def with_dashes(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
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
                raise unknown_flag(name, known, f"{parser.prog} --help")
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


SEQUENCE_HELP = "sequence length in tokens, such as 8192 or 8k (1k: 1024 tokens)"


def read_sequence(text: str) -> int:
    """Tokens of ``8192``, ``8k``, ``1M``: contexts go by powers of two, so a k is 1024."""
    found = re.fullmatch(r"([0-9]{1,18})([km]?)", text.strip().lower())
    length = int(found[1]) << {"": 0, "k": 10, "m": 20}[found[2]] if found else 0
    if not 1 <= length <= MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a number of tokens, such as 8192 or 8k"
        )
    return length


def read_tokens(text: str) -> int:
    """Tokens of ``300B``, ``1.8T``, ``5000000000``; exact in decimals."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([kmbt]?)", text.strip().lower())
    count = int(Decimal(found[1]) * 10 ** POWERS[found[2]]) if found else 0
    if not 0 < count <= _MOST_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} must be tokens, such as 300B or 15T")
    if count < _FEWEST_TOKENS:  # nobody trains on 300: 300 billion are meant
        raise argparse.ArgumentTypeError(
            f"{text!r} is {count:,} tokens; did you mean {text.strip()}B?"
        )
    return count


def choice_reader(what: str, known: Any) -> Callable[[str], str]:
    """A reader of one of several names."""

    def read(text: str) -> str:
        if text.lower() not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what}; {hint(text, known)}")
        return text.lower()

    return read


def frameworks_reader(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """A reader of names of frameworks with commas between them, each once."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is not a framework; {nearest_known(name, known)}"
                )
        return names

    return read


MODEL_HELP = "a name, a Hugging Face id, config.json or model_info.json"
_SHAPES = {
    "layers": "transformer layers",
    "encoder_layers": "layers of the encoder, of a model that has one",
    "hidden": "hidden size",
    "heads": "attention heads",
    "kv_heads": "key and value heads; default: as many as heads",
    "head": "head_dim; default: hidden size over heads",
    "ffn": "width of the MLP",
    "vocabulary": "vocabulary size",
    "positions": "learned positions",
    "gated": "whether the MLP is gated (SwiGLU)",
    "biases": "whether linear layers have biases",
    "tied_embeddings": "whether input and output share an embedding",
}
PRECISIONS = tuple(precision.value for precision in Precision)
_SWITCHES = frozenset({"gated", "biases", "tied_embeddings"})


def _add_model(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--model", metavar="M", help=MODEL_HELP)
    add(
        "--time-limit",
        type=whole(1, _LONGEST_S),
        metavar="SECONDS",
        help="time for the script after -- to reach its first forward pass; default 600",
    )


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Flags that change a model, or describe it alone."""
    group = parser.add_argument_group("shapes (they change the model, or are all of it)")
    add = group.add_argument
    for name, about in _SHAPES.items():
        if name in _SWITCHES:
            add(f"--{_flag_name(name)}", action="switch", help=about)
        else:
            add(f"--{_flag_name(name)}", type=whole(1, MOST), metavar="N", help=about)
    add("--experts", type=whole(1, MOST_DEGREE), metavar="N", help="of each MoE layer")
    per_token = whole(1, MOST_DEGREE)
    chosen_help = "experts that each token is routed to; default 2"
    add("--experts-per-token", type=per_token, metavar="N", help=chosen_help)
    add("--expert-ffn", type=whole(1, MOST), metavar="N", help="width of an expert; default --ffn")


def _add_work(group: argparse._ArgumentGroup, of_script: bool) -> None:
    add = group.add_argument
    usual: dict[str, Any] = {"required": not of_script, "default": 1}
    add("--seq", type=read_sequence, metavar="S", help=SEQUENCE_HELP, **usual)
    batch_help = "samples per optimizer step"
    add("--global-batch", type=whole(1, MOST), metavar="B", help=batch_help, **usual)
    limit_help = "memory of each GPU that may be used, such as 70GB; default: all that it has"
    add("--memory-limit", type=parse_bytes, metavar="SIZE", help=limit_help)


def _add_habits(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    for flag, names, default, of in (
        ("precision", PRECISIONS, "bf16", ""),
        ("optimizer", OPTIMIZER_STATES, "adamw", ""),
        ("trainer", TRAINER_NAMES, AUTO_TRAINER, "framework whose rules apply: "),
    ):
        text = f"{of}{', '.join(names)}; default {default}"
        read = choice_reader(flag, names)
        add(f"--{flag}", type=read, default=default, metavar="NAME", help=text)
    add("--lora-rank", type=whole(1, 1 << 16), metavar="R", help="train adapters of this rank")
    formats = [one.value for one in WeightFormat]
    read = choice_reader("weight format", formats)
    weights_help = "how frozen weights are stored under --lora-rank: int8, or nf4 (QLoRA)"
    add("--weights", type=read, metavar="FORMAT", help=weights_help)
    parts = ", ".join(part.value for part in FrozenPart)
    freeze_help = f"parts that are not trained, with commas between them: {parts}"
    add("--freeze", type=_parts, default=frozenset(), metavar="PARTS", help=freeze_help)
    add("--compile", action="store_true", help="the model runs under torch.compile")
    add("--flash-attention", action="switch", help="default: the trainer's")


def _experts(flags: argparse.Namespace) -> Experts | None:
    if flags.experts is None:
        for name in ("experts_per_token", "expert_ffn"):
            if getattr(flags, name) is not None:
                raise ConfigError(f"--{_flag_name(name)} needs --experts, their number.")
        return None
    ffn = flags.expert_ffn or flags.ffn
    if ffn is None:
        raise ConfigError("--experts needs the width of one; give it with --expert-ffn.")
    return Experts(
        count=flags.experts, per_token=flags.experts_per_token or _USUAL_EXPERTS, ffn=ffn
    )


def _parts(text: str) -> frozenset[FrozenPart]:
    known = {part.value: part for part in FrozenPart}
    for name in text.lower().split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not a part; {hint(name, known)}")
    return frozenset(known[name] for name in text.lower().split(","))


def _flag_name(name: str) -> str:
    return name.replace("_", "-")
