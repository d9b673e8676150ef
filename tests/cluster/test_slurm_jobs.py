"""Launches as batch jobs of a real Slurm; with every engine: test_schedulers.py."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.engines import HostsJob, make_engine
from autoconf_launch.launcher.request import RemoteAccess

from ..contracts.test_engine import Workshop
from . import launching, slurm
from .slurm import Slurm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not slurm.IS_INSTALLED, reason=slurm.REASON),
]
FLAGS = ("--launcher", "sbatch", "--num_nodes", "2", "--num_gpus", "2")


@pytest.fixture
def workshop(slurm_cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.variables["SLURM_CONF"])
    backend = make_engine(RemoteAccess(engine="sbatch"), deadline_s=3)
    return Workshop(backend=backend, folder=tmp_path, patience_s=90)


def launch(cluster: Slurm, folder: Path, *words: str, args: str = "") -> subprocess.Popen[str]:
    flags = (*FLAGS, *(("--launcher_args", args) if args else ()))
    script = launching.make_script(folder, "os.environ['SLURMD_NODENAME']")
    return launching.launch(flags, script, *words, variables=cluster.variables)


def test_a_job_that_somebody_cancels_ends_the_launch(slurm_cluster: Slurm, tmp_path: Path) -> None:
    with launch(slurm_cluster, tmp_path, "forever") as process:
        launching.await_ranks(process, 4)
        slurm_cluster.run("scancel", slurm_cluster.jobs()[0].split()[0])
        process.wait(60)
        assert process.returncode != 0
    assert slurm_cluster.is_idle_within(15)


def test_a_job_that_waits_is_said_once_with_the_reason(
    slurm_cluster: Slurm, tmp_path: Path
) -> None:
    with launch(slurm_cluster, tmp_path, args="--begin=now+1hour") as process:
        assert process.stderr
        said = process.stderr.readline()
        job = slurm_cluster.jobs()[0].split()[0]
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert said.strip().endswith(f"Waiting for hosts: job {job} of Slurm is pending (BeginTime).")
    assert "Waiting" not in rest
    assert slurm_cluster.is_idle_within(15)


def test_our_own_deadline_ends_a_trial_inside_its_job(workshop: Workshop) -> None:
    end = workshop.end_of(workshop.submit("slow"))
    assert isinstance(end.outcome, FailedTrial)
    failure = end.outcome.failure
    assert (failure.kind, failure.detail) == (FailureKind.TIMED_OUT, "did not end within 3 s")


def test_a_later_controller_cancels_what_a_dead_one_left(
    workshop: Workshop, slurm_cluster: Slurm
) -> None:
    job = make_engine(RemoteAccess(engine="sbatch")).submit(workshop.plan("slow"))
    assert slurm_cluster.jobs()
    make_engine(RemoteAccess(engine="sbatch")).end_orphan(job.handle, "anywhere")
    assert slurm_cluster.is_idle_within(10)


def test_a_node_whose_daemon_dies_is_a_lost_node(slurm_cluster: Slurm, workshop: Workshop) -> None:
    backend = make_engine(RemoteAccess(engine="sbatch", arguments=("--nodelist=n4",)))
    job = backend.submit(workshop.plan("slow"))
    assert isinstance(job, HostsJob)
    while not job.agents[0].here:
        backend.wait([job], 1)
        backend.poll([job])
    with slurm_cluster.without_node("n4"):
        end = replace(workshop, backend=backend).end_of(job)
    assert isinstance(end.outcome, FailedTrial)
    assert end.outcome.failure.kind is FailureKind.NODE_LOST
    assert "NODE_FAIL" in end.outcome.failure.detail
