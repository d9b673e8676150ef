"""Agents in the pods of a Job of Kubernetes, by its official client (extra ``kubernetes``)."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError, visible

from ..request import KUBERNETES, RemoteAccess
from .folder_line import AGENT_COMPLAINT, FolderLine, Heartbeat, last_line, make_line_folder
from .line import agent_command
from .pod_manifests import (
    Manifest,
    PodsOrder,
    PodsSize,
    make_manifests,
    owned_by,
    read_pod_template,
)
from .pod_states import (
    Answer,
    has_begun,
    has_job_failed,
    has_pod_failed,
    is_deleted,
    is_scaling_up,
    newest_pods,
    node_of,
    why_ended,
    why_stuck,
    why_unscheduled,
    why_without_pods,
)
from .reach import without_shell

JOB_HANDLE = re.compile(r"[a-z0-9][a-z0-9.\-]*/[a-z0-9][a-z0-9.\-]*")
"""Namespace and name of a Job."""
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANSWERS_WITHIN_S = 20.0
_FIRST_LOOK_S, _LAST_LOOK_S = 0.5, 10.0
_START_S = 60.0
"""How long an agent may take until it is heard, once its pod has begun."""
_FITS_WITHIN_S = 60.0
"""How long a pod may wait for what waiting does not bring: a node may join meanwhile."""
_GONE = 404
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


class KubernetesApi:
    """The cluster of this pod, else of ``KUBECONFIG`` or ``~/.kube/config``.

    Raises:
        ConfigError: the client is not installed, or no configuration can be read.
    """

    def __init__(self) -> None:
        self._client, configs = _import_client()
        configuration = self._client.Configuration()
        try:
            self.namespace = _load(configs, configuration)
        except (configs.ConfigException, OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"No cluster of Kubernetes is configured ({' '.join(str(error).split())}); set "
                "KUBECONFIG, or run inside a pod with a service account."
            ) from None
        configuration.retries = 1
        if not configuration.verify_ssl:  # as the user's configuration says; else each call warns
            warnings = importlib.import_module("urllib3.exceptions").InsecureRequestWarning
            importlib.import_module("urllib3").disable_warnings(warnings)
        self.server = str(configuration.host)
        api = self._client.ApiClient(configuration)
        self._core, self._batch = self._client.CoreV1Api(api), self._client.BatchV1Api(api)

    def create(self, manifest: Manifest) -> Answer:
        """Make an object; it, as the cluster has it.

        Raises:
            ConfigError: the cluster refuses it.
            HardwareError: the cluster does not answer.
        """
        makers: dict[str, Callable[..., Any]] = {
            "Job": self._batch.create_namespaced_job,
            "Service": self._core.create_namespaced_service,
            "Secret": self._core.create_namespaced_secret,
        }
        kind, namespace = manifest["kind"], manifest["metadata"]["namespace"]
        try:
            answer: Answer = self._ask(
                makers[kind], namespace, manifest, field_validation="Strict"
            )
        except ValueError as error:  # of the client's own check
            raise ConfigError(f"The Pod's manifest is not valid: {_field_text(error)}.") from None
        except self._client.ApiException as error:
            raise ConfigError(
                f"Kubernetes refuses the {kind} in namespace {namespace}: {_status_text(error)}."
            ) from None
        except _connection_errors() as error:
            raise HardwareError(
                f"Kubernetes does not answer at {self.server} ({_reason_text(error)}); check "
                "KUBECONFIG."
            ) from None
        return answer

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a Job with all that it owns; nothing happens where it is gone."""
        options = {"propagation_policy": "Background"}
        self._try(self._batch.delete_namespaced_job, name, namespace, **options)

    def find_job(self, namespace: str, name: str) -> Answer | None:
        """A Job; None where it is gone, empty where the cluster does not say."""
        try:
            return self._ask(self._batch.read_namespaced_job, name, namespace)
        except self._client.ApiException as error:
            return None if error.status == _GONE else {}
        except _connection_errors():
            return {}

    def pods(self, namespace: str, name: str) -> list[Answer] | None:
        """The pods of a Job; None where the cluster does not say."""
        label = f"batch.kubernetes.io/job-name={name}"
        answer = self._try(self._core.list_namespaced_pod, namespace, label_selector=label)
        return None if answer is None else list(answer["items"])

    def events(self, namespace: str, about: Answer) -> list[Answer]:
        """What happened to an object, oldest first."""
        field = f"involvedObject.uid={about['metadata']['uid']}"
        answer = self._try(self._core.list_namespaced_event, namespace, field_selector=field)
        return list((answer or {}).get("items", ()))

    def log(self, namespace: str, pod: str) -> str:
        """The last lines that a pod printed."""
        try:
            answer = self._core.read_namespaced_pod_log(
                pod, namespace, tail_lines=20, **_RAW, _request_timeout=_ANSWERS_WITHIN_S
            )
        except (self._client.ApiException, *_connection_errors()):
            return ""
        return bytes(answer.data).decode(errors="replace")

    def _try(self, call: Callable[..., Any], *words: Any, **options: Any) -> Answer | None:
        """An answer; None where the cluster has none, for now or at all."""
        try:
            return self._ask(call, *words, **options)
        except (self._client.ApiException, *_connection_errors()):
            return None

    def _ask(self, call: Callable[..., Any], *words: Any, **options: Any) -> Answer:
        answer = call(*words, **options, **_RAW, _request_timeout=_ANSWERS_WITHIN_S)
        found: Answer = json.loads(answer.data)
        return found


