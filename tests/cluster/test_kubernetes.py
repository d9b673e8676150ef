"""Launches and tunes as Jobs of Kubernetes: a real API server where there is one, a stand-in."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import TASK_VARIABLE, FailureKind, Mode, RankTask
from autoconf_launch.launcher.engines import kubernetes, make_engine
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import RemoteAccess

from . import kubernetes_cluster, launching
from .kubernetes_api import wait_until
from .kubernetes_cluster import Cluster
from .launching import COMMAND, MEET
from .test_many_trials import Place

REAL = pytest.param(
    True,
    id="real",
    marks=pytest.mark.skipif(
        not kubernetes_cluster.HAS_SERVER, reason=kubernetes_cluster.SERVER_REASON
    ),
)
STAND_IN = pytest.param(
    False,
    id="stand_in",
    marks=pytest.mark.skipif(
        not kubernetes_cluster.CAN_STAND_IN, reason=kubernetes_cluster.CLIENT_REASON
    ),
)
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=[REAL, STAND_IN])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes of four GPUs."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    running = kubernetes_cluster.start(folder, real=request.param, nodes=3, gpus=4)
    yield running
    kubernetes_cluster.stop(running)


@pytest.fixture(autouse=True)
def leaves_nothing(cluster: Cluster) -> Iterator[None]:
    yield
    assert cluster.is_empty_within(30), (cluster.objects(), cluster.kubelet.living)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return launching.make_script(tmp_path)


def flags(cluster: Cluster, pods: int, ranks: int, gpus: int = 0) -> tuple[str, ...]:
    words = ("--launcher", "kubernetes", "--launcher_args", str(cluster.pod_file(gpus=gpus)))
    return (*words, "--num_nodes", str(pods), "--num_gpus", str(ranks))


def launch(
    cluster: Cluster, script: Path, *words: str, pods: int = 3, ranks: int = 2, gpus: int = 0
) -> subprocess.Popen[str]:
    own = flags(cluster, pods, ranks, gpus)
    return launching.launch(own, script, *words, variables=cluster.variables)


_WRITE_ADDRESS = "os.write(1, (os.environ['MASTER_ADDR'] + '\\n').encode())"
"""At once, as the lines of two ranks that print run into each other."""


def test_ranks_of_all_pods_meet_at_the_first_ones_name(cluster: Cluster, script: Path) -> None:
    script.write_text(MEET.replace("dist.barrier()", _WRITE_ADDRESS))
    with launch(cluster, script) as process:
        printed, said = process.communicate(timeout=180)
    lines = printed.splitlines()
    hosts = {line.split()[3] for line in lines if line.startswith("rank")}
    addresses = {line for line in lines if not line.startswith("rank")}
    assert process.returncode == 0, said
    assert sorted(host[-2:] for host in hosts) == ["-0", "-1", "-2"]
    first = min(hosts)
    assert addresses == {f"{first}.{first.removesuffix('-0')}.default.svc"}
    assert [path.name for path in script.parent.iterdir()] == ["meet.py"]


def test_ranks_have_the_gpus_of_their_pod_and_the_code_of_one_is_the_launches(
    cluster: Cluster, script: Path
) -> None:
    script.write_text(
        "import os, subprocess, sys\n"
        "rows = subprocess.check_output('nvidia-smi').decode().count('Fake')\n"
        "print('gpus', rows, os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)\n"
        "sys.exit(7 if os.environ['RANK'] == '1' else 0)\n"
    )
    with launch(cluster, script, pods=1, ranks=2, gpus=4) as process:
        printed, said = process.communicate(timeout=180)
    assert (process.returncode, printed.splitlines()) == (7, ["gpus 2 None"] * 2), said


def test_nothing_outlives_a_killed_launcher_and_its_job_is_deleted_in_time(
    cluster: Cluster, script: Path
) -> None:
    with launch(cluster, script, "forever", pods=2, ranks=1) as process:
        assert process.stdout
        assert "of 2" in process.stdout.readline()
        process.kill()
        process.wait(30)
    assert wait_until(lambda: not cluster.kubelet.living, 20)
    assert wait_until(lambda: "jobs" in str(cluster.objects()), 1)
    cluster.delete("jobs")


def test_a_launch_that_waits_for_busy_nodes_can_be_ended(cluster: Cluster, script: Path) -> None:
    with launch(cluster, script, "forever", ranks=1, gpus=4) as first:
        assert first.stdout
        assert "of 3" in first.stdout.readline()
        with launch(cluster, script, ranks=1, gpus=4) as second:
            assert wait_until(lambda: len(cluster.objects()) > 9, 60)
            time.sleep(2)
            assert second.poll() is None
            second.send_signal(signal.SIGINT)
            second.communicate(timeout=30)
        assert second.returncode == 130
        first.terminate()
        first.communicate(timeout=30)


def test_a_plain_launch_whose_job_is_deleted_ends_and_says_so(
    cluster: Cluster, script: Path
) -> None:
    with launch(cluster, script, "forever", pods=2, ranks=1) as process:
        assert process.stdout
        assert "of 2" in process.stdout.readline()
        cluster.delete("jobs")
        _, said = process.communicate(timeout=60)
    assert process.returncode == 137
    assert "was deleted from outside; the launch was ended." in said


RANK = "import os, time; time.sleep(100)"


def submit(
    cluster: Cluster, folder: Path, *, pods: int = 1, gpus: int = 0, image: str = "x"
) -> Callable[[], FailedTrial]:
    """Start a trial that does not end by itself; what gives its outcome."""
    arguments = (str(cluster.pod_file(gpus=gpus, image=image)),)
    backend = make_engine(RemoteAccess(engine="kubernetes", arguments=arguments))
    task = RankTask(mode=Mode.MEASURE, folder=str(folder / "trial"), attempt="now")
    ranks = tuple(
        RankPlan(
            rank=number,
            local_rank=0,
            node=number,
            argv=(sys.executable, "-I", "-S", "-c", RANK),
            environment=((TASK_VARIABLE, task.to_variable()),),
        )
        for number in range(pods)
    )
    hosts = tuple(f"node-{number}" for number in range(pods))
    plan = LaunchPlan(
        name="slow",
        ranks=ranks,
        hosts=hosts,
        working_directory=str(folder),
        folder=task.folder,
        task=task,
        alone=bool(gpus),  # with all GPUs of its pod
    )
    job = backend.submit(plan)

    def end() -> FailedTrial:
        until_s = time.monotonic() + 90
        while time.monotonic() < until_s:
            if found := backend.poll([job])[0]:
                assert isinstance(found.outcome, FailedTrial)
                return found.outcome
            backend.wait([job], 5)
        raise AssertionError("it does not end")

    return end


@pytest.fixture
def in_this_process(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", cluster.variables["KUBECONFIG"])
    monkeypatch.setattr(kubernetes, "_FITS_WITHIN_S", 3.0)


def running_pod(cluster: Cluster, count: int = 1) -> dict[str, dict[str, str]]:
    assert wait_until(lambda: len(cluster.pods()) == count, 60)
    time.sleep(3)  # its rank has begun
    pods = cluster.pods()
    return min(pods, key=lambda pod: str(pod["metadata"]["name"]))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("how", "kind", "detail"),
    [
        ("memory", FailureKind.OUT_OF_MEMORY, "exceeded its memory limit (OOMKilled)"),
        ("pods", FailureKind.PREEMPTED, "was deleted from outside"),
        ("drain", FailureKind.PREEMPTED, "was taken away (EvictionByEvictionAPI"),
        ("jobs", FailureKind.PREEMPTED, "was deleted from outside"),
        ("node", FailureKind.NODE_LOST, "has not answered for 10 s"),
    ],
)
def test_what_became_of_a_pod_is_the_trials_failure(
    cluster: Cluster, tmp_path: Path, how: str, kind: FailureKind, detail: str
) -> None:
    end = submit(cluster, tmp_path, pods=2)
    pod = running_pod(cluster, 2)
    if how == "memory":
        cluster.kubelet.kill_out_of_memory(pod["metadata"]["name"])
    elif how == "drain":
        cluster.evict(pod)
    elif how == "node":
        cluster.kubelet.kill_node(pod["spec"]["nodeName"])
    else:
        cluster.delete(how)
    failure = end().failure
    if how == "node":
        assert f"host {pod['spec']['nodeName']} " in failure.detail
        cluster.kubelet.revive(pod["spec"]["nodeName"])
    assert (failure.kind, detail in failure.detail) == (kind, True), failure


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("gpus", "image", "reason"),
    [(9, "x", "Insufficient nvidia.com/gpu"), (0, "missing", "ImagePullBackOff")],
)
def test_a_job_that_fits_nowhere_or_has_no_image_is_one_sentence(
    cluster: Cluster, tmp_path: Path, gpus: int, image: str, reason: str
) -> None:
    failure = submit(cluster, tmp_path, gpus=gpus, image=image)().failure
    assert (failure.kind, reason in failure.detail) == (FailureKind.BAD_CONFIG, True), failure
    assert len(failure.detail.splitlines()) == 1


def test_a_folder_that_pods_do_not_see_is_named(cluster: Cluster, script: Path) -> None:
    """The agent says so in its pod's log, as it has no other place."""
    pod = cluster.pod_file()
    hidden = script.parent / "pod.yaml"
    hidden.write_text(pod.read_text().replace("train:1", "elsewhere:1"))
    words = ("--launcher", "kubernetes", "--launcher_args", "pod.yaml", "--num_gpus", "1")
    done = subprocess.run(
        (*COMMAND, *words, str(script)),
        env=cluster.variables,
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "does not see" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_killed_controllers_job_is_deleted_and_its_trials_are_measured_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    own = (*flags(cluster, 1, 1), "--max-parallel-trials", "2")
    place = Place(folder=tmp_path, flags=own, variables=cluster.variables)
    process = place.start("killed", 6.0, trials=4)
    assert wait_until(lambda: len(cluster.pods()) == 2, 120)
    process.kill()
    process.communicate()
    found = place.run("killed", 3.0, trials=4)
    assert found["failed"] == []
    journal = (tmp_path / "killed" / "journal.jsonl").read_text().splitlines()
    names = [line["name"] for line in map(json.loads, journal) if "name" in line]
    assert sorted(names) == [f"z0_gas1_tmbspg{n}" for n in range(4)]


def test_trials_of_a_deleted_job_run_again(cluster: Cluster, tmp_path: Path) -> None:
    place = Place(folder=tmp_path, flags=flags(cluster, 1, 1), variables=cluster.variables)
    process = place.start("deleted", 40.0, trials=1)  # longer than a pod is given to end
    assert wait_until(lambda: "autoconf-z0" in str(cluster.pods()), 120)
    time.sleep(3)
    cluster.delete("jobs")
    out, error = process.communicate(timeout=300)
    assert (process.returncode, json.loads(out)["failed"]) == (0, []), error
    assert "is launched again: " in error
