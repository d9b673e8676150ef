"""Launches and trials as Jobs of Kubernetes; with every engine: test_schedulers.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import TASK_VARIABLE, FailureKind, Mode, RankTask
from autoconf_launch.launcher.engines import kubernetes, make_engine
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import RemoteAccess

from . import launching
from .clusters import SCHEDULERS, Scheduler
from .kubernetes_cluster import Cluster
from .launching import MEET, await_ranks, wait_until
from .test_many_trials import Place, names_in_journal

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.parametrize("scheduler", SCHEDULERS[2:], indirect=True, scope="module"),
]


@pytest.fixture
def cluster(scheduler: Scheduler) -> Iterator[Cluster]:
    """Three nodes of four GPUs, a real API server or a stand-in."""
    running: Cluster = scheduler.running
    yield running
    assert running.is_empty_within(30), (running.objects(), running.kubelet.living)


def flags(cluster: Cluster, pods: int, ranks: int, gpus: int = 0) -> tuple[str, ...]:
    return (*cluster.flags(gpus=gpus), "--num_nodes", str(pods), "--num_gpus", str(ranks))


def launch(
    cluster: Cluster,
    folder: Path,
    *words: str,
    text: str = MEET,
    pods: int = 2,
    ranks: int = 1,
    gpus: int = 0,
) -> subprocess.Popen[str]:
    script = launching.make_script(folder)
    script.write_text(text)
    own = flags(cluster, pods, ranks, gpus)
    return launching.launch(own, script, *words, variables=cluster.variables)


_WRITE_ADDRESS = "os.write(1, (os.environ['MASTER_ADDR'] + '\\n').encode())"
"""At once, as the lines of two ranks that print run into each other."""
_GPUS = """
import os, subprocess, sys
rows = subprocess.check_output('nvidia-smi').decode().count('Fake')
print('gpus', rows, os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)
sys.exit(7 if os.environ['RANK'] == '1' else 0)
"""


def test_ranks_of_all_pods_meet_at_the_first_ones_name(cluster: Cluster, tmp_path: Path) -> None:
    text = MEET.replace("dist.barrier()", _WRITE_ADDRESS)
    with launch(cluster, tmp_path, text=text, pods=3, ranks=2) as process:
        printed, said = process.communicate(timeout=180)
    lines = printed.splitlines()
    hosts = {line.split()[3] for line in lines if line.startswith("rank")}
    assert process.returncode == 0, said
    assert sorted(host[-2:] for host in hosts) == ["-0", "-1", "-2"]
    address = f"{min(hosts)}.{min(hosts).removesuffix('-0')}.default.svc"
    assert {line for line in lines if not line.startswith("rank")} == {address}


def test_ranks_have_the_gpus_of_their_pod_and_the_code_of_one_is_the_launches(
    cluster: Cluster, tmp_path: Path
) -> None:
    with launch(cluster, tmp_path, text=_GPUS, pods=1, ranks=2, gpus=4) as process:
        printed, said = process.communicate(timeout=180)
    assert (process.returncode, printed.splitlines()) == (7, ["gpus 2 None"] * 2), said


def test_a_plain_launch_whose_job_is_deleted_ends_and_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    with launch(cluster, tmp_path, "forever") as process:
        await_ranks(process, 2)
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
    plan = LaunchPlan(
        name="slow",
        ranks=ranks,
        hosts=tuple(f"node-{number}" for number in range(pods)),
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
    assert wait_until(lambda: len(cluster.pods()) == 2, 60)
    time.sleep(3)  # its ranks have begun
    pod = min(cluster.pods(), key=lambda pod: str(pod["metadata"]["name"]))
    node = pod["spec"]["nodeName"]
    if how == "memory":
        cluster.kubelet.kill_out_of_memory(pod["metadata"]["name"])
    elif how == "drain":
        cluster.evict(pod)
    elif how != "node":
        cluster.delete(how)
    with cluster.kubelet.without_node(node) if how == "node" else nullcontext():
        failure = end().failure
    assert how != "node" or f"host {node} " in failure.detail
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


def test_a_killed_controllers_job_is_deleted_and_its_trials_are_measured_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    own = (*flags(cluster, 1, 1), "--max-parallel-trials", "2")
    place = Place(folder=tmp_path, flags=own, variables=cluster.variables)
    process = place.start("killed", 6.0, trials=4)
    assert wait_until(lambda: len(cluster.pods()) == 2, 120)
    process.kill()
    process.communicate()
    assert place.run("killed", 3.0, trials=4)["failed"] == []
    assert names_in_journal(tmp_path / "killed") == [f"z0_gas1_tmbspg{n}" for n in range(4)]


def test_trials_of_a_deleted_job_run_again(cluster: Cluster, tmp_path: Path) -> None:
    place = Place(folder=tmp_path, flags=flags(cluster, 1, 1), variables=cluster.variables)
    process = place.start("deleted", 40.0, trials=1)  # longer than a pod is given to end
    assert wait_until(lambda: "autoconf-z0" in str(cluster.pods()), 120)
    time.sleep(3)
    cluster.delete("jobs")
    out, error = process.communicate(timeout=300)
    assert (process.returncode, json.loads(out)["failed"]) == (0, []), error
    assert "is launched again: " in error
