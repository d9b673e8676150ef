"""The objects of Kubernetes that are one launch, from the user's manifest of a Pod.

Image, volumes and placement are the user's; command, number, names, GPUs, restarts and
deadlines are ours. Nothing here speaks to a cluster.
"""

from __future__ import annotations

import base64
import copy
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.core import ConfigError

from ...config_file import parse_yaml
from ...input_file import input_text

Manifest: TypeAlias = dict[str, Any]

OURS = {"app.kubernetes.io/managed-by": "autoconf-launch"}
"""Label of everything that we make."""
_GPU = re.compile(r"[a-z0-9.\-]+/(gpu|mig-[a-z0-9.]+)")
_COUNT = re.compile("[1-9][0-9]{0,3}")
_KEPT_S = 120
"""Seconds for which an ended Job is kept if its launcher was killed and cannot delete it."""
_SHARED_MEMORY = "/dev/shm"
_WHAT_IT_IS = (
    "a Pod as kubectl takes it, with the image, its GPUs as a limit, and a volume mounted where "
    "this folder is"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A user's manifest of a Pod.

    Attributes:
        namespace: None: the configuration's.
        metadata: labels and annotations, which its Job gets as well.
        spec: with exactly one container.
        gpu_resource: name of the GPUs that its container is limited to; "": it has none.
        gpus: number of these GPUs.
    """

    namespace: str | None
    metadata: Manifest
    spec: Manifest
    gpu_resource: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsOrder:
    """The number of pods, their program, and limits for them.

    Attributes:
        gpus: GPUs of each pod; None: as many as the user's Pod has.
        title: start of names in the cluster.
        command: argv of an agent.
        secrets: variables that are only in the Secret.
        deadline_s: seconds after which the cluster ends a pod that has begun; infinite: never.
        avoided_nodes: names of nodes that get no pod.
    """

    title: str
    command: tuple[str, ...]
    secrets: Mapping[str, str]
    pods: int
    gpus: int | None = None
    deadline_s: float = math.inf
    avoided_nodes: tuple[str, ...] = ()


def read_pod_template(arguments: Sequence[str]) -> PodTemplate:
    """The manifest in the file that ``--launcher_args`` names.

    Raises:
        ConfigError: it is not named, cannot be read, or is not a Pod for a launch.
    """
    if len(arguments) != 1:
        has = " ".join(arguments) or "nothing"
        raise ConfigError(
            f"--launcher kubernetes needs --launcher_args FILE, but it is {has}; write "
            f"{_WHAT_IT_IS}."
        )
    name = f"The Pod's manifest {arguments[0]}"
    try:
        document = parse_yaml(input_text(Path(arguments[0])), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(f"{name} cannot be read: {reason}.") from error
    if not isinstance(document, dict) or document.get("kind") != "Pod":
        raise ConfigError(f"{name} has no kind: Pod; write {_WHAT_IT_IS}.")
    return _template(document, name)


def _template(document: Manifest, name: str) -> PodTemplate:
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(metadata, dict) or not isinstance(containers, list):
        raise ConfigError(f"{name} has no spec with containers; write {_WHAT_IT_IS}.")
    if len(containers) != 1 or not isinstance(containers[0], dict):
        raise ConfigError(
            f"{name} has {len(containers)} containers, but must have one: others would keep the "
            "pod alive (make them initContainers with restartPolicy: Always)."
        )
    container = containers[0]
    for key in ("command", "args", "workingDir"):
        if key in container:
            raise ConfigError(f"{name} has {key}, which the launcher sets; omit it.")
    if not container.get("image"):
        raise ConfigError(f"{name} has a container without an image; add image: NAME.")
    resource, gpus = _gpus(container, name)
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return PodTemplate(
        namespace=metadata.get("namespace"),
        metadata=kept,
        spec=spec,
        gpu_resource=resource,
        gpus=gpus,
    )


def _gpus(container: Manifest, name: str) -> tuple[str, int]:
    resources = container.get("resources") or {}
    limits = (resources.get("limits") if isinstance(resources, dict) else None) or {}
    named = [key for key in limits if _GPU.fullmatch(str(key))]
    if not named:
        return "", 0
    count = str(limits[named[0]])
    if len(named) > 1 or not _COUNT.fullmatch(count):
        raise ConfigError(
            f"{name} limits {', '.join(named)} to {count}, but must have one kind of GPUs, "
            "at least 1."
        )
    return named[0], int(count)


def make_manifests(template: PodTemplate, order: PodsOrder) -> tuple[Manifest, ...]:
    """An Indexed Job; a headless Service if it has several pods; a Secret if there are secrets.

    The Job is the first one. All have one name, which no other launch has.

    Raises:
        ConfigError: more GPUs are requested than the user's Pod has.
    """
    if template.gpus < (order.gpus or 0) and template.gpus:
        raise ConfigError(
            f"--num_gpus is {order.gpus}, but the Pod's manifest limits {template.gpu_resource} "
            f"to {template.gpus}; ask for fewer, or change it."
        )
    slug = re.sub("[^a-z0-9]+", "-", order.title.lower())[:36].strip("-") or "launch"
    name = f"autoconf-{slug}-{uuid.uuid4().hex[:8]}"
    objects = [_job(name, template, order)]
    if order.pods > 1:
        objects.append(_service(name, template))
    if order.secrets:
        objects.append(_secret(name, template, order.secrets))
    return tuple(objects)


def owned_by(manifest: Manifest, job: Manifest) -> Manifest:
    """The object with the Job, as the cluster made it, as its owner: it is deleted with it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job"}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def without_values(manifest: Manifest) -> Manifest:
    """A Secret that names the variables its values are in; other objects as they are."""
    if manifest["kind"] != "Secret":
        return manifest
    named = {name: f"${{{name}}}" for name in manifest["data"]}
    return {k: v for k, v in manifest.items() if k != "data"} | {"stringData": named}


def host_name_of_first(name: str, namespace: str) -> str:
    """Name by which the other pods of a Job find its first pod."""
    return f"{name}-0.{name}.{namespace}.svc"


def _head(kind: str, version: str, name: str, template: PodTemplate) -> Manifest:
    metadata: Manifest = {"name": name}
    if template.namespace:
        metadata["namespace"] = template.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata | {"labels": dict(OURS)}}


