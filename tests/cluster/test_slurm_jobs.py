"""Launches as batch jobs of a real Slurm."""

import signal
import subprocess
import time
from collections.abc import Iterator
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
    pytest.mark.skipif(not slurm.IS_INSTALLED, reason="needs root, slurm-wlm and munge"),
]
FLAGS = ("--launcher", "sbatch", "--num_nodes", "2", "--num_gpus", "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    found = slurm.start(tmp_path_factory.mktemp("slurm"))
    yield found
    slurm.stop(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return launching.make_script(tmp_path, "os.environ['SLURMD_NODENAME']")


def launch(cluster: Slurm, script: Path, *words: str, args: str = "") -> subprocess.Popen[str]:
    flags = (*FLAGS, *(("--launcher_args", args) if args else ()))
    return launching.launch(flags, script, *words, variables=cluster.variables)


def is_idle_within(cluster: Slurm, timeout_s: float) -> bool:
    until_s = time.monotonic() + timeout_s
    while cluster.jobs():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.2)
    return True


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ("--partition=nowhere", "Invalid partition name specified"),
        ("--gres=gpu:99", "Requested node configuration is not available"),
    ],
)
def test_what_slurm_refuses_is_one_line(
    cluster: Slurm, script: Path, args: str, reason: str
) -> None:
    with launch(cluster, script, args=args) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert reason in said
    assert len(said.strip().splitlines()) == 1


def test_a_job_that_somebody_cancels_is_named(cluster: Slurm, script: Path) -> None:
    with launch(cluster, script, "forever") as process:
        assert process.stdout
        assert process.stderr
        assert "of 4" in process.stdout.readline()
        job = cluster.jobs()[0].split()[0]
        cluster.run("scancel", job)
        process.wait(60)
        assert process.returncode != 0
    assert is_idle_within(cluster, 15)


def test_a_job_that_waits_is_said_once_with_the_reason(cluster: Slurm, script: Path) -> None:
    with launch(cluster, script, args="--begin=now+1hour") as process:
        assert process.stderr
        said = process.stderr.readline()
        job = cluster.jobs()[0].split()[0]
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert said.strip().endswith(f"Waiting for hosts: job {job} of Slurm is pending (BeginTime).")
    assert "Waiting" not in rest
    assert is_idle_within(cluster, 15)


@pytest.fixture
def workshop(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setenv("SLURM_CONF", cluster.variables["SLURM_CONF"])
    backend = make_engine(RemoteAccess(engine="sbatch"), deadline_s=3)
    return Workshop(backend=backend, folder=tmp_path, patience_s=90)


def test_our_own_deadline_ends_a_trial_inside_its_job(workshop: Workshop) -> None:
    end = workshop.end_of(workshop.submit("slow"))
    assert isinstance(end.outcome, FailedTrial)
    assert end.outcome.failure.kind is FailureKind.TIMED_OUT
    assert end.outcome.failure.detail == "did not end within 3 s"


def test_a_later_controller_cancels_what_a_dead_one_left(
    workshop: Workshop, cluster: Slurm
) -> None:
    backend = make_engine(RemoteAccess(engine="sbatch"))
    job = backend.submit(workshop.plan("slow"))
    assert isinstance(job, HostsJob)
    assert cluster.jobs()
    make_engine(RemoteAccess(engine="sbatch")).end_orphan(job.handle, "anywhere")
    assert is_idle_within(cluster, 10)


def test_a_node_whose_daemon_dies_is_a_lost_node(cluster: Slurm, workshop: Workshop) -> None:
    backend = make_engine(RemoteAccess(engine="sbatch", arguments=("--nodelist=n4",)))
    job = backend.submit(workshop.plan("slow"))
    assert isinstance(job, HostsJob)
    while not job.agents[0].here:
        backend.wait([job], 1)
        backend.poll([job])
    cluster.kill_node("n4")
    try:
        end = replace(workshop, backend=backend).end_of(job)
    finally:
        conf = str(cluster.folder / "slurm.conf")
        cluster.run("slurmd", "-f", conf, "-N", "n4")
    assert isinstance(end.outcome, FailedTrial)
    assert end.outcome.failure.kind is FailureKind.NODE_LOST
    assert "NODE_FAIL" in end.outcome.failure.detail