_RAW = {"_preload_content": False}
"""Answers as JSON: a newer cluster says what this client's models do not know."""


def _import_client() -> tuple[Any, Any]:
    try:
        found = [importlib.import_module(f"kubernetes.{name}") for name in ("client", "config")]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != KUBERNETES:
            raise
        raise ConfigError(
            "--launcher kubernetes needs the package kubernetes, which is not installed; install "
            "it (pip install 'autoconf-launch[kubernetes]')."
        ) from None
    return found[0], found[1]


def _connection_errors() -> tuple[type[Exception], ...]:
    errors = importlib.import_module("urllib3.exceptions")
    return (errors.HTTPError, OSError)


def _load(configs: Any, configuration: Any) -> str:
    """Fill in the configuration; the namespace that it names."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        configs.load_incluster_config(client_configuration=configuration)
        return (_ACCOUNT / "namespace").read_text().strip() or "default"
    configs.load_kube_config(
        config_file=os.environ.get("KUBECONFIG") or None, client_configuration=configuration
    )
    _, context = configs.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
    return str(context["context"].get("namespace") or "default")


def _field_text(error: Any) -> str:
    """Which field of an object the client's models refuse, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"


def _status_text(error: Any) -> str:
    """The sentence of a Status that the API answers with."""
    try:
        said = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        said = f"{error.status} {error.reason}"
    return visible(" ".join(str(said).split())).rstrip(".")