def _job(name: str, template: PodTemplate, order: PodsOrder) -> Manifest:
    labels = {**template.metadata.get("labels", {}), **OURS}
    job = _head("Job", "batch/v1", name, template)
    job["metadata"] |= template.metadata | {"labels": labels}
    job["spec"] = {
        "completionMode": "Indexed",
        "completions": order.pods,
        "parallelism": order.pods,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",  # a second agent would write into the first one's files
        "ttlSecondsAfterFinished": _KEPT_S,
        "template": {
            "metadata": template.metadata | {"labels": labels},
            "spec": _pod_spec(name, template, order),
        },
    }
    return job


def _pod_spec(name: str, template: PodTemplate, order: PodsOrder) -> Manifest:
    spec = copy.deepcopy(template.spec)
    spec["restartPolicy"] = "Never"
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    if order.pods > 1:
        spec["subdomain"] = name
    if order.deadline_s < math.inf:
        spec["activeDeadlineSeconds"] = math.ceil(order.deadline_s)
    container = spec["containers"][0]
    container.setdefault("name", "ranks")
    container["command"] = [word.replace("$", "$$") for word in order.command]
    container["workingDir"] = "/"
    if order.secrets:
        own = {"secretRef": {"name": name}}
        container["envFrom"] = [*(container.get("envFrom") or ()), own]
    if resources := _resources(container, template, order):
        container["resources"] = resources
    _share_memory(spec, container)
    if order.avoided_nodes:
        _avoid(spec, order.avoided_nodes)
    return spec


def _avoid(spec: Manifest, nodes: Sequence[str]) -> None:
    """Add to each of the user's terms, any of which is enough, that it is none of these nodes."""
    choice = spec
    for key in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        choice[key] = choice.get(key) or {}
        choice = choice[key]
    rules = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    choice["nodeSelectorTerms"] = [
        {**term, "matchFields": [*term.get("matchFields", ()), *rules]}
        for term in choice.get("nodeSelectorTerms") or [{}]
    ]


def _resources(container: Manifest, template: PodTemplate, order: PodsOrder) -> Manifest:
    resources = {
        kind: {key: str(amount) for key, amount in amounts.items()}
        if isinstance(amounts, dict)
        else amounts
        for kind, amounts in (container.get("resources") or {}).items()
    }
    if template.gpus:
        resources["limits"][template.gpu_resource] = str(order.gpus or template.gpus)
        resources.get("requests", {}).pop(template.gpu_resource, None)
    return resources


def _share_memory(spec: Manifest, container: Manifest) -> None:
    """Add shared memory unless the user's Pod has some: pods get 64 MiB by default."""
    mounts = list(container.get("volumeMounts") or ())
    if any(mount.get("mountPath") == _SHARED_MEMORY for mount in mounts):
        return
    volume = {"name": "autoconf-shm", "emptyDir": {"medium": "Memory"}}
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    container["volumeMounts"] = [*mounts, {"name": volume["name"], "mountPath": _SHARED_MEMORY}]


def _service(name: str, template: PodTemplate) -> Manifest:
    """Headless: it only gives pods names, also before all are there."""
    service = _head("Service", "v1", name, template)
    service["spec"] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": name},
    }
    return service


def _secret(name: str, template: PodTemplate, secrets: Mapping[str, str]) -> Manifest:
    secret = _head("Secret", "v1", name, template)
    secret["data"] = {
        key: base64.b64encode(value.encode(errors="surrogateescape")).decode()
        for key, value in secrets.items()
    }
    return secret
