"""Ranks in our search of the tuned configurations that NVIDIA ships, and their predicted speed.

    python benchmarks/nvidia_tuned_ranks.py [--gpu A100-SXM-80GB] [--write]

For each of ``benchmarks/nemo/tuned_configs.csv``: its rank among all runs of ``grid=planner`` on
its own nodes, with its own global batch and sequence length, nothing restricted; its rank by
predicted time only; its predicted step over the step of the first. ``--write`` puts the
table for A100 and H100 into ``benchmarks/results/nvidia_tuned_ranks.md``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.planner.best_points import risked_s
from autoconf_launch.autotuner.sizing.families import Family
from autoconf_launch.autotuner.sizing.shapes import Shape, architecture
from autoconf_launch.core import Architecture, Degrees, Precision
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.nemo.candidate_grids import (
    PlannerCandidate,
    PlannerGrid,
    PlannerGridQuestion,
    planner_grid,
)
from autoconf_launch.tuning_spaces.clusters import usable_bytes
from autoconf_launch.tuning_spaces.machines import machine

TUNED = Path(__file__).parent / "nemo" / "tuned_configs.csv"
RESULT = Path(__file__).parent / "results" / "nvidia_tuned_ranks.md"
GPUS = ("A100-SXM-80GB", "H100-SXM-80GB")
FP8_GPU = "H100-SXM-80GB"
PROMISED = 30
_ENCODER_DECODERS = ("t5", "mt5")
_KV = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A shipped configuration."""

    name: str
    model: Architecture
    sequence: int
    nodes: int
    gpus_per_node: int
    precision: Precision
    global_batch: int
    degrees: tuple[int, int, int, int, int]
    in_nemo1_grid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Ranks of a configuration; ``rank`` is None if it is not among the runs.

    ``rank_by_time`` is only by predicted time and chance to fit.
    """

    tuned: Tuned
    rank: int | None
    rank_by_time: int
    runs: int
    slower: float
    peak_gb: float
    first: tuple[int, int, int, int, int]


def main() -> None:
    """Rank, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpu", default=GPUS[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    gpus = GPUS if flags.write else (flags.gpu,)
    tables = [table([rank_tuned(one, gpu) for one in tuned_configs()], gpu) for gpu in gpus]
    text = "\n".join(["# NVIDIA's tuned configurations in our search", "", _HEAD, "", *tables])
    print(text)
    if flags.write:
        RESULT.write_text(text, encoding="utf-8")


_HEAD = """Made by `python benchmarks/nvidia_tuned_ranks.py --write`. Rank of each shipped
configuration among the runs of `grid=planner` (tp, pp, cp, ep, micro-batch; all other knobs at
their best), on its own nodes with its own global batch; "by time": its rank by predicted time
alone. "GB": its predicted memory; "slower": its predicted step over that of the first run. Memory
forces none of the misses: they have more ranks for one sample than its memory needs, or lack what
the first runs have. This prediction cannot have all of them within thirty: it has more than 100
others before 40b_improved, and `gpt3/40b`, nearly the same model, is shipped with the layout that
comes first for it."""

_WHOLE = "its file does not shard the optimizer, runs do)"
CAUSES = {
    "bert/20b": "16 ranks hold a model that four hold; 20 of 80 GB are used",
    "gpt3/175b_16k": "context parallel of 8 over nodes where 2 fits (the file trains 100 steps)",
    "gpt3/175b_32k": "context parallel of 16 over nodes where 4 fits (the file trains 100 steps)",
    "gpt3/40b_improved": "tensor parallel of 8 and micro-batches of 1 (" + _WHOLE,
    "gpt3/7b_improved": "tensor parallel of 4 and micro-batches of 1 (" + _WHOLE,
    "mixtral/mixtral_8x22b": "no expert parallelism, and a global batch of 1 that it cannot have",
    "qwen2/qwen2_14b": "no context parallelism for 32768 tokens, so that all layers recompute",
    "qwen2/qwen2_72b": "no context parallelism for 32768 tokens, so that all layers recompute",
    "gpt3/5b_32k": "tensor parallel of 8 where context parallel of 4 exchanges less",
    "gpt3/5b_64k": "tensor parallel of 8 where context parallel of 8 exchanges less",
    "llama/llama1_30b": "tensor parallel of 4 without stages, and micro-batches of 1",
    "t5/23b": "tensor parallel of 4 where 4 stages exchange less",
    "t5/41b": "tensor parallel of 4 where 8 stages exchange less",
    "mt5/23b": "tensor parallel of 4 where 4 stages exchange less",
}
"""The cost model's reasons for ranks beyond the first thirty. ``fused_adam`` is in
``conf/training/gpt3`` of NVIDIA/NeMo-Framework-Launcher at 056a90edf914."""


def tuned_configs() -> Iterator[Tuned]:
    """All of the file."""
    with TUNED.open(newline="", encoding="utf-8") as file:
        yield from map(_read_tuned, csv.DictReader(file))


