"""Layouts of two CPU ranks: each predicted by a tune before it measures it, then compared.

A Llama and a Mixtral: the real command searches each space exhaustively, several times in turn, so
that what the machine does in those minutes reaches all layouts; medians over the rounds are
compared. ``--write`` keeps them in ``results/parallel_cpu.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from real_cpu import EVERYTHING, Tuned, run_tune

from autoconf_launch.autotuner.planner.calibration import spearman, top1_regret

SCRIPT = Path(__file__).parent / "parallel_layouts" / "train.py"
RESULT = Path(__file__).parent / "results" / "parallel_cpu.md"
FLAGS = (*EVERYTHING, "--no-history", "--effort=quick")
SHARED: dict[str, Any] = {
    "train_batch_size": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
    "gradient_clipping": 1.0,
    "autotuning": {"enabled": True},
}
SPACES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": (
        "llama",
        {
            "train_micro_batch_size_per_gpu": [2, 4],
            "zero_optimization": {"stage": "all"},
            "activation_checkpointing": {"mode": "none"},
            "parallelism": {
                "tensor": [1, 2],
                "sequence_parallel": [False, True],
                "context": [1, 2],
            },
        },
    ),
    "stages": (
        "llama",
        {
            "train_micro_batch_size_per_gpu": [1, 2],
            "zero_optimization": {"stage": [0]},
            "activation_checkpointing": {"mode": "none"},
            "parallelism": {
                "pipeline": 2,
                "virtual_pipeline": [1, 2],
                "pipeline_schedule": ["1f1b", "gpipe"],
            },
        },
    ),
    "recomputed": (
        "llama",
        {
            "train_micro_batch_size_per_gpu": [4],
            "zero_optimization": {"stage": [0]},
            "activation_checkpointing": {"mode": "full"},
            "parallelism": {"tensor": [1, 2], "context": [1, 2]},
        },
    ),
    "experts": (
        "mixtral",
        {
            "train_micro_batch_size_per_gpu": [4],
            "zero_optimization": {"stage": "all"},
            "parallelism": {"expert": [1, 2]},
        },
    ),
}
"""Model and configuration of each tune, by name."""
TIME, ORDER, MEMORY, REGRET = 0.20, 0.8, 0.15, 0.10
"""Targets: median error of times, Spearman, median error of peaks, distance of the
predicted best to the measured best."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout: medians over all rounds."""

    space: str
    name: str
    predicted_s: float
    measured_s: float
    predicted_bytes: float
    measured_bytes: float

    @property
    def time_error(self) -> float:
        """Predicted over measured seconds, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        """Relative error of peaks."""
        return self.predicted_bytes / self.measured_bytes - 1.0


def tune(space: str, folder: Path) -> Tuned:
    """Search one space exhaustively with two processes."""
    model, config = SPACES[space]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHARED, **config}))
    words = ("--num_gpus=2", *FLAGS, str(SCRIPT), f"--model={model}", "--config=config.json")
    return run_tune(folder, words)


def layouts_of(space: str, rounds: Sequence[Tuned]) -> list[Layout]:
    """Every layout that each round measured, the fastest first."""
    seen: dict[str, list[tuple[float, ...]]] = {}
    for one in rounds:
        for record in one.records:
            measured, predicted = record.measurement, record.prediction
            if measured is None or measured.memory is None or predicted is None:
                continue
            step_s = statistics.median(measured.step_s)
            figures = (
                predicted.step_s or np.nan,
                step_s,
                float(predicted.peak_bytes or np.nan),
                float(measured.memory.peak_bytes),
            )
            seen.setdefault(record.trial.name, []).append(figures)
    found = [
        Layout(
            space=space,
            name=name,
            predicted_s=medians[0],
            measured_s=medians[1],
            predicted_bytes=medians[2],
            measured_bytes=medians[3],
        )
        for name, rows in seen.items()
        for medians in (np.median(np.array(rows), axis=0).tolist(),)
    ]
    return sorted(found, key=lambda one: one.measured_s)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy of the predictions of some layouts."""

    time_error: float
    order: float
    memory_error: float
    regret: float

    @staticmethod
    def of(layouts: Sequence[Layout]) -> Accuracy:
        """Medians of absolute errors, order and choice."""
        predicted = np.array([one.predicted_s for one in layouts])
        measured = np.array([one.measured_s for one in layouts])
        return Accuracy(
            time_error=statistics.median(abs(one.time_error) for one in layouts),
            order=spearman(predicted, measured),
            memory_error=statistics.median(abs(one.memory_error) for one in layouts),
            regret=top1_regret(predicted, measured),
        )

    def cells(self) -> Iterable[str]:
        """Each figure, marked if it misses."""
        figures = (
            (f"{100 * self.time_error:.0f} %", self.time_error <= TIME),
            (f"{self.order:.2f}", self.order >= ORDER),
            (f"{100 * self.memory_error:.0f} %", self.memory_error <= MEMORY),
            (f"{100 * self.regret:.0f} %", self.regret <= REGRET),
        )
        return (text if good else f"{text} **miss**" for text, good in figures)


