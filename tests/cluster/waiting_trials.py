"""A study of trials whose steps wait instead of computing, on the hosts of a launch.

    python -m tests.cluster.waiting_trials FOLDER TRIALS STEP_S [flags of a launch]

Prints one JSON document: seconds, and of each trial where and when it ran. A later process with
the same folder goes on from its journal.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from autoconf_launch.autotuner.search import ListedStudy
from autoconf_launch.autotuner.space import Outcome, Prediction, Record, Trial
from autoconf_launch.core import Candidate, Layout, Mode, RankTask
from autoconf_launch.launcher.engines import make_engine
from autoconf_launch.launcher.events import Event, Note
from autoconf_launch.launcher.flags import parse_request
from autoconf_launch.launcher.hosts import find_cluster, find_pool
from autoconf_launch.launcher.launch import adopt, plan_launch
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Fingerprint, ResultsPaths, open_folder
from autoconf_launch.launcher.spelling import Rendered
from autoconf_launch.launcher.tuning import Controller, TrialLimits

RANK = """
import json, os, socket, sys, time
task = json.loads(os.environ["AUTOCONF_LAUNCH_TASK"])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
began = time.time()
steps = []
for number in range(1, 4):
    time.sleep(float(sys.argv[1]) / 3)
    steps.append({"rank": rank, "step": number, "wall_s": 1.0, "samples": 1})
place = [host, os.environ.get("CUDA_VISIBLE_DEVICES"), began, time.time()]
print("place", json.dumps(place), flush=True)
name = "result.json" if rank == 0 else f"result_rank{rank}.json"
with open(os.path.join(task["folder"], "." + name), "w") as file:
    json.dump({"rank": rank, "world_size": world, "attempt": task["attempt"],
               "ended_unix_s": time.time(), "steps": steps}, file)
os.replace(file.name, os.path.join(task["folder"], name))
"""


class WaitingTrials:
    """Plans of trials that wait."""

    def __init__(self, folder: Path, step_s: str, flags: list[str]) -> None:
        script = folder / "rank.py"
        script.write_text(RANK)
        self.request = parse_request(["--no_local_rank", *flags, str(script), step_s])
        self.cluster = find_cluster(self.request)
        self._folder = folder

    def _task(self, trial: Trial, attempt: str) -> RankTask:
        return RankTask(mode=Mode.MEASURE, folder=str(self._folder / trial.name), attempt=attempt)

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        task = self._task(trial, attempt)
        Path(task.folder).mkdir(exist_ok=True)
        for old in Path(task.folder).glob("result*"):
            old.unlink()
        words = Rendered(config=None, script_args=self.request.script_args)  # type: ignore[arg-type]
        return plan_launch(self.request, self.cluster, words, task=task)

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        ranks = len(self.cluster.devices)
        return adopt(self._task(trial, attempt), world_size=ranks, expected=None, checked=None)

    def predict(self, trial: Trial) -> Prediction | None:
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome

    def finish(self, record: Record) -> None:
        pass


def listed_trials(count: int) -> list[Trial]:
    candidate = Candidate(layout=Layout())
    return [
        Trial(number=n, name=f"z0_gas1_tmbspg{n}", candidate=candidate, space="z0")
        for n in range(count)
    ]


def hear(event: Event) -> None:
    if isinstance(event, Note):
        sys.stderr.write(f"{event.text}\n")


def main() -> None:
    folder, count, step_s, *flags = sys.argv[1:]
    trial_io = WaitingTrials(Path(folder), step_s, flags)
    paths = ResultsPaths(results=Path(folder), exps=Path(folder))
    print_ = Fingerprint(script="", arguments=(), config="", hardware=(), versions=())
    pool = find_pool(trial_io.request, trial_io.cluster)
    request = trial_io.request
    backend = make_engine(request.remote, deadline_s=request.trial_timeout_s)
    study = ListedStudy(listed_trials(int(count)), most_steps=3, most_s=1e6)
    limits = TrialLimits(timeout_s=120.0, stall_s=120.0)
    with open_folder(paths, print_, fresh=False) as opened:
        control = Controller(
            study, backend, trial_io, journal=opened.journal, listener=hear, limits=limits
        )
        control.resume(opened.contents.search)
        room, started_s = pool.room(pool.usual), time.monotonic()
        control.run(pool)
    took_s = time.monotonic() - started_s
    failed = [str(record.failure) for record in study.records if record.failure]
    sys.stdout.write(json.dumps({"took_s": took_s, "room": room, "failed": failed}))


if __name__ == "__main__":
    main()