def model_of(row: dict[str, str]) -> Architecture:
    """The architecture of a row with shapes."""
    family = row["config"].partition("/")[0]
    hidden, heads = int(row["hidden"]), int(row["heads"])
    shape = Shape(
        layers=int(row["layers"]),
        hidden=hidden,
        heads=heads,
        ffn=int(row["ffn"]),
        kv=_KV if family in _ENCODER_DECODERS else hidden // heads,
        learning_rate=1e-4,
    )
    model = architecture(Family(family), shape, int(row["vocabulary"]), int(row["sequence"]))
    return replace(model, kv_heads=int(row["kv_heads"]))


def _read_tuned(row: dict[str, str]) -> Tuned:
    nodes, each = int(row["nodes"]), int(row["gpus_per_node"])
    names = ("tensor", "pipeline", "context", "expert", "micro_batch")
    tensor, pipeline, context, expert, micro = (int(row[name]) for name in names)
    data = nodes * each // (tensor * pipeline * context)
    batch = int(row["global_batch"])
    return Tuned(
        name=row["config"],
        model=model_of(row),
        sequence=int(row["sequence"]),
        nodes=nodes,
        gpus_per_node=each,
        precision=Precision(row["precision"]),
        global_batch=batch if batch > 1 else 24 * data,
        degrees=(tensor, pipeline, context, expert, micro),
        in_nemo1_grid=row["in_nemo1_grid"] == "1",
    )


def grid_of(tuned: Tuned, gpu: str, degrees: Degrees | None = None) -> PlannerGrid:
    """All runs to compare with a configuration; 8-bit ones on GPUs that compute in 8 bits."""
    sequence = (False,) if tuned.model.encoder_layers else (False, True)
    known = FP8_GPU if tuned.precision is Precision.FP8 else gpu
    nodes = machine(known, gpus_per_node=tuned.gpus_per_node)
    return planner_grid(
        PlannerGridQuestion(
            training=usual_training(tuned.model, tuned.sequence, nodes, tuned.precision),
            nodes=tuned.nodes,
            global_batch=tuned.global_batch,
            memory_bytes=usable_bytes(known),
            degrees=replace(degrees or Degrees(), sequence_parallel=sequence),
        )
    )


def rank_tuned(tuned: Tuned, gpu: str) -> Ranked:
    """Look for a configuration in its grid."""
    runs = grid_of(tuned, gpu).candidates
    places = [place for place, one in enumerate(runs, 1) if one.degrees == tuned.degrees]
    found = runs[places[0] - 1] if places else None
    return Ranked(
        tuned=tuned,
        rank=places[0] if places else None,
        rank_by_time=1 + sum(_risked_s(one) < _risked_s(found) for one in runs) if found else 0,
        runs=len(runs),
        slower=found.step_s / runs[0].step_s - 1 if found else 0.0,
        peak_gb=found.peak_bytes / 2**30 if found else 0.0,
        first=runs[0].degrees,
    )


def _risked_s(one: PlannerCandidate) -> float:
    """The planner's sort key."""
    return float(risked_s(np.array(one.step_s), np.array(one.chance_to_fit)))


def table(rows: list[Ranked], gpu: str) -> str:
    """The table as Markdown, with a line of totals."""
    within = [one for one in rows if one.rank is not None and one.rank <= PROMISED]
    missing = [one for one in rows if one.rank is None]
    by_time = sum(one.rank is not None and one.rank_by_time <= PROMISED for one in rows)
    lines = [
        f"## {gpu}",
        f"{len(rows) - len(missing)} of {len(rows)} are among the runs, {len(within)} within the "
        f"first {PROMISED} ({by_time} by predicted time alone); NeMo 1.0's own grid has "
        f"{sum(one.tuned.in_nemo1_grid for one in rows)}.",
        "",
        "| configuration | GPUs | tp, pp, cp, ep, mbs | GB | rank | by time | of | slower | "
        "first |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        rank = "none" if one.rank is None else str(one.rank)
        rank += " **miss**" if one not in within else ""
        lines.append(
            f"| {one.tuned.name} | {one.tuned.nodes * one.tuned.gpus_per_node} | "
            f"{_degrees_text(one.tuned.degrees)} | {one.peak_gb:.0f} | {rank} | "
            f"{one.rank_by_time} | {one.runs} | {one.slower:.0%} | {_degrees_text(one.first)} |"
        )
    lines += [
        "",
        *(f"- {name}: {CAUSES.get(name, 'unexplained')}" for name in _names_missed(rows)),
    ]
    return "\n".join([*lines, ""])


def _names_missed(rows: list[Ranked]) -> list[str]:
    """Names of those that are not within the first thirty."""
    return [one.tuned.name for one in rows if one.rank is None or one.rank > PROMISED]


def _degrees_text(degrees: tuple[int, ...]) -> str:
    return ", ".join(map(str, degrees))


if __name__ == "__main__":
    main()
