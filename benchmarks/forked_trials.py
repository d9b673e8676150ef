"""Time saved by forking: short trials of the example on 2 CPU ranks, forked and spawned in turns.

Prints the median wall time of a trial, the part of it outside steps, the mean step, and the
fork server's own start; ``--json`` one document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from autoconf_launch.autotuner.space.trial import Measurement
from autoconf_launch.core import Mode, RankTask
from autoconf_launch.core.rank import TASK_VARIABLE
from autoconf_launch.launcher.engines import ForkServerEngine, JobEnd, LocalEngine
from autoconf_launch.launcher.machine import free_port, usable_cores
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

EXAMPLE = Path(__file__).parents[1] / "examples" / "01_pretrain_gpt"
RANKS, STEPS = 2, 3


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Medians over trials, in seconds."""

    trial_s: float
    beside_steps_s: float
    step_s: float


def plan(folder: Path, samples: int) -> LaunchPlan:
    """A trial of ``STEPS`` steps with ``samples`` per rank and step."""
    config = json.loads((EXAMPLE / "config.json").read_text())
    config.pop("autotuning")
    config |= {"train_micro_batch_size_per_gpu": samples, "gradient_accumulation_steps": 1}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    task = RankTask(
        mode=Mode.MEASURE, folder=str(folder), attempt="now", start_step=1, end_step=STEPS
    )
    shared = {
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": str(max(1, usable_cores() // RANKS)),
        TASK_VARIABLE: task.to_variable(),
    }
    argv = (sys.executable, "-u", str(EXAMPLE / "train.py"), "--config", str(path))
    return LaunchPlan(
        name="trial",
        ranks=tuple(
            RankPlan(
                rank=rank,
                local_rank=rank,
                argv=argv,
                environment=(*shared.items(), ("RANK", str(rank)), ("LOCAL_RANK", str(rank))),
            )
            for rank in range(RANKS)
        ),
        working_directory=str(folder),
        folder=str(folder),
        task=task,
    )


def run(backend: LocalEngine, planned: LaunchPlan) -> JobEnd:
    """The end of one trial."""
    job = backend.submit(planned)
    while (end := backend.poll([job])[0]) is None:
        backend.wait([job], 10.0)
    return end


def figures(ends: list[JobEnd]) -> Figures:
    """Medians of trials that were all measured."""
    steps = [sum(m.step_s) for end in ends if isinstance(m := end.outcome, Measurement)]
    assert len(steps) == len(ends), "a trial failed"
    beside = [end.wall_s - step_s for end, step_s in zip(ends, steps, strict=True)]
    return Figures(
        trial_s=statistics.median(end.wall_s for end in ends),
        beside_steps_s=statistics.median(beside),
        step_s=statistics.median(steps) / STEPS,
    )


def main() -> None:
    """Run both kinds in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ends: dict[str, list[JobEnd]] = {"forked": [], "spawned": []}
    fork_server = ForkServerEngine()
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.monotonic()
        run(fork_server, plan(Path(folder), args.samples))
        first_s = time.monotonic() - start_s
        for _ in range(args.trials):
            ends["forked"].append(run(fork_server, plan(Path(folder), args.samples)))
            ends["spawned"].append(run(LocalEngine(), plan(Path(folder), args.samples)))
    fork_server.close()
    found = {kind: figures(trials) for kind, trials in ends.items()}
    if args.json:
        document = {kind: asdict(figure) for kind, figure in found.items()}
        print(json.dumps({**document, "first_forked_s": first_s}))
        return
    for kind, figure in found.items():
        print(
            f"{kind:8} trial {figure.trial_s:6.2f} s, beside its steps "
            f"{figure.beside_steps_s:6.2f} s, step {figure.step_s * 1e3:7.1f} ms"
        )
    print(f"the first forked trial took {first_s:.2f} s, the fork server's start included")


if __name__ == "__main__":
    main()
