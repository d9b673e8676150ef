"""The API of a cluster of Kubernetes, by its official client."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoconf_launch.core import ConfigError, HardwareError, visible

from .manifests import Manifest
from .states import Answer

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANSWERS_WITHIN_S = 20.0
_GONE = 404
_RAW = {"_preload_content": False}
"""Answers as JSON: a newer cluster sends fields that the client's models do not know."""


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
            said = " ".join(str(getattr(error, "reason", None) or error).split())
            raise HardwareError(
                f"Kubernetes does not answer at {self.server} ({said.rpartition(': ')[2]}); check "
                "KUBECONFIG."
            ) from None
        return answer

    def delete_job(self, namespace: str, name: str) -> None:
        """Delete a Job with all that it owns; no effect if it is gone."""
        options = {"propagation_policy": "Background"}
        self._try(self._batch.delete_namespaced_job, name, namespace, **options)

    def find_job(self, namespace: str, name: str) -> Answer | None:
        """The Job; None if it is gone, empty if the cluster does not answer."""
        try:
            return self._ask(self._batch.read_namespaced_job, name, namespace)
        except self._client.ApiException as error:
            return None if error.status == _GONE else {}
        except _connection_errors():
            return {}

    def pods(self, namespace: str, name: str) -> list[Answer] | None:
        """The pods of a Job; None if the cluster does not answer."""
        label = f"batch.kubernetes.io/job-name={name}"
        answer = self._try(self._core.list_namespaced_pod, namespace, label_selector=label)
        return None if answer is None else list(answer["items"])

    def events(self, namespace: str, about: Answer) -> list[Answer]:
        """Events of an object, oldest first."""
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
        try:
            return self._ask(call, *words, **options)
        except (self._client.ApiException, *_connection_errors()):
            return None

    def _ask(self, call: Callable[..., Any], *words: Any, **options: Any) -> Answer:
        answer = call(*words, **options, **_RAW, _request_timeout=_ANSWERS_WITHIN_S)
        found: Answer = json.loads(answer.data)
        return found


def _import_client() -> tuple[Any, Any]:
    try:
        found = [importlib.import_module(f"kubernetes.{name}") for name in ("client", "config")]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
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
    """The field of an object that the client's models refuse, and the reason."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"


def _status_text(error: Any) -> str:
    try:
        said = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        said = f"{error.status} {error.reason}"
    return visible(" ".join(str(said).split())).rstrip(".")
