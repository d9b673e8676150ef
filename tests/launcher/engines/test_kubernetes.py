import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError
from autoconf_launch.launcher import cli
from autoconf_launch.launcher.engines import FolderLine, kubernetes, make_engine
from autoconf_launch.launcher.engines.pods import KubernetesApi
from autoconf_launch.launcher.engines.pods import api as api_module
from autoconf_launch.launcher.hosts import pod_text
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.request import RemoteAccess

from ...cluster.kubernetes_api import Key, StandIn
from ...cluster.kubernetes_cluster import HAS_CLIENT, write_config
from ...cluster.launching import wait_until

needs_client = pytest.mark.skipif(not HAS_CLIENT, reason="kubernetes is not installed")
POD = "kind: Pod\nspec: {containers: [{image: x, resources: {limits: {nvidia.com/gpu: 2}}}]}\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()
    stand_in.start()
    monkeypatch.setenv("KUBECONFIG", str(write_config(tmp_path, stand_in.url)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kubernetes, "_FITS_WITHIN_S", 0.5)
    yield stand_in
    stand_in.stop()


def add_node(server: StandIn, gpus: int) -> None:
    about = {"name": "n0", "uid": "1"}
    room = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
    server.objects[Key("nodes", "", "n0")] = {"metadata": about, "status": room}


def open_lines(text: str = POD, hosts: int = 2) -> tuple[FolderLine, ...]:
    Path("pod.yaml").write_text(text)
    access = RemoteAccess(engine="kubernetes", arguments=("pod.yaml",))
    names = [f"node-{number}" for number in range(hosts)]
    return kubernetes.KubernetesEngine(access).open_lines(
        names, kubernetes.LinesOrder(secrets={"HF_TOKEN": "hf_abc"})
    )


def loss_of(line: FolderLine) -> tuple[FailureKind, str]:
    assert wait_until(lambda: line.read() == [] and line.loss is not None, 10)
    assert line.loss
    return line.loss.kind, line.loss.detail


def test_without_the_client_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="kubernetes")

    monkeypatch.setattr(importlib, "import_module", find)
    with pytest.raises(ConfigError, match=r"pip install 'autoconf-launch\[kubernetes\]'"):
        KubernetesApi()


@needs_client
def test_a_launch_waits_for_nodes_and_leaves_nothing(server: StandIn) -> None:
    add_node(server, 2)
    lines = open_lines()
    assert [one["kind"] for one in server.made] == ["Job", "Service", "Secret"]
    assert "hf_abc" not in json.dumps(server.made)
    assert wait_until(lambda: lines[0].loss is None and lines[0].host == "n0", 10)
    time.sleep(0.6)  # the second one waits until the first has gone
    assert (lines[1].is_queued, lines[1].loss, lines[1].due_s) == (True, None, float("inf"))
    for line in lines:
        line.close()
    for pod in server.of_kind("pods"):
        server.answer("DELETE", _path(pod) + "?gracePeriodSeconds=0", None)
    assert wait_until(lambda: {key.kind for key in server.objects} == {"nodes"}, 10)
    assert not list(Path().glob(".agents-*"))


def _path(pod: dict[str, dict[str, str]]) -> str:
    return f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"


@needs_client
def test_a_pod_that_no_node_can_take_is_one_sentence_after_a_while(server: StandIn) -> None:
    add_node(server, 1)
    line = open_lines(hosts=1)[0]
    kind, said = loss_of(line)
    line.close()
    assert kind is FailureKind.BAD_CONFIG
    assert said.startswith("No node can take pod autoconf-hosts-")
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu" in said
    assert said.endswith("ask for less, or fix the Pod's manifest")


@needs_client
def test_pods_that_a_rule_forbids_are_named_with_the_rule(server: StandIn) -> None:
    server.makes_no_pods = True
    line = open_lines(hosts=1)[0]
    kind, said = loss_of(line)
    line.close()
    assert (kind, "violates PodSecurity" in said) == (FailureKind.BAD_CONFIG, True)


@needs_client
def test_a_job_that_is_deleted_from_outside_is_named(server: StandIn) -> None:
    add_node(server, 2)
    line = open_lines(hosts=1)[0]
    job = server.of_kind("jobs")[0]["metadata"]["name"]
    server.answer("DELETE", f"/apis/batch/v1/namespaces/default/jobs/{job}", None)
    kind, said = loss_of(line)
    line.close()
    assert kind is FailureKind.PREEMPTED
    assert "was deleted from outside" in said


@needs_client
def test_what_the_cluster_refuses_is_one_sentence_and_leaves_nothing(server: StandIn) -> None:
    with pytest.raises(ConfigError, match=r'refuses the Job in namespace nowhere: .*"nowhere"'):
        open_lines(f"metadata: {{namespace: nowhere}}\n{POD}")
    assert not server.objects
    assert not list(Path().glob(".agents-*"))


@needs_client
def test_a_field_that_a_pod_does_not_have_is_named(server: StandIn) -> None:
    with pytest.raises(
        ConfigError, match=r"not valid: spec.template.spec.nodeSelektor: Extra inputs"
    ):
        open_lines(POD.replace("{containers", "{nodeSelektor: {a: b}, containers"), hosts=1)
    assert not server.objects


@needs_client
def test_a_cluster_that_does_not_answer_is_named(server: StandIn) -> None:
    server.stop()
    with pytest.raises(HardwareError, match=rf"does not answer at {server.url} \(.*refused"):
        open_lines()


@needs_client
def test_without_a_configuration_it_is_said_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="set KUBECONFIG, or run inside a pod"):
        KubernetesApi()


@needs_client
def test_inside_a_pod_its_own_account_and_namespace_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = importlib.import_module("kubernetes.config.incluster_config")
    for name, text in (("token", "t0"), ("namespace", "lab"), ("ca.crt", "x")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(configs, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(configs, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(api_module, "_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    api = KubernetesApi()
    assert (api.namespace, api.server) == ("lab", "https://10.0.0.1:443")


POD_OF_8 = POD.replace(": 2", ": 8")
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
    Path("pod.yaml").write_text(POD_OF_8)
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
    Path("pod.yaml").write_text(POD_OF_8)
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
