"""Launches and a tune on every engine that finds hosts itself: Slurm, Ray and Kubernetes."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import kubernetes_cluster, ray_cluster, slurm
from .launching import COMMAND, EXAMPLE, HOST, SAYS_WORDS, WORDS, launch, make_script

pytestmark = pytest.mark.cluster


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """A cluster of at least two hosts.

    Attributes:
        flags: of a launch; its size follows.
        host: expression by which a rank names its host.
        is_idle_within: whether nothing of a launch lives after so many seconds.
        names_host: part of what doctor says of the second host; empty: it is not asked.
    """

    flags: tuple[str, ...]
    variables: dict[str, str]
    host: str
    is_idle_within: Callable[[float], bool]
    names_host: str = ""

    def size_flags(self, nodes: int, ranks: int) -> tuple[str, ...]:
        """Flags of a launch on so many hosts, with so many ranks on each."""
        return (*self.flags, "--num_nodes", str(nodes), "--num_gpus", str(ranks))

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            (*COMMAND, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=self.variables,
        )

    def launch(self, script: Path, *words: str) -> subprocess.Popen[str]:
        return launch(self.size_flags(2, 2), script, *words, variables=self.variables)


@contextmanager
def on_slurm() -> Iterator[Scheduler]:
    running = slurm.start(Path(tempfile.mkdtemp(prefix="slurm-")))

    def is_idle_within(timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while running.jobs() and time.monotonic() < until_s:
            time.sleep(0.2)
        return not running.jobs()

    yield Scheduler(
        flags=("--launcher", "sbatch"),
        variables=running.variables,
        host="os.environ['SLURMD_NODENAME']",
        is_idle_within=is_idle_within,
    )
    slurm.stop(running)


@contextmanager
def on_ray() -> Iterator[Scheduler]:
    running = ray_cluster.start(3, cpus=2, gpus=0)
    yield Scheduler(
        flags=("--launcher", "ray"),
        variables=running.variables,
        host="os.environ['AUTOCONF_LAUNCH_NODE']",
        is_idle_within=running.is_idle_within,
        names_host="w1",
    )
    ray_cluster.stop(running)


@contextmanager
def on_kubernetes(*, real: bool = True) -> Iterator[Scheduler]:
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    running = kubernetes_cluster.start(folder, real=real, nodes=3, gpus=4)
    yield Scheduler(
        flags=("--launcher", "kubernetes", "--launcher_args", str(running.pod_file())),
        variables=running.variables,
        host=HOST,
        is_idle_within=running.is_empty_within,
        names_host="node-1",
    )
    kubernetes_cluster.stop(running)


@contextmanager
def on_a_stand_in() -> Iterator[Scheduler]:
    with on_kubernetes(real=False) as scheduler:
        yield scheduler


ENGINES = [
    pytest.param(engine, marks=pytest.mark.skipif(not is_there, reason=reason))
    for engine, is_there, reason in (
        (on_slurm, slurm.IS_INSTALLED, "needs root, slurm-wlm and munge"),
        (on_ray, ray_cluster.IS_INSTALLED, ray_cluster.REASON),
        (on_kubernetes, kubernetes_cluster.HAS_SERVER, kubernetes_cluster.SERVER_REASON),
        (on_a_stand_in, kubernetes_cluster.CAN_STAND_IN, kubernetes_cluster.CLIENT_REASON),
    )
]


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.__name__)
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with request.param() as running:
        yield running


@pytest.fixture(autouse=True)
def leaves_nothing(scheduler: Scheduler) -> Iterator[None]:
    yield
    assert scheduler.is_idle_within(30)


@pytest.fixture
def script(tmp_path: Path, scheduler: Scheduler) -> Path:
    return make_script(tmp_path, scheduler.host)


def test_ranks_of_all_hosts_meet(scheduler: Scheduler, script: Path) -> None:
    with scheduler.launch(script) as process:
        printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    placed = dict(sorted((line.split()[1], line.split()[3]) for line in printed.splitlines()))
    hosts = list(placed.values())
    assert list(placed) == ["0", "1", "2", "3"]
    assert (hosts[0], hosts[2]) == (hosts[1], hosts[3])
    assert hosts[0] != hosts[2]
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


def test_words_of_a_script_pass_whole_and_secrets_stand_in_no_file(
    scheduler: Scheduler, script: Path
) -> None:
    script.write_text(SAYS_WORDS)
    with scheduler.launch(script, *WORDS) as process:
        printed, said = process.communicate(timeout=300)
    lines = [json.loads(line) for line in printed.splitlines()]
    assert lines == [[True, False, "hf_ab", WORDS]] * 4, said


def test_the_code_of_a_rank_that_fails_is_the_launches(scheduler: Scheduler, script: Path) -> None:
    with scheduler.launch(script, "fails") as process:
        process.communicate(timeout=300)
    assert process.returncode == 7


def test_nothing_outlives_a_launcher_that_is_told_to_end(
    scheduler: Scheduler, script: Path
) -> None:
    with scheduler.launch(script, "forever") as process:
        assert process.stdout
        assert "of 4" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_doctor_measures_the_hosts(scheduler: Scheduler, tmp_path: Path) -> None:
    if not scheduler.names_host:
        pytest.skip("each job gets other hosts")
    with scheduler.start(tmp_path, "doctor", *scheduler.size_flags(2, 1), "--json") as process:
        printed, said = process.communicate(timeout=300)
    assert scheduler.names_host in printed, said
    assert list(tmp_path.iterdir()) == []


def test_a_tune_ends_with_a_winner(scheduler: Scheduler, tmp_path: Path) -> None:
    for name in ("train.py", "config.json"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["zero_optimization"] = {"stage": [0, 1]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ("--autotuning=tune", "--tuner_num_trials", "2", "--soak-steps", "0")
    script = ("train.py", "--config", "config.json")
    with scheduler.start(tmp_path, *scheduler.size_flags(2, 1), *words, *script) as process:
        _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    results = tmp_path / "autotuning_results"
    assert json.loads((results / "summary.json").read_text())["winner"] is not None
    assert list(results.rglob(".agents-*")) == []
