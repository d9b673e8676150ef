"""Measures our own claims about the main job; prints one table, ``--json`` one document.

* our own time per trial: a study of trials whose ranks only write their result, less the time
  that the same processes take by themselves
* the whole example on 2 CPU processes
* 1,000 replayed trials: seconds, resident memory, and whether the journal grows linearly
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autoconf_launch.autotuner.search.study import Study, baseline_trial
from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.autotuner.space.space import (
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    SearchSpace,
    build_space,
)
from autoconf_launch.autotuner.space.trial import (
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
    candidate_name,
)
from autoconf_launch.core import (
    Candidate,
    ClusterSpec,
    Device,
    Layout,
    Mode,
    Node,
    RankTask,
    RawConfig,
)
from autoconf_launch.launcher.dialects.builtin import BuiltinDialect
from autoconf_launch.launcher.engines import Backend, LocalEngine
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.results.journal import Fingerprint, Journal
from autoconf_launch.launcher.results.paths import ResultsPaths
from autoconf_launch.launcher.script.source import ScriptSource
from autoconf_launch.launcher.tuning.controller import Controller, TrialIO
from autoconf_launch.launcher.tuning.running import TrialLimits
from autoconf_launch.launcher.tuning.trial_io import TrialFiles

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "launcher"))

from replay_backend import ReplayBackend  # noqa: E402

EXAMPLE = ROOT / "examples" / "01_pretrain_gpt"
REPORTING_RANK = """
import json, os, sys, time
task = json.loads(os.environ["AUTOCONF_LAUNCH_TASK"])
with open(sys.argv[-1]) as file:
    config = json.load(file)
steps = [{"rank": 0, "step": n, "wall_s": 0.001, "samples": 1, "loss": 1.0} for n in range(1, 6)]
applied = {"zero_stage": 0, "data_parallel": 1, "precision": "fp32", "recompute": "none",
           "micro_batch": config["train_micro_batch_size_per_gpu"],
           "accumulation": config["gradient_accumulation_steps"]}
with open(os.path.join(task["folder"], "result.json"), "w") as file:
    json.dump({"rank": 0, "world_size": 1, "attempt": task["attempt"], "applied": applied,
               "ended_unix_s": time.time(), "steps": steps}, file)
"""


class BareTrialIO:
    """Plans without processes or files, for replays."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """A plan that only has a name."""
        task = RankTask(mode=Mode.MEASURE, folder=".", attempt=attempt)
        return LaunchPlan(name=trial.name, ranks=(), working_directory=".", task=task)

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """Nothing is ever adopted."""
        return None

    def predict(self, trial: Trial) -> Prediction | None:
        """Nothing is predicted."""
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        """Nothing is missing."""
        return outcome

    def finish(self, record: Record) -> None:
        """Nothing more is written."""


def real_trial_io(folder: Path) -> TrialFiles:
    """The tuner's own trial files around a script that writes its result and ends."""
    script = folder / "report.py"
    script.write_text(REPORTING_RANK)
    config = RawConfig({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1})
    arguments = ("--config", "config.json")
    device = Device(name="cpu", memory_bytes=10**9)
    return TrialFiles(
        request=LaunchRequest(script=str(script), script_args=arguments),
        cluster=ClusterSpec(nodes=(Node(host="here", devices=(device,)),)),
        paths=ResultsPaths(results=folder / "results", exps=folder / "exps"),
        source=ScriptSource(script_args=arguments, config=config, config_argument=1),
        dialect=BuiltinDialect(),
        settings=AutotuningSettings(),
    )


def wide_space(sizes: int) -> SearchSpace:
    """A search space of one stage with many micro-batches."""
    baseline = Candidate(layout=Layout(micro_batch=1))
    choice = KnobChoice("micro_batch", tuple(range(1, sizes + 1)), ChoiceKind.LISTED)
    return build_space(baseline, (choice,), GlobalBatchRule(), AutotuningSettings())


