"""A real model on this machine: every configuration measured, then the tuner live.

The GPT of ``examples/01_pretrain_gpt`` on 2 processes: ZeRO stage x micro-batch x recomputation.
The whole space is measured in blocks, each configuration once a block, so that what the machine
does in those minutes reaches all of them; medians over blocks are taken for the truth. With
``--write`` the measurements are kept as a journal for ``replay.py``. See README.md.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space.trial import Record
from autoconf_launch.launcher.results.journal import read_journal

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "01_pretrain_gpt" / "train.py"
RESULT = Path(__file__).parent / "results" / "real_cpu.json"
LANDSCAPE = Path(__file__).parent / "landscapes" / "real_cpu.jsonl"
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": [1, 2, 4, 8, 16],
    "train_batch_size": 32,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}},
    "zero_optimization": {"stage": "all"},
    "activation_checkpointing": {"mode": ["none", "full"]},
    "autotuning": {"enabled": True},
}
EVERYTHING = (
    "--tuner-type=gridsearch",
    "--tuner-early-stopping=10000",
    "--strategy=global",
    "--start-profile-step=3",
    "--end-profile-step=6",
    "--soak-steps=0",
    "--good-enough=0%",
)
_CLOSE = 1.02


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A run of the real command."""

    wall_s: float
    summary: dict[str, Any]
    journal: Path

    @property
    def records(self) -> tuple[Record, ...]:
        """Measured trials of the search."""
        return tuple(r for r in read_journal(self.journal).records if r.measurement)


def tune(folder: Path, flags: Sequence[str]) -> Tuned:
    """Tune the example with 2 processes in a separate folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return run_tune(folder, ("--num_gpus=2", *flags, str(SCRIPT), "--config=config.json"))


def run_tune(folder: Path, words: Sequence[str]) -> Tuned:
    """Run the real command in a folder; it resumes if it was stopped before."""
    command = (sys.executable, "-m", "autoconf_launch.launcher.cli", "--autotuning=tune", *words)
    started = time.perf_counter()
    with (folder / "tune.log").open("a") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=True)
    results = folder / "autotuning_results"
    return Tuned(
        wall_s=time.perf_counter() - started,
        summary=json.loads((results / "summary.json").read_text()),
        journal=results / "journal.jsonl",
    )


def truth_of(blocks: Sequence[Tuned]) -> dict[str, float]:
    """Median seconds of a step of each configuration, the fastest first."""
    seen: dict[str, list[float]] = {}
    for block in blocks:
        for record in block.records:
            assert record.measurement
            seen.setdefault(record.trial.name, []).append(record.measurement.mean_step_s)
    medians = {name: statistics.median(times) for name, times in seen.items()}
    return dict(sorted(medians.items(), key=lambda pair: pair[1]))


def judge(live: Tuned, truth: dict[str, float]) -> dict[str, Any]:
    """The tuner's choice against the truth."""
    names, best_s = list(truth), min(truth.values())
    choice = live.summary["winner"]
    tried = {record.trial.name for record in live.records}
    untried_s = [step_s for name, step_s in truth.items() if name not in tried]
    gain = truth[choice] / min(untried_s) - 1.0 if untried_s else 0.0
    return {
        "wall_s": live.wall_s,
        "trials": live.summary["spaces"][-1]["num_experiments"],
        "choice": choice,
        "true_rank": names.index(choice) + 1,
        "slower_than_best_percent": 100 * (truth[choice] / best_s - 1.0),
        "true_gain_of_untried_percent": 100 * max(0.0, gain),
        "certificate": live.summary["certificate"],
        "ties": live.summary["ties"],
    }


def keep(blocks: Sequence[Tuned]) -> None:
    """Write the blocks' records as one journal, without details of only this machine."""
    lines = [block.journal.read_text().splitlines() for block in blocks]
    kept = [lines[0][0], *(x for block in lines for x in block[1:] if '"measurement"' in x)]
    LANDSCAPE.parent.mkdir(exist_ok=True)
    LANDSCAPE.write_text("\n".join(kept) + "\n")


def main() -> None:
    """Measure, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep results and landscape")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="real-cpu-") as name:
        folder = Path(name)
        blocks = [tune(folder / f"block{n}", EVERYTHING) for n in range(options.blocks)]
        live = tune(folder / "live", ())
        truth = truth_of(blocks)
        document = {
            "configurations": len(truth),
            "blocks": [round(block.wall_s, 1) for block in blocks],
            "load_at_start": load,
            "step_s": truth,
            "within_2_percent": [n for n, s in truth.items() if s <= _CLOSE * min(truth.values())],
            "live": judge(live, truth),
        }
        if options.write:
            RESULT.write_text(json.dumps(document, indent=2) + "\n")
            keep(blocks)
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
