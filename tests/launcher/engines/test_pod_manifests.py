import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.engines.pods import (
    PodsOrder,
    PodTemplate,
    make_manifests,
    owned_by,
    read_pod_template,
    without_values,
)

POD = """
apiVersion: v1
kind: Pod
metadata: {namespace: lab, labels: {team: a}, annotations: {cost: "7"}}
spec:
  nodeSelector: {gpu: h100}
  containers:
    - image: train:1
      resources: {limits: {nvidia.com/gpu: 8, memory: 400Gi}, requests: {nvidia.com/gpu: 8}}
      volumeMounts: [{name: home, mountPath: /home}]
  volumes: [{name: home, persistentVolumeClaim: {claimName: home}}]
"""
SECRETS = {"HF_TOKEN": "hf_abcdefghijkl"}


def template(folder: Path, text: str = POD) -> PodTemplate:
    path = folder / "pod.yaml"
    path.write_text(text)
    return read_pod_template((str(path),))


def manifests(folder: Path, pods: int, gpus: int | None = None) -> list[dict[str, Any]]:
    order = PodsOrder(
        title="Train It.py",
        command=("python", "-c", "$(touch x) $HOME $$"),
        secrets=SECRETS,
        pods=pods,
        gpus=gpus,
        deadline_s=60.5,
    )
    return list(make_manifests(template(folder), order))


def test_a_launch_is_an_indexed_job_a_headless_service_and_a_secret(tmp_path: Path) -> None:
    job, service, secret = manifests(tmp_path, pods=2, gpus=4)
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    assert name.startswith("autoconf-train-it-py-")
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert (pod["subdomain"], pod["activeDeadlineSeconds"]) == (name, 61)
    assert (service["spec"]["clusterIP"], service["metadata"]["name"]) == ("None", name)
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    assert {one["metadata"]["namespace"] for one in (job, service, secret)} == {"lab"}
    assert job["metadata"]["labels"]["team"] == "a"
    assert spec["template"]["metadata"]["annotations"] == {"cost": "7"}


@pytest.mark.parametrize(("asked", "limit"), [(None, "8"), (4, "4")])
def test_the_users_pod_keeps_what_is_not_ours_and_is_limited_to_a_gpu_for_each_rank(
    tmp_path: Path, asked: int | None, limit: str
) -> None:
    pod = manifests(tmp_path, pods=1, gpus=asked)[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["image"], pod["nodeSelector"]) == ("train:1", {"gpu": "h100"})
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/home", "/dev/shm"]
    assert "subdomain" not in pod
    limits = {"nvidia.com/gpu": limit, "memory": "400Gi"}
    assert container["resources"] == {"limits": limits, "requests": {}}
    assert container["command"] == ["python", "-c", "$$(touch x) $$HOME $$$$"]
    with pytest.raises(ConfigError, match=r"--num_gpus is 9, but .* limits nvidia.com/gpu to 8"):
        manifests(tmp_path, pods=1, gpus=9)


AFFINITY = """
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {}]
"""


@pytest.mark.parametrize(("own", "terms"), [("", 1), (AFFINITY, 2)])
def test_a_node_that_was_lost_too_often_gets_no_pod(tmp_path: Path, own: str, terms: int) -> None:
    order = PodsOrder(title="x", command=("a",), secrets={}, pods=1, avoided_nodes=("n7", "n8"))
    job = make_manifests(template(tmp_path, POD + own), order)[0]
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    found = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(found) == terms
    for term in found:
        assert [rule["values"] for rule in term["matchFields"]] == [["n7"], ["n8"]]
        assert {rule["operator"] for rule in term["matchFields"]} == {"NotIn"}
    assert "matchExpressions" in found[0] or terms == 1


def test_secrets_stand_in_the_secret_alone_and_are_shown_nowhere(tmp_path: Path) -> None:
    made = manifests(tmp_path, pods=2)
    assert [json.dumps(one).count("hf_abc") for one in made] == [0, 0, 0]
    assert made[2]["data"] == {"HF_TOKEN": "aGZfYWJjZGVmZ2hpamts"}
    shown = json.dumps([without_values(one) for one in made])
    assert "aGZf" not in shown
    assert '"HF_TOKEN": "${HF_TOKEN}"' in shown


def test_what_belongs_to_a_job_is_deleted_with_it(tmp_path: Path) -> None:
    job, service, _ = manifests(tmp_path, pods=2)
    owned = owned_by(service, {"metadata": job["metadata"] | {"uid": "7"}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": "7"}
    assert owned["metadata"]["ownerReferences"] == [owner | {"name": job["metadata"]["name"]}]


def test_the_published_schemas_take_every_object(tmp_path: Path) -> None:
    models = pytest.importorskip("kubernetes.client")
    for one in manifests(tmp_path, pods=2, gpus=4):
        model = getattr(models, f"V1{one['kind']}")
        model.model_validate(owned_by(one, {"metadata": {"name": "x", "uid": "7"}}))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("kind: Pod", "kind: Job", "has no kind: Pod"),
        ("spec:", "spec: {}\nrest:", "has no spec with containers"),
        ("image: train:1", "name: x", "a container without an image"),
        ("- image", "- image: log\n    - image", "has 2 containers, but must have one"),
        ("image: train:1", "image: x\n      args: [x]", "has args, which the launcher sets"),
        ("nvidia.com/gpu: 8, m", "nvidia.com/gpu: many, m", "limits nvidia.com/gpu to many"),
        ("kind: Pod", "kind: [", "cannot be read"),
        ("kind: Pod", "kind: Pod\nkind: Pod", "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(
    tmp_path: Path, before: str, after: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        template(tmp_path, POD.replace(before, after))
    assert "pod.yaml" in str(caught.value)


@pytest.mark.parametrize("words", [(), ("a", "b"), ("nowhere.yaml",)])
def test_without_a_manifest_it_is_said_what_to_give(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"--launcher_args FILE|No such file"):
        read_pod_template(words)


def test_the_manifest_of_the_guide_can_be_used(tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "hosts.md"
    text = guide.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert template(tmp_path, text).gpus == 8
    assert yaml.safe_load(text)["kind"] == "Pod"
