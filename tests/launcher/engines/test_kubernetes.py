import json
import time
from pathlib import Path

import pytest
import yaml

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher import cli
from autoconf_launch.launcher.engines import make_engine
from autoconf_launch.launcher.hosts import pod_text
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import RemoteAccess

from ...cluster.kubernetes_api import StandIn
from ...cluster.kubernetes_cluster import HAS_CLIENT, write_config

POD = "kind: Pod\nspec: {containers: [{image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}\n"
HERE: dict[str, object] = {
    "address": "10.0.0.7",
    "launcher_address": None,
    "cores": 8,
    "memory_bytes": 1 << 30,
    "gpus": [],
    "versions": {},
}
"""An agent's description of its pod, but for its port and its clock."""


def test_a_dry_run_prints_what_would_be_made_and_asks_no_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijkl")
    Path("pod.yaml").write_text(POD)
    Path("train.py").write_text("")
    words = ["--launcher", "kubernetes", "--launcher_args", "pod.yaml", "--num_nodes", "2"]
    code = cli.main([*words, "--num_gpus", "4", "--dry-run", "train.py"])
    printed = capsys.readouterr().out
    job, service, secret = yaml.safe_load_all(printed)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (code, job["spec"]["completions"], service["kind"]) == (0, 2, "Service")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert secret["stringData"] == {"HF_TOKEN": "${HF_TOKEN}"}
    assert "hf_abc" not in printed
    assert "&id" not in printed
    assert {path.name for path in tmp_path.iterdir()} == {"pod.yaml", "train.py"}


def test_other_launchers_have_no_dry_run_of_a_plain_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    assert cli.main(["--dry-run", str(tmp_path / "train.py")]) == 2
    assert "is for a tune, but" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, None),
        ({"JOB_COMPLETION_INDEX": "3"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "This is a pod of Kubernetes"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"},
            "This is pod 3 of an Indexed Job",
        ),
    ],
)
def test_a_pod_is_found_by_its_variables(
    variables: dict[str, str], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = pod_text()
    assert (found is None) == (text is None)
    assert not text or (found or "").startswith(text)


@pytest.mark.skipif(not HAS_CLIENT, reason="kubernetes is not installed")
def test_orders_wait_until_all_pods_have_begun_and_name_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StandIn()
    server.start()
    monkeypatch.setenv("KUBECONFIG", str(write_config(tmp_path, server.url)))
    monkeypatch.chdir(tmp_path)
    Path("pod.yaml").write_text(POD)
    place = (("MASTER_ADDR", ""), ("MASTER_PORT", ""))
    ranks = tuple(
        RankPlan(rank=n, local_rank=0, node=n, argv=("true",), environment=place) for n in (0, 1)
    )
    plan = LaunchPlan(name="x", ranks=ranks, hosts=("a", "b"), working_directory=str(tmp_path))
    backend = make_engine(RemoteAccess(engine="kubernetes", arguments=("pod.yaml",)))
    job = backend.submit(plan)
    folder = next(tmp_path.glob(".agents-*"))
    for number in (0, 1):
        assert job.is_queued
        assert not (folder / "0.down").exists()
        line = json.dumps({"here": {**HERE, "port": 123 + number, "unix_s": time.time()}})
        (folder / f"{number}.up").write_text(f"{line}\n")
        assert backend.poll([job]) == (None,)
    order = json.loads((folder / "1.down").read_text().splitlines()[0])
    name = job.handle.removeprefix("default/")
    meets = {"MASTER_ADDR": f"{name}-0.{name}.default.svc", "MASTER_PORT": "123"}
    assert dict(order["ranks"][0]["environment"]) == meets
    backend.cancel(job, Failure(kind=FailureKind.STALLED, detail="x"))
    for number in (0, 1):
        report = {"report": {"codes": [0], "exit_unix_s": [0], "terminated_unix_s": None}}
        with (folder / f"{number}.up").open("a") as file:
            file.write(f"{json.dumps(report)}\n")
    assert backend.poll([job])[0]
    assert not server.of_kind("jobs")
    assert not list(tmp_path.glob(".agents-*"))
    server.stop()
