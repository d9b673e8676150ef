"""The seconds of each part of a tune: the GPT of deepspeed_peer, 2 CPU ranks, several runs.

Each run is the command as a user starts it; the parts are read from its results folder. Prints a
Markdown table of medians with the lowest and highest value. ``--effort quick`` and other words
after ``--`` go to the command. See README.md here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepspeed_peer.choice import GLOBAL_BATCH, RANKS, Choice
from deepspeed_peer.tools import HERE

PARTS = (
    "start and imports of the command",
    "profile run",
    "trials: their steps",
    "trials: beyond their steps",
    "between trials",
    "baseline again",
    "playoff",
    "verification run: its steps",
    "verification run: beyond its steps",
    "writing and the end",
    "whole command",
)
IMPORTS = {
    "imports of the command": "autoconf_launch.launcher.commands.tune",
    "import of torch": "torch",
    "imports of the fork server": "autoconf_launch.runtime.engine.engine, torch._dynamo, "
    "torch.distributed.optim",
}
"""Measured in separate interpreters; in a tune the first and the last run side by side."""


def tune(folder: Path, words: list[str]) -> tuple[float, float]:
    """Run a tune in a new folder; returns its start and its end as Unix times."""
    first = Choice(zero_stage=0, micro_batch=1, accumulation=GLOBAL_BATCH // RANKS)
    document = {**first.document(), "autotuning": {"enabled": True}}
    del document["zero_optimization"]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(document))
    script = ("--num_gpus", str(RANKS), str(HERE / "train_ours.py"), "--config", "config.json")
    command = (sys.executable, "-m", "autoconf_launch.launcher.cli", "--autotuning=tune")
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // RANKS))}
    began_s = time.time()
    with (folder / "printed.txt").open("w") as log:
        subprocess.run(
            (*command, "--no-history", *words, *script),
            cwd=folder,
            env={**os.environ, **threads},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    return began_s, time.time()


def parts_of(results: Path, began_s: float, ended_s: float) -> dict[str, float]:
    """Seconds of each part, by the journal and the step files; all but the last add up."""
    lines = [json.loads(line) for line in (results / "journal.jsonl").read_text().splitlines()]
    profile_s = next(line["wall_s"] for line in lines if line.get("profiled"))
    profile = json.loads((results / "profile_model_info" / "result.json").read_text())
    starts = [line["started"] for line in lines if "started" in line]
    parts: dict[str, float] = defaultdict(float)
    parts[PARTS[0]] = profile["ended_unix_s"] - profile_s - began_s
    parts[PARTS[1]] = profile_s
    for record in filter(lambda line: "wall_s" in line and "name" in line, lines):
        steps_s = sum(slowest_s(results / record["name"]))
        parts[PARTS[2]] += steps_s
        parts[PARTS[3]] += record["wall_s"] - steps_s
    again_s = sum(line["again"]["wall_s"] for line in lines if "again" in line)
    finals = [line["start_unix_s"] for line in starts if line["name"].endswith("_final")]
    soaks = [line["soak"] for line in lines if "soak" in line]
    begins = [line["start_unix_s"] for line in starts if line["name"].endswith("_soak")]
    soaked_s = sum(soak["wall_s"] for soak in soaks)
    steps_s = sum(slowest_s(results / soaks[-1]["name"])) if soaks else 0.0
    trials_end_s = min((*finals, *begins), default=ended_s)
    parts[PARTS[4]] = trials_end_s - profile["ended_unix_s"] - again_s - parts[PARTS[2]]
    parts[PARTS[4]] -= parts[PARTS[3]]
    parts[PARTS[5]] = again_s
    parts[PARTS[6]] = (min(begins, default=ended_s) - trials_end_s) if finals else 0.0
    parts[PARTS[7]], parts[PARTS[8]] = steps_s, soaked_s - steps_s
    parts[PARTS[10]] = ended_s - began_s
    parts[PARTS[9]] = parts[PARTS[10]] - sum(parts[name] for name in PARTS[:9])
    return {name: parts[name] for name in PARTS}


def slowest_s(folder: Path) -> Iterator[float]:
    """Duration of each step on its slowest rank, warm-up included."""
    steps: dict[int, float] = defaultdict(float)
    for line in (folder / "steps.jsonl").read_text().splitlines():
        step = json.loads(line)
        steps[step["step"]] = max(steps[step["step"]], step["wall_s"])
    yield from steps.values()


def import_s(names: str) -> float:
    """Duration of a new interpreter that imports these modules."""
    began_s = time.perf_counter()
    subprocess.run((sys.executable, "-c", f"import {names}"), check=True)
    return time.perf_counter() - began_s


def as_table(runs: list[dict[str, float]], loads: list[float]) -> str:
    """Medians over the runs, with the lowest and the highest value."""
    rows = ["| part | median, s | lowest, s | highest, s |", "|---|---|---|---|"]
    for name in runs[0]:
        values = [run[name] for run in runs]
        numbers = (statistics.median(values), min(values), max(values))
        rows.append(f"| {name} | {' | '.join(f'{value:.2f}' for value in numbers)} |")
    shown = ", ".join(f"{load:.1f}" for load in loads)
    return "\n".join((*rows, "", f"One-minute load before each run: {shown}."))


def measure(count: int, words: list[str]) -> tuple[list[dict[str, float]], list[float]]:
    """The parts of each run, and the load of the machine before it."""
    runs, loads = [], []
    for _ in range(count):
        loads.append(os.getloadavg()[0])
        with tempfile.TemporaryDirectory(prefix="tune-seconds-") as name:
            folder = Path(name) / "tune"
            run: dict[str, Any] = parts_of(folder / "autotuning_results", *tune(folder, words))
        run |= {name: import_s(modules) for name, modules in IMPORTS.items()}
        runs.append(run)
        print(f"{run[PARTS[-1]]:.1f} s", file=sys.stderr, flush=True)
    return runs, loads


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("words", nargs="*", help="words for the command, after --")
    arguments = parser.parse_args()
    print(as_table(*measure(arguments.runs, arguments.words)))


if __name__ == "__main__":
    main()
