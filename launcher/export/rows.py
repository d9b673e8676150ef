"""A row of a plan's table as a framework's file, or as the command of a short run without files.

Ours is ``runtime/pretraining``, with its two documents as arguments; the other is Megatron-LM
(``megatron/training/arguments.py`` of 0.6.0 and later: ``--mock-data``, ``NullTokenizer``,
``--eval-iters``; only ``GPTDataset`` has mock data).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoconf_launch.core import (
    Architecture,
    ConfigError,
    Framework,
    Workload,
    plural,
)

from .megatron import model_arguments
from .page import Exported, Optimum, export_optimum

_MODULE = "autoconf_launch.runtime.pretraining"
_LEAST_VOCABULARY = 259
"""Tokens of the text that our runtime trains on."""
_MEGATRON = "megatron"
_RATE = "1e-4"
_INIT_STD = 0.02
NATIVE = "native"


def first_exportable(rows: Sequence[Optimum], frameworks: Sequence[str]) -> tuple[int, str]:
    """The first row that all these frameworks can express, and why row 1 is skipped, if it is."""
    first = ""
    for number, row in enumerate(rows, start=1):
        if (why := export_obstacle(row, frameworks)) is None:
            return number, first
        first = first or why
    return 1, ""


def export_obstacle(row: Optimum, frameworks: Sequence[str]) -> str | None:
    """The reason why a framework cannot express a layout; None if all can."""
    obstacles = (_obstacles(row, export_optimum(row, name), name) for name in frameworks)
    return next((why for found in obstacles for why in found), None)


def export_row(rows: Sequence[Optimum], number: int, framework: str) -> Exported:
    """A row by its number in the table, from 1.

    Raises:
        ConfigError: there is no such row, or the framework cannot express it.
    """
    if number > len(rows):
        raise ConfigError(f"--row is {number}, but the table has {plural(len(rows), 'row')}.")
    exported = export_optimum(rows[number - 1], framework)
    why = next(_obstacles(rows[number - 1], exported, framework), None)
    if why is None:
        return exported
    others = (
        i
        for i, row in enumerate(rows, start=1)
        if not any(_obstacles(row, export_optimum(row, framework), framework))
    )
    first = next(others, None)
    hint = f"--row {first} can be" if first else "no row of the table can be (--top N shows more)"
    raise ConfigError(f"Row {number} cannot be exported to {framework} ({why}); {hint}.")


def _obstacles(row: Optimum, exported: Exported, framework: str) -> Iterator[str]:
    precision = row.precision
    if precision is not None and precision.configured not in exported.precisions:
        yield f"its configuration has no name for {precision.value}"
    if framework == NATIVE and row.plan_only is not None:
        yield row.plan_only
    yield from exported.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """A command, and the framework that it starts: native, or megatron.

    ``start`` is all of our command, or Megatron-LM's up to its script; ``flags`` follow it.
    """

    framework: str
    start: str
    flags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join((self.start, *self.flags))


def run_command(optimum: Optimum, workload: Workload, steps: int) -> RunCommand | None:
    """The command that measures a layout; None if neither framework trains such a model in it.

    ``workload`` has as many layers as the run.
    """
    base = pretraining_base(workload.architecture, workload.sequence_length)
    is_ours = optimum.plan_only is None and workload.software.framework is Framework.FSDP
    if base is not None and is_ours and not workload.software.compiled:
        return RunCommand(framework=NATIVE, start=_native(optimum, base, steps))
    if not _is_megatrons(workload):
        return None
    try:
        arguments = export_row([optimum], 1, _MEGATRON).text
    except ConfigError:
        return None
    return RunCommand(
        framework=_MEGATRON,
        start=" ".join(_megatron_start(optimum)),
        flags=tuple(_megatron_flags(workload, arguments, steps)),
    )


def _native(optimum: Optimum, base: dict[str, Any], steps: int) -> str:
    lines = export_row([optimum], 1, NATIVE).text.splitlines()
    config = json.loads("".join(line for line in lines if not line.startswith("//")))
    nodes = ("--num_nodes", str(optimum.nodes)) if optimum.nodes > 1 else ()
    return shlex.join(
        (
            *("autoconf-launch", *nodes, "--num_gpus", str(optimum.ranks_per_node)),
            *("-m", _MODULE, "--base-config", _line(base), "--config", _line(config)),
            *("--steps", str(steps)),
        )
    )


def _line(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def pretraining_base(model: Architecture, sequence: int) -> dict[str, Any] | None:
    """The base configuration for our pretraining; None if it has no such model.

    It builds GPT-2's, Llama's and Mixtral's classes of transformers.
    """
    plain = not (model.encoder_layers or model.latent or model.state or model.window)
    plain = plain and not (model.kinds or model.front)
    known = plain and model.causal and not model.predictions
    if not known or model.vocabulary < _LEAST_VOCABULARY:
        return None
    shapes = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "ffn_hidden_size": model.ffn,
        "init_method_std": _INIT_STD,
        "data": {"seq_length": sequence},
    }
    has_all_heads = model.kv_heads == model.heads and model.head * model.heads == model.hidden
    if model.positions and model.biases and not model.gated and model.tied_embeddings:
        family = "gpt3"
        if not has_all_heads or model.experts:
            return None
    elif model.gated and not model.positions and not model.biases:
        family = "llama"
        shapes |= {
            "num_query_groups": model.kv_heads,
            "kv_channels": model.head,
            "share_embeddings_and_output_weights": model.tied_embeddings,
        }
        if (experts := model.experts) is not None:
            if experts.shared or experts.first_dense:
                return None
            family = "mixtral"
            shapes |= {
                "num_moe_experts": experts.count,
                "moe_router_topk": experts.per_token,
                "moe_ffn_hidden_size": experts.ffn,
            }
    else:
        return None
    about = {"family": family, "vocab_size": model.vocabulary}
    return {"autoconf": about, "model": shapes}


def _is_megatrons(workload: Workload) -> bool:
    """True if Megatron-LM's kernels are predicted, and it trains the model without data."""
    model = workload.architecture
    experts = model.experts
    has_plain_experts = experts is None or not (experts.shared or experts.first_dense)
    is_decoder = model.causal and not model.encoder_layers
    is_known = not (model.latent or model.state or model.window or model.predictions)
    is_known = is_known and not (model.kinds or model.front)
    has_habits = workload.software.framework is Framework.MEGATRON
    is_plain = is_decoder and is_known and has_plain_experts
    return is_plain and has_habits and not workload.trains_adapters


def _megatron_start(optimum: Optimum) -> Iterator[str]:
    yield f"torchrun --nnodes {optimum.nodes} --nproc-per-node {optimum.ranks_per_node}"
    if optimum.nodes > 1:
        yield '--rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:29500"'
    yield "pretrain_gpt.py"


def _megatron_flags(workload: Workload, arguments: str, steps: int) -> Iterator[str]:
    yield from model_arguments(workload)
    yield from (line for line in arguments.splitlines() if not line.startswith("#"))
    words = workload.architecture.vocabulary - 1  # NullTokenizer adds the token that ends a text
    yield f"--mock-data --tokenizer-type NullTokenizer --vocab-size {words}"
    yield f"--lr {_RATE} --train-iters {steps} --eval-iters 0 --log-interval 1"
