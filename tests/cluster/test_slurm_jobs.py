"""Launches as batch jobs of a real Slurm."""

import json
import signal
import subprocess
import sys
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
from . import slurm
from .slurm import Slurm
from .test_ssh_hosts import COMMAND, EXAMPLE, MEET, SAYS_WORDS, WORDS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not slurm.IS_INSTALLED, reason="needs root, slurm-wlm and munge"),
]
FLAGS = ("--launcher", "sbatch", "--num_nodes", "2", "--num_gpus", "2")
PLACED = ("n1", "n1", "n2", "n2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    found = slurm.start(tmp_path_factory.mktemp("slurm"))
    yield found
    slurm.stop(found)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder whose name a shell and Slurm would read in their own ways."""
    folder = tmp_path / "it's $HOME %j `x`"
    folder.mkdir()
    text = MEET.replace("socket.gethostname()", "os.environ['SLURMD_NODENAME']")
    (folder / "meet.py").write_text(text)
    return folder / "meet.py"


def launch(cluster: Slurm, script: Path, *words: str, args: str = "") -> subprocess.Popen[str]:
    flags = (*FLAGS, "--no_local_rank", *(("--launcher_args", args) if args else ()))
    return subprocess.Popen(
        (*COMMAND, *flags, str(script), *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=script.parent,
        env=cluster.variables | {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"},
    )


def is_idle_within(cluster: Slurm, timeout_s: float) -> bool:
    until_s = time.monotonic() + timeout_s
    while cluster.jobs():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.2)
    return True


def test_ranks_of_all_nodes_meet(cluster: Slurm, script: Path) -> None:
    with launch(cluster, script, args="--gres=gpu:2") as process:
        printed, said = process.communicate(timeout=120)
    expected = [f"rank {rank} on {node} of 4" for rank, node in enumerate(PLACED)]
    assert (process.returncode, sorted(printed.split("\n"))[1:]) == (0, expected), said
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


def test_words_of_a_script_pass_whole_and_secrets_stand_in_no_file(
    cluster: Slurm, script: Path
) -> None:
    script.write_text(SAYS_WORDS)
    with launch(cluster, script, *WORDS) as process:
        printed, said = process.communicate(timeout=120)
    lines = [json.loads(line) for line in printed.splitlines()]
    assert lines == [[True, False, "hf_ab", WORDS]] * 4, said


def test_the_code_of_a_rank_that_fails_is_the_launches(cluster: Slurm, script: Path) -> None:
    with launch(cluster, script, "fails") as process:
        process.communicate(timeout=120)
    assert process.returncode == 7
    assert is_idle_within(cluster, 10)


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


def test_ending_the_launcher_ends_the_job(cluster: Slurm, script: Path) -> None:
    with launch(cluster, script, "forever") as process:
        assert process.stdout
        assert "of 4" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
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


def test_a_tune_runs_its_trials_as_jobs(cluster: Slurm, tmp_path: Path) -> None:
    for name in ("train.py", "config.json"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["zero_optimization"] = {"stage": [0, 1]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = ("--launcher", "sbatch", "--num_nodes", "2", "--num_gpus", "1")
    words = ("--autotuning=tune", *flags, "--tuner_num_trials", "2", "--soak-steps", "0")
    done = subprocess.run(
        (sys.executable, *COMMAND[1:], *words, "train.py", "--config", "config.json"),
        env=cluster.variables,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "autotuning_results" / "summary.json").read_text())
    assert summary["winner"] is not None
    assert not cluster.jobs()
    left = list((tmp_path / "autotuning_results").rglob(".agents-*"))
    assert left == []
