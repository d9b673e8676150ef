"""A tune that goes on in a requeued job of a real Slurm."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import slurm
from .launching import COMMAND, write_example
from .slurm import Slurm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not slurm.IS_INSTALLED, reason=slurm.REASON),
]


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    with slurm.running(nodes=1) as running:
        yield running


def state(cluster: Slurm, job: str) -> tuple[str, int]:
    """Its state, and how often it was requeued."""
    words = cluster.run("scontrol", "show", "job", job, "--oneliner").split()
    found = dict(word.partition("=")[::2] for word in words)
    return found["JobState"], int(found["Restarts"])


def test_a_tune_that_reaches_its_time_limit_goes_on_and_measures_nothing_twice(
    cluster: Slurm, tmp_path: Path
) -> None:
    stages = {"stage": [0, 1, 3]}  # more than a minute's work
    write_example(tmp_path, zero_optimization=stages)
    options = '-N 1 --exclusive -t 1 --signal=B:USR1@40 --job-name="it\'s $x"'
    tune = ("--autotuning=tune", "--num_gpus", "2", "--soak-steps", "0")
    words = (*tune, "train.py", "--config", "config.json")
    command = (*COMMAND, "export", "--sbatch", options, "-o", "tune.sh", "--", *words)
    subprocess.run(command, cwd=tmp_path, env=cluster.variables, check=True, timeout=60)
    submit = ("sbatch", "--parsable", f"--output={tmp_path}/log", str(tmp_path / "tune.sh"))
    job, until_s = cluster.run(*submit).strip(), time.monotonic() + 560
    seen = set()
    hurried = 0
    while time.monotonic() < until_s:
        now, restarts = state(cluster, job)
        seen.add((now, restarts))
        if now in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"):
            break
        if now == "PENDING" and restarts > hurried:  # it would wait for two minutes
            cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+5")
            hurried = restarts
        time.sleep(1)
    said = (tmp_path / "log").read_text()
    assert (now, restarts >= 1) == ("COMPLETED", True), (seen, said)
    journal = (tmp_path / "autotuning_results" / "journal.jsonl").read_text()
    records = [line for line in map(json.loads, journal.splitlines()) if "measurement" in line]
    names = Counter(line["name"] for line in records)
    assert len(names) > 1
    assert set(names.values()) == {1}
    assert json.loads((tmp_path / "autotuning_results/summary.json").read_text())["winner"]