def _reason_text(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", None) or error).split()).rpartition(": ")[2]


def open_pods(
    hosts: Sequence[str],
    access: RemoteAccess,
    *,
    folder: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> tuple[FolderLine, ...]:
    """Start an agent in as many pods as there are hosts, each as the user's manifest has it.

    Raises:
        ConfigError: the client or the manifest is missing, or the cluster refuses it.
        HardwareError: the cluster does not answer.
    """
    template, api = read_pod_template(access.arguments), KubernetesApi()
    own = make_line_folder(folder or str(Path.cwd()))
    order = PodsOrder(title="hosts", command=pod_command(access, own), secrets=secrets or {})
    starter = PodsStarter(api, own, len(hosts))
    lines = starter.lines(hosts)
    starter.submit(make_manifests(template, PodsSize(pods=len(hosts)), order))
    return lines


def pod_command(access: RemoteAccess, folder: Path) -> tuple[str, ...]:
    """Argv of the agent in a pod, whose line is files of this folder."""
    return without_shell(access, (*agent_command(), str(folder), _INDEX_VARIABLE))


class PodsStarter:
    """The Job that starts the agents of all hosts of a launch."""

    def __init__(self, api: KubernetesApi, folder: Path, pods: int) -> None:
        self._api, self._folder = api, folder
        self._open_lines = pods
        self._lines: tuple[FolderLine, ...] = ()
        self._pods: dict[int, Answer] = {}
        self._namespace = self._name = ""
        self._job: Answer = {}
        self._over: dict[int, Failure] = {}
        self._created_s = time.monotonic()
        self._begun_s: dict[int, float] = {}
        self._stuck_s: dict[int, float] = {}
        self._look_s, self._pause_s = 0.0, _FIRST_LOOK_S
        self._heart = Heartbeat(folder)

    @property
    def handle(self) -> str:
        """By which a later controller finds the Job."""
        return f"{self._namespace}/{self._name}"

    def lines(self, hosts: Sequence[str]) -> tuple[FolderLine, ...]:
        """The lines to the agents; when the last one is closed, the Job is deleted."""
        self._lines = tuple(
            FolderLine(host, self._folder, k, _PodHost(self, k)) for k, host in enumerate(hosts)
        )
        for line in self._lines:
            line.awaits_all = True
        return self._lines

    def submit(self, manifests: Sequence[Manifest]) -> None:
        """Make the Job, then what it owns.

        Raises:
            ConfigError: the cluster refuses one of them; nothing is left.
            HardwareError: the cluster does not answer.
        """
        named = [
            {**m, "metadata": {"namespace": self._api.namespace, **m["metadata"]}}
            for m in manifests
        ]
        about = named[0]["metadata"]
        self._namespace, self._name = about["namespace"], about["name"]
        try:
            self._job = self._api.create(named[0])
            for manifest in named[1:]:
                self._api.create(owned_by(manifest, self._job))
        except (ConfigError, HardwareError):
            self._end()
            raise

    def why_over(self, number: int) -> Failure | None:
        """Why no agent of this host will answer any more; None while it lives, or waits."""
        self._look()
        return self._over.get(number)

    def is_queued(self, number: int) -> bool:
        """Whether the host's pod has not begun, as of the last look."""
        return bool(self._name) and number not in self._begun_s and number not in self._over

    def why_queued(self, number: int) -> str:
        """The host's pod, and what the scheduler says of it, as of the last look."""
        if (pod := self._pods.get(number)) is None:
            return f"Job {self._name} has no pods yet"
        why = why_unscheduled(pod)
        return f"pod {pod['metadata']['name']} is pending{f' ({why})' if why else ''}"

    def patience_s(self, number: int) -> float:
        """As long as the pod waits, and a while after it has begun."""
        begun_s = self._begun_s.get(number)
        return math.inf if begun_s is None else begun_s - self._created_s + _START_S

    def cancel(self) -> None:
        """Delete a Job whose agents were never heard."""
        ended = Failure(kind=FailureKind.PREEMPTED, detail="was ended before its pods had begun")
        self._over = dict.fromkeys(range(len(self._lines)), ended) | self._over
        self._api.delete_job(self._namespace, self._name)

    def close(self) -> None:
        """After the last host: delete the Job with all that it owns, and remove its files."""
        self._open_lines -= 1
        if self._open_lines == 0:
            self._end()

    def _end(self) -> None:
        self._heart.stop()
        if self._job:
            self._api.delete_job(self._namespace, self._name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self) -> None:
        """Ask what became of the pods, less and less often while nothing changes."""
        if not self._job or time.monotonic() < self._look_s:
            return
        pods = self._api.pods(self._namespace, self._name)
        before = self._pods
        if pods is not None:
            self._pods = newest_pods(pods)
            self._note_pods()
        is_new = before != self._pods
        self._pause_s = _FIRST_LOOK_S if is_new else min(1.5 * self._pause_s, _LAST_LOOK_S)
        self._look_s = time.monotonic() + self._pause_s

    def _note_pods(self) -> None:
        """Why hosts are lost; the cluster deletes the other pods of a Job once one fails."""
        has_failed = any(map(has_pod_failed, self._pods.values()))
        for number, line in enumerate(self._lines):
            pod = self._pods.get(number)
            if pod is not None:
                line.host = node_of(pod) or line.host
                if has_begun(pod):
                    self._begun_s.setdefault(number, time.monotonic())
            if number in self._over or (has_failed and is_deleted(pod)):
                continue
            why = self._why_lost(number, pod) if pod else self._why_missing(number)
            if why:
                self._over[number] = why

    def _why_lost(self, number: int, pod: Answer) -> Failure | None:
        if ended := why_ended(pod):
            return self._with_log(ended, pod)
        stuck = self._after_a_while(number, why_stuck(pod))
        if stuck and is_scaling_up(self._api.events(self._namespace, pod)):
            return None
        return stuck

    def _after_a_while(self, number: int, why: str | None) -> Failure | None:
        """Why a pod does not begin, once that has lasted."""
        if why is None:
            self._stuck_s.pop(number, None)
            return None
        since_s = self._stuck_s.setdefault(number, time.monotonic())
        if time.monotonic() < since_s + _FITS_WITHIN_S:
            return None
        return Failure(kind=FailureKind.BAD_CONFIG, detail=why)

    def _why_missing(self, number: int) -> Failure | None:
        """Why a host has no pod: none was made so far, or it was deleted, maybe with its Job."""
        job = self._api.find_job(self._namespace, self._name)
        if job is None:
            detail = f"Job {self._name} in namespace {self._namespace} was deleted from outside"
            return Failure(kind=FailureKind.PREEMPTED, detail=detail)
        if number in self._begun_s or has_job_failed(job):
            detail = f"a pod of Job {self._name} was deleted from outside"
            return Failure(kind=FailureKind.PREEMPTED, detail=detail)
        events = self._api.events(self._namespace, self._job)
        return self._after_a_while(number, why_without_pods(events))

    def _with_log(self, ended: Failure, pod: Answer) -> Failure:
        """What an agent that could not begin said in its pod's log."""
        if ended.kind is not FailureKind.CRASHED:
            return ended
        said = self._api.log(self._namespace, pod["metadata"]["name"])
        marked = [
            line.partition(AGENT_COMPLAINT)[2]
            for line in said.splitlines()
            if AGENT_COMPLAINT in line
        ]
        if marked:
            return Failure(kind=FailureKind.BAD_CONFIG, detail=f"Host {visible(marked[0])}")
        words = last_line(said) or "it printed nothing; see that all pods mount this folder"
        return Failure(kind=ended.kind, detail=f"{ended.detail} ({words})")


class _PodHost:
    """The starter of one host."""

    pid = 0

    def __init__(self, starter: PodsStarter, number: int) -> None:
        self._starter, self._number = starter, number

    @property
    def is_queued(self) -> bool:
        return self._starter.is_queued(self._number)

    def why_queued(self) -> str:
        return self._starter.why_queued(self._number)

    def why_over(self) -> Failure | None:
        return self._starter.why_over(self._number)

    def patience_s(self) -> float:
        return self._starter.patience_s(self._number)

    def close(self) -> None:
        self._starter.close()