def report(found: dict[str, list[Layout]], rounds: int, loads: Sequence[float]) -> str:
    """Markdown."""
    every = [one for layouts in found.values() for one in layouts]
    count = len(every)
    lines = [
        "# Predicted and measured: layouts of two CPU ranks",
        "",
        "Written by `python benchmarks/parallel_cpu.py --write`: the real command predicts each",
        f"layout from its profile run, then measures it; {count} layouts, medians of {rounds}",
        f"round{'s' if rounds > 1 else ''}. Load of the machine before each trial: "
        f"{min(loads):.0f} to {max(loads):.0f} on {os.cpu_count()} cores.",
        "",
        "| space | layouts | median error of times | Spearman | of peaks | predicted best |",
        "|---|---|---|---|---|---|",
        f"| to reach | 24 | {100 * TIME:.0f} % | {ORDER} | {100 * MEMORY:.0f} % | "
        f"{100 * REGRET:.0f} % slower |",
    ]
    for space, layouts in {**found, "all": every}.items():
        cells = " | ".join(Accuracy.of(layouts).cells())
        lines.append(f"| {space} | {len(layouts)} | {cells} |")
    lines += [
        "",
        "| model | layout | predicted | measured | off | peak predicted | measured | off |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    lines += [line_of(one) for one in every]
    return "\n".join(lines) + "\n"


def loads_of(tunes: Iterable[Sequence[Tuned]]) -> list[float]:
    """Load of the machine before each trial."""
    records = (record for rounds in tunes for one in rounds for record in one.records)
    loads = (record.conditions and record.conditions.load_before for record in records)
    return [load for load in loads if load is not None]


def line_of(one: Layout) -> str:
    """A row of the table."""
    times = f"{1e3 * one.predicted_s:.0f} ms | {1e3 * one.measured_s:.0f} ms"
    peaks = f"{one.predicted_bytes / 1e6:.0f} MB | {one.measured_bytes / 1e6:.0f} MB"
    return (
        f"| {one.space} | `{one.name}` | {times} | {100 * one.time_error:+.0f} % | {peaks} | "
        f"{100 * one.memory_error:+.0f} % |"
    )


def main() -> None:
    """Measure in rounds, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--folder", type=Path, help="where tunes are kept, and go on")
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parallel-cpu-") as name:
        folder = options.folder or Path(name)
        tunes: dict[str, list[Tuned]] = {space: [] for space in options.spaces}
        for number in range(options.rounds):
            for space in options.spaces:
                tunes[space].append(tune(space, folder / f"{space}{number}"))
        found = {space: layouts_of(space, rounds) for space, rounds in tunes.items()}
    text = report(found, options.rounds, loads_of(tunes.values()))
    if options.write:
        RESULT.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