def run_study(
    space: SearchSpace, journal: Path, backend: Backend, trial_io: TrialIO
) -> tuple[float, int]:
    """Seconds and launches of a study of every candidate; records go through a real journal."""
    settings = AutotuningSettings(
        tuner_type="gridsearch", tuner_early_stopping=10**6, tuner_num_trials=10**6
    )
    fingerprint = Fingerprint(script="", arguments=(), config="", hardware=(), versions=())
    study = Study(space, None, settings)
    with Journal(journal) as opened:
        opened.write_header(fingerprint)
        started_s = time.perf_counter()
        Controller(
            study,
            backend,
            trial_io,
            journal=opened,
            listener=lambda event: None,
            limits=TrialLimits(timeout_s=60.0, stall_s=60.0),
        ).run()
        wall_s = time.perf_counter() - started_s
    failed = [record.failure for record in study.records if record.failure]
    assert not failed, failed[0]
    assert len(study.records) == len(space.table) + 1
    return wall_s, len(study.records) + len(study.repeats)


def own_time_per_trial_s(trials: int = 60) -> float:
    """Seconds of a trial beyond its own processes, all its files included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trial_io = real_trial_io(folder)
        (folder / "exps").mkdir()
        total_s, launches = run_study(wide_space(trials), folder / "j", LocalEngine(), trial_io)
        plan = trial_io.plan(baseline_trial(wide_space(1).baseline), "direct")
        argv, given = plan.ranks[0].argv, dict(plan.ranks[0].environment)
        alone_s = []
        for _ in range(trials):
            started_s = time.perf_counter()
            subprocess.run(argv, env={**os.environ, **given}, check=True)
            alone_s.append(time.perf_counter() - started_s)
    return total_s / launches - statistics.mean(alone_s)


def example() -> tuple[float, int, str]:
    """Seconds, trials and winner of the README's command in a separate folder."""
    with tempfile.TemporaryDirectory() as name:
        command = ["-m", "autoconf_launch.launcher.cli", "--autotuning=tune", "--num_gpus", "2"]
        command += [str(EXAMPLE / "train.py"), "--config", str(EXAMPLE / "config.json")]
        started_s = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=name, check=True, stdout=sys.stderr)
        wall_s = time.perf_counter() - started_s
        summary = json.loads((Path(name) / "autotuning_results" / "summary.json").read_text())
    return wall_s, summary["spaces"][-1]["num_experiments"], summary["winner"]


def replay_study(trials: int = 1000) -> dict[str, float]:
    """Seconds, peak resident bytes and journal bytes per trial of a replayed study."""
    space = wide_space(trials)
    candidates = [space.baseline, *map(space.table.row, range(len(space.table)))]
    records = [
        Record(
            trial=Trial(number=0, name=candidate_name(c), candidate=c, space="z0"),
            outcome=Measurement(step_s=(1.0, 1.1, 1.0), samples_per_step=8, world_size=1),
            wall_s=1.0,
        )
        for c in candidates
    ]
    with tempfile.TemporaryDirectory() as name:
        journal = Path(name) / "journal.jsonl"
        wall_s, _ = run_study(space, journal, ReplayBackend(records), BareTrialIO())
        lines = journal.read_bytes().splitlines()[1:]
    half = len(lines) // 2
    return {
        "trials": trials,
        "wall_s": wall_s,
        "peak_resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "journal_bytes_per_trial_first_half": sum(map(len, lines[:half])) / half * 2,
        "journal_bytes_per_trial_second_half": sum(map(len, lines[half:])) / half * 2,
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--skip-example", action="store_true")
    arguments = parser.parse_args()
    replay = replay_study()
    own_s = own_time_per_trial_s()
    whole = None if arguments.skip_example else example()
    document = {
        "own_time_per_trial_s": own_s,
        "replay": replay,
        "example": {"wall_s": whole[0], "trials": whole[1], "winner": whole[2]} if whole else None,
    }
    if arguments.json:
        print(json.dumps(document, indent=2))
        return
    first, second = (replay[f"journal_bytes_per_trial_{h}_half"] for h in ("first", "second"))
    print(f"our own time per trial:   {1e3 * own_s:6.1f} ms   (to reach: under 50 ms)")
    print(f"1,000 replayed trials:    {replay['wall_s']:6.2f} s    (under 10 s)")
    print(
        f"  peak resident memory:   {replay['peak_resident_bytes'] / 1e6:6.0f} MB   (under 300 MB)"
    )
    print(f"  journal bytes per trial:{first:6.0f} and {second:.0f} in the two halves (linear)")
    if whole:
        print(
            f"the whole example:        {whole[0]:6.1f} s    for {whole[1]} trials (under 90 s, 8)"
        )


if __name__ == "__main__":
    main()
