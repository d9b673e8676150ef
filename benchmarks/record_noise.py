"""Records how much the steps of one fixed configuration differ on this machine; prints JSON.

The first example on 2 CPU processes is launched again and again, as in the rounds at the end of a
tuning run: forked, several at a time, which take steps in turn. Of each round the document has
the load that it began with and, for each launch, seconds of its steps, per step the slowest rank,
the first two left out. ``tests/data/step_noise.json`` is such a document.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.autotuner.space.trial import FailedTrial, Trial, Turn
from autoconf_launch.core import Candidate, Layout, RawConfig
from autoconf_launch.launcher.dialects.builtin import BuiltinDialect
from autoconf_launch.launcher.engines import Backend, ForkServerEngine
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.results.paths import ResultsPaths
from autoconf_launch.launcher.script.source import ScriptSource
from autoconf_launch.launcher.tuning.trial_io import TrialFiles

EXAMPLE = Path(__file__).parents[1] / "examples" / "01_pretrain_gpt"
CANDIDATE = Candidate(layout=Layout(micro_batch=4, accumulation=4, data_parallel=2))
FIRST_STEP = 3


def make_trial_io(folder: Path, steps: int) -> TrialFiles:
    """The tuner's own trial files for the example on 2 processes."""
    arguments = ("--config", str(EXAMPLE / "config.json"))
    request = LaunchRequest(script=str(EXAMPLE / "train.py"), script_args=arguments, processes=2)
    config = RawConfig(json.loads((EXAMPLE / "config.json").read_text()))
    last_step = FIRST_STEP + steps - 1
    return TrialFiles(
        request=request,
        cluster=find_cluster(request, lambda event: None),
        paths=ResultsPaths(results=folder / "results", exps=folder / "exps"),
        source=ScriptSource(script_args=arguments, config=config, config_argument=1),
        dialect=BuiltinDialect(),
        settings=AutotuningSettings(start_profile_step=FIRST_STEP, end_profile_step=last_step),
    )


def run_round(backend: Backend, trial_io: TrialFiles, number: int, arms: int) -> list[list[float]]:
    """Launch each arm once, all alike; returns the seconds of their steps."""
    jobs = []
    for arm in range(arms):
        turn = Turn(next_name=f"same{(arm + 1) % arms}", is_first=arm == 0)
        name = f"same{arm}"
        trial = Trial(number=1, name=name, candidate=CANDIDATE, space="z0", final=True, turn=turn)
        jobs.append(backend.submit(trial_io.plan(trial, f"{name}-{number}")))
    while not all(ends := backend.poll(jobs)):
        backend.wait([job for job, end in zip(jobs, ends, strict=True) if not end], 60.0)
    rows = []
    for end in ends:
        if end is None or end.outcome is None or isinstance(end.outcome, FailedTrial):
            raise SystemExit(f"a launch of round {number} failed: {end}")
        rows.append([round(step_s, 6) for step_s in end.outcome.step_s])
    return rows


def record(rounds: int, arms: int, steps: int) -> list[dict[str, object]]:
    """Every round in order."""
    found: list[dict[str, object]] = []
    with (
        tempfile.TemporaryDirectory() as name,
        closing(ForkServerEngine()) as backend,
    ):
        trial_io = make_trial_io(Path(name), steps)
        Path(name, "exps").mkdir()
        for number in range(rounds):
            load, start_s = os.getloadavg()[0], time.monotonic()
            rows = run_round(backend, trial_io, number, arms)
            found.append({"load": round(load, 2), "step_s": rows})
            means = " ".join(f"{sum(row) / len(row):.4f}" for row in rows)
            wall_s = time.monotonic() - start_s
            print(f"{number:3} {means} s  round {wall_s:.1f} s", file=sys.stderr)
    return found


def main() -> None:
    """Record and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--arms", type=int, default=3, help="launches of a round")
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a launch")
    arguments = parser.parse_args()
    rounds = record(arguments.rounds, arguments.arms, arguments.steps)
    document = {
        "what": "examples/01_pretrain_gpt, z0_gas4_tmbspg4, 2 forked CPU ranks, slowest rank",
        "by": "benchmarks/record_noise.py",
        "cores": os.cpu_count(),
        "recorded_on": time.strftime("%Y-%m-%d"),
        "rounds": rounds,
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
