"""Layouts a second of ``plan``, and the time of the whole command, on one core.

    python benchmarks/plan_speed.py [--repeats 5] [--write]

Each case is the command itself in a fresh process on one core, from the start of Python to the
last line; ``--write`` puts the medians into ``benchmarks/results/plan_speed.json``. What counts:

- ``considered``: every layout that satisfies the equations of mesh and batch.
- ``valid``: layouts that break no rule. Each of these gets its peak memory on the fullest
  pipeline stage, the time of its step with all its parts and its verdict; money is that time
  times one price, so that it costs nothing more. For the others only the broken rule is known.
- ``seconds``: enumerating, ruling out, pricing, ranking; the clock of the command's own report.
- ``wall_s``, ``cpu_s``, ``peak_mb``: of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "plan_speed.json"
CASES = {
    "llama3.1-405b on 16,384 H100": ("llama3.1-405b", "2048x8xH100-SXM-80GB", 8192, 2048),
    "gpt3-175b on 1,024 A100": ("gpt3-175b", "128x8xA100-SXM-80GB", 2048, 1536),
    "deepseek-v3 on 2,048 H100": ("deepseek-v3", "256x8xH100-SXM-80GB", 4096, 15360),
    "mixtral-8x7b on 128 H100": ("mixtral-8x7b", "16x8xH100-SXM-80GB", 4096, 1024),
    "llama3.1-8b on 8 H100": ("llama3.1-8b", "8xH100-SXM-80GB", 8192, 64),
}
_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Result of a command."""

    considered: int
    valid: int
    seconds: float
    wall_s: float
    cpu_s: float
    peak_mb: float

    @property
    def considered_per_s(self) -> float:
        """Layouts looked at in a second."""
        return self.considered / self.seconds

    @property
    def valid_per_s(self) -> float:
        """Layouts whose memory, time and cost are worked out in a second."""
        return self.valid / self.seconds


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    load = os.getloadavg()[0]
    found = {
        name: median([run(case) for _ in range(flags.repeats)]) for name, case in CASES.items()
    }
    for name, one in found.items():
        print(
            f"{name}: {one.considered:,} considered, {one.valid:,} valid; "
            f"{one.considered_per_s / 1e6:.1f} and {one.valid_per_s / 1e6:.1f} million a second; "
            f"{one.wall_s:.2f} s in all, {one.peak_mb:.0f} MB"
        )
    if flags.write:
        document = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "load_before": load,
            "repeats": flags.repeats,
            "cases": {name: as_document(one) for name, one in found.items()},
        }
        RESULT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def run(case: tuple[str, str, int, int]) -> Run:
    """Run the command once, in a separate process on one core."""
    model, cluster, sequence, batch = case
    command = [sys.executable, "-m", "autoconf_launch.launcher.cli", "plan", "--json"]
    command += ["--model", model, "--cluster", cluster]
    command += ["--seq", str(sequence), "--global-batch", str(batch)]
    started = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        preexec_fn=on_one_core,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    document = json.loads(text)
    return Run(
        considered=document["considered"],
        valid=document["valid"],
        seconds=document["seconds"],
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mb=usage.ru_maxrss * 1024 / _MB,
    )


def on_one_core() -> None:
    """Keep this process on a single core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def median(runs: list[Run]) -> Run:
    """The run with the median of ``seconds``, with the medians of the whole process."""
    middle = sorted(runs, key=lambda one: one.seconds)[len(runs) // 2]
    return Run(
        considered=middle.considered,
        valid=middle.valid,
        seconds=middle.seconds,
        wall_s=statistics.median(one.wall_s for one in runs),
        cpu_s=statistics.median(one.cpu_s for one in runs),
        peak_mb=max(one.peak_mb for one in runs),
    )


def as_document(one: Run) -> dict[str, float]:
    """Numbers with four digits."""
    numbers = {
        **asdict(one),
        "considered_per_s": one.considered_per_s,
        "valid_per_s": one.valid_per_s,
    }
    return {
        name: value if isinstance(value, int) else float(f"{value:.4g}")
        for name, value in numbers.items()
    }


if __name__ == "__main__":
    main()
