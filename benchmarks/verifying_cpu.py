"""A larger run of this machine, predicted from the small runs that ``plan --verify`` names.

    python benchmarks/verifying_cpu.py [--write]

A GPT of 8 layers on two CPU ranks. The runs use the exact commands that the plan prints, each in
turn with the larger run; their times fill the rows that it prints, ``--measured`` corrects the
plan, and the larger run's median must be in its band. ``--write`` keeps the table.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoconf_launch import plan
from autoconf_launch.autotuner.planner import SmallerRun, VerifyingRun, planned_band
from autoconf_launch.launcher.estimates import NamedRun
from autoconf_launch.launcher.estimates.verifying import name_run
from autoconf_launch.launcher.report import name_of

RESULT = Path(__file__).parent / "results" / "verifying_cpu.md"
LAYERS = 8
TRAINING: dict[str, Any] = {
    "shapes": {
        "layers": LAYERS,
        "hidden": 256,
        "heads": 8,
        "ffn": 1024,
        "vocabulary": 512,
        "positions": 128,
        "biases": True,
        "tied_embeddings": True,
    },
    "cluster": "2xlocal",
    "seq": 128,
    "global_batch": 16,
    "precision": "fp32",
}
_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class Foretold:
    """The larger run: seconds as predicted, corrected and measured, and errors of nine of ten."""

    predicted_s: float
    band_before: float
    corrected_s: float
    band_after: float
    measured_s: float

    @property
    def is_inside(self) -> bool:
        """True if the measured time is in the corrected band."""
        return abs(math.log(self.measured_s / self.corrected_s)) <= math.log1p(self.band_after)


def main() -> int:
    """Plan, run, correct, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    loads = [os.getloadavg()[0]]
    before = plan(**TRAINING, verify=_RUNS)
    chosen, asked = before.plan.best[0], before.verifying
    assert before.question is not None
    assert asked is not None
    training = before.question.training
    whole = SmallerRun(
        layout=chosen.layout, layers=LAYERS, nodes=1, step_s=chosen.step_s, seconds=0.0
    )
    larger = name_run(training, VerifyingRun(run=whole, usd=None, narrowing=1.0))
    every = [*asked.named, larger]
    seconds = [measure(every) for _ in range(flags.rounds)]
    loads.append(os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        write_rows(path, asked.named, seconds)
        after = plan(**TRAINING, measured=path, top=None)
    corrected = next(row for row in after.plan.best if row.layout == chosen.layout)
    foretold = Foretold(
        predicted_s=chosen.step_s,
        band_before=planned_band(training, chosen).error,
        corrected_s=corrected.step_s,
        band_after=after.bands([corrected])[0].error,
        measured_s=statistics.median(of_round[-1] for of_round in seconds),
    )
    text = report(every, seconds, foretold, loads)
    print(text)
    if flags.write:
        RESULT.write_text(f"# A larger run foretold by small ones, on two CPU cores\n\n{text}\n")
    return 0 if foretold.is_inside else 1


def measure(runs: Sequence[NamedRun]) -> list[float]:
    """Seconds of a step of each run, one run after the other."""
    return [step_s(one.command.text) for one in runs if one.command is not None]


def step_s(command: str) -> float:
    """Seconds of a step, as the command says at its end."""
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ended = subprocess.run(
        ("bash", "-c", command),
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": paths},
    )
    found = re.search(r"step_time_s ([\d.e-]+)", ended.stdout)
    assert found, ended.stdout + ended.stderr
    return float(found[1])


def write_rows(path: Path, runs: Sequence[NamedRun], seconds: Sequence[Sequence[float]]) -> None:
    """The rows of the small runs, once for each round."""
    rows = [
        {**one.row, "step_time_s": step_s}
        for of_round in seconds
        for one, step_s in zip(runs, of_round, strict=False)
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def report(
    runs: Sequence[NamedRun],
    seconds: Sequence[Sequence[float]],
    foretold: Foretold,
    loads: Sequence[float],
) -> str:
    """A row for each run, and whether the larger one was foretold."""
    lines = [
        f"GPT of {LAYERS} layers, {TRAINING['shapes']['hidden']} wide, {TRAINING['seq']} tokens, "
        f"global batch {TRAINING['global_batch']}, fp32; {len(seconds)} rounds, each run once a "
        f"round; load average {loads[0]:.1f} at the start, {loads[1]:.1f} at the end.",
        "",
        "| run | ranks | layers | layout | predicted | measured, of each round |",
        "|---|---|---|---|---|---|",
    ]
    for number, one in enumerate(runs, start=1):
        run = one.verifying.run
        name = "larger" if one is runs[-1] else str(number)
        times = ", ".join(f"{of_round[number - 1]:.3f} s" for of_round in seconds)
        lines.append(
            f"| {name} | {run.layout.world_size} | {run.layers} | {name_of(run.layout)} "
            f"| {run.step_s:.3f} s | {times} |"
        )
    verdict = "inside" if foretold.is_inside else "**outside**"
    lines += [
        "",
        f"Larger run: predicted {foretold.predicted_s:.3f} s ± {foretold.band_before:.0%}; "
        f"corrected by the small runs {foretold.corrected_s:.3f} s ± {foretold.band_after:.0%}; "
        f"measured {foretold.measured_s:.3f} s (median), {verdict}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
