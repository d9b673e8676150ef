"""An inference search of GPT 0.126B on two ranks of this machine, measured against predicted.

``python benchmarks/inference_search.py --write`` runs it and writes
``results/inference_search_cpu.md``; ``--read FOLDER`` takes the results of a search that ended.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.planner import spearman

RESULTS = Path(__file__).parent / "results" / "inference_search_cpu.md"
INFERENCE = "search_config.inference_settings"
WORDS = (
    *("search", "search_config=gpt3/0.126b", "cluster_type=local", "cluster.gpus_per_node=2"),
    "run_training_hp_search=False",
    f"{INFERENCE}.run.tensor_parallel_sizes=[1,2]",
    f"{INFERENCE}.run.pipeline_parallel_sizes=[1,2]",
    f"{INFERENCE}.benchmark.batch_sizes=[1,2,4,8]",
)
COLUMNS = (
    *("TP", "PP", "BS", "Latency [ms]", "Predicted Latency [ms]", "TTFT [ms]"),
    *("Time per Token [ms]", "Peak Memory [GiB]", "Predicted Memory [GiB]"),
)
MOST_S, LEAST_ORDER, MOST_MEMORY = 300.0, 0.8, 0.10
_IS_FIRST = os.sched_getscheduler(0) == os.SCHED_FIFO
_PRIORITY = ", of which the ranks, at real-time priority, saw little" if _IS_FIRST else ""


def search(folder: Path) -> float:
    """Run it; seconds that it took."""
    start_s = time.perf_counter()
    command = (sys.executable, "-m", "autoconf_launch.launcher.cli", *WORDS)
    words = (*command, f"base_results_dir={folder}")
    subprocess.run(words, stdout=sys.stderr, check=True)  # standard output is the page
    return time.perf_counter() - start_s


def page(rows: list[dict[str, str]], seconds: float | None, load: float) -> str:
    """The page: targets and results, then every measured point."""
    found = [row for row in rows if row["Latency [ms]"]]
    latency, predicted, memory, expected = (
        np.array([float(row[name]) for row in found])
        for name in (COLUMNS[3], COLUMNS[4], COLUMNS[7], COLUMNS[8])
    )
    order, off = spearman(predicted, latency), float(np.abs(expected / memory - 1.0).max())
    asked = [
        ("predicted order of latency: Spearman", "> 0.8", f"{order:.2f}", order > LEAST_ORDER),
        ("predicted peak memory, worst", "within 10 %", f"{100 * off:.0f} %", off <= MOST_MEMORY),
    ]
    if seconds is not None:
        asked.append(("the whole search", "< 5 min", f"{seconds:.0f} s", seconds < MOST_S))
    lines = [
        "# An inference search on a CPU\n",
        "Made by `python benchmarks/inference_search.py --write`: GPT 0.126B in fp32, 60 tokens",
        f"in and 20 out, two ranks of half of {os.cpu_count()} cores each, {len(found)} of",
        f"{len(rows)} points (those of four ranks are refused). Load average: "
        f"{load:.1f}{_PRIORITY}.\n",
        "| what | asked | reached |  |\n| --- | --- | --- | --- |",
        *(f"| {a} | {b} | {c} | {'' if ok else '**miss**'} |" for a, b, c, ok in asked),
        f"\n| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}",
        *(f"| {' | '.join(row[name] for name in COLUMNS)} |" for row in found),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run or read, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, help="what a search that is read took")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.read or Path(temporary)
        seconds = given.seconds if given.read else search(folder)
        (path,) = folder.rglob("final_summary/final_output.csv")
        with path.open(newline="") as file:
            text = page(list(csv.DictReader(file)), seconds, os.getloadavg()[2])
    if given.write:
        RESULTS.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
