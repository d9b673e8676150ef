"""A stand-in for Kubernetes' API server, Job controller, scheduler and garbage collector.

On loopback, for tests where no real one is. It knows what launches use: objects by kind, Jobs
whose pods get nodes with enough GPUs, and the answers as the API's reference documents them. Each
Job, Service and Secret is checked by the client's models, which are generated from the published
OpenAPI document and refuse unknown fields.
"""

from __future__ import annotations

import copy
import importlib
import json
import random
import re
import string
import threading
import urllib.parse
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from .kubelet import GPU

Object = dict[str, Any]
_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>status|log|eviction))?"
)
_MODELS = {"jobs": "V1Job", "services": "V1Service", "secrets": "V1Secret"}
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = "batch.kubernetes.io/job-name"


class ApiError(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class Key(NamedTuple):
    kind: str
    namespace: str
    name: str


@dataclass(kw_only=True)
class StandIn:
    """The objects, and what controllers make of them."""

    objects: dict[Key, Object] = field(default_factory=dict)
    made: list[Object] = field(default_factory=list)
    """Every object that a client made, as it was sent."""
    namespaces: tuple[str, ...] = ("default", "lab")
    read_log: Callable[[str], str] = lambda pod: ""
    """Output of a pod, by its name."""
    makes_no_pods: bool = False
    """True if an admission rule forbids them."""
    url: str = ""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _server: ThreadingHTTPServer | None = None
    _stops: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or "null")
                try:
                    code, document = 200, stand_in.answer(self.command, self.path, body)
                except ApiError as error:
                    code, document = error.code, error.document
                text = document if isinstance(document, str) else json.dumps(document)
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_PATCH = do_DELETE = _answer

            def log_message(self, format: str, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        for run in (self._server.serve_forever, self._control):
            threading.Thread(target=run, daemon=True).start()

    def stop(self) -> None:
        self._stops.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def of_kind(self, kind: str) -> list[Object]:
        with self._lock:
            return [o for key, o in self.objects.items() if key.kind == kind]

    def answer(self, method: str, path: str, body: Any) -> Any:
        place, _, query = path.partition("?")
        match = _PATH.fullmatch(urllib.parse.unquote(place))
        if match is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        words = dict(urllib.parse.parse_qsl(query))
        key = Key(match["kind"], match["namespace"] or "", match["name"] or "")
        with self._lock:
            if match["sub"] == "eviction":
                return self._evict(key)
            if method == "POST":
                return self._create(key, body)
            if not key.name:
                return self._list(key, words)
            found = self._find(key)
            if method == "DELETE":
                return self._delete(key, found, words)
            if match["sub"] == "log":
                return self.read_log(key.name)
            if method == "PATCH":
                _merge(found, body)
            return copy.deepcopy(found)

    def _find(self, key: Key) -> Object:
        if key in self.objects:
            return self.objects[key]
        group = ".batch" if key.kind == "jobs" else ""
        raise ApiError(404, "NotFound", f'{key.kind}{group} "{key.name}" not found')

    def _evict(self, key: Key) -> Object:
        found = self.objects[key]
        why = _condition("DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting")
        found["status"].setdefault("conditions", []).append(why)
        return self._delete(key, found, {})

    def _create(self, key: Key, body: Object) -> Object:
        if key.namespace and key.namespace not in self.namespaces:
            raise ApiError(404, "NotFound", f'namespaces "{key.namespace}" not found')
        if key.kind in _MODELS:
            models = importlib.import_module("kubernetes.client")
            getattr(models, _MODELS[key.kind]).model_validate(body)
            self.made.append(copy.deepcopy(body))
        key = key._replace(name=body["metadata"]["name"])
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", f'{key.kind} "{key.name}" already exists')
        new = copy.deepcopy(body)
        new["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        new.setdefault("status", {})
        self.objects[key] = new
        return copy.deepcopy(new)

    def _list(self, key: Key, words: dict[str, str]) -> Object:
        wanted = dict(
            pair.split("=") for pair in words.get("labelSelector", "").split(",") if pair
        )
        uid = words.get("fieldSelector", "").removeprefix("involvedObject.uid=")
        found = [
            copy.deepcopy(one)
            for own, one in self.objects.items()
            if own.kind == key.kind
            and key.namespace in ("", own.namespace)
            and wanted.items() <= (one["metadata"].get("labels") or {}).items()
            and uid in ("", one.get("involvedObject", {}).get("uid"))
        ]
        return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": found}

    def _delete(self, key: Key, found: Object, words: dict[str, str]) -> Object:
        is_running = key.kind == "pods" and found["spec"].get("nodeName")
        if is_running and words.get("gracePeriodSeconds") != "0":
            found["metadata"].setdefault("deletionTimestamp", _now())
        else:
            del self.objects[key]
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _control(self) -> None:
        while not self._stops.wait(0.05):
            with self._lock:
                for key, found in list(self.objects.items()):
                    if key.kind == "jobs":
                        self._run_job(key, found)
                    elif key.kind == "pods":
                        self._schedule(found)
                    self._collect(key, found)

    def _pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [
            pod
            for pod in self.of_kind("pods")
            if uid in (o["uid"] for o in pod["metadata"].get("ownerReferences", ()))
        ]

    def _run_job(self, key: Key, job: Object) -> None:
        """As the Job controller with backoffLimit 0; its finalizers are not there."""
        status, spec = job["status"], job["spec"]
        if status.get("conditions"):
            return
        if self.makes_no_pods:
            self._forbid(key, job)
            return
        if "made" not in status:
            status["made"] = True
            for index in range(spec["completions"]):
                self._make_pod(key, job, index)
        self._judge(job)

    def _judge(self, job: Object) -> None:
        status, spec = job["status"], job["spec"]
        pods = self._pods_of(job)
        phases = [pod["status"].get("phase") for pod in pods]
        kept = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if "Failed" in phases or len(kept) < spec["completions"]:
            why = "Job has reached the specified backoff limit"
            status["conditions"] = [_condition("Failed", "BackoffLimitExceeded", why)]
            for pod in kept:
                if pod["status"].get("phase") not in ("Failed", "Succeeded"):
                    pod["metadata"]["deletionTimestamp"] = _now()
        elif set(phases) == {"Succeeded"}:
            status["conditions"] = [_condition("Complete", "CompletionsReached", "")]

    def _forbid(self, key: Key, job: Object) -> None:
        pod = f"{key.name}-0-x"
        why = (
            f'Error creating: pods "{pod}" is forbidden: violates PodSecurity "restricted:latest"'
        )
        name = f"{key.name}.1"
        event = {
            "metadata": {"name": name},
            "reason": "FailedCreate",
            "message": why,
            "involvedObject": {"uid": job["metadata"]["uid"]},
        }
        self.objects[Key("events", key.namespace, name)] = event

    def _make_pod(self, key: Key, job: Object, index: int) -> None:
        template = copy.deepcopy(job["spec"]["template"])
        about = template.setdefault("metadata", {})
        tail = "".join(random.choices(string.ascii_lowercase, k=5))
        about |= {"name": f"{key.name}-{index}-{tail}", "namespace": key.namespace}
        own = {_INDEX: str(index), _JOB: key.name}
        about["labels"] = (about.get("labels") or {}) | own
        about["annotations"] = (about.get("annotations") or {}) | {_INDEX: str(index)}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": key.name}
        about["ownerReferences"] = [owner | {"uid": job["metadata"]["uid"], "controller": True}]
        about |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        spec = template["spec"]
        spec["hostname"] = f"{key.name}-{index}"
        field_ref = {"fieldRef": {"fieldPath": f"metadata.labels['{_INDEX}']"}}
        for container in spec["containers"]:
            new = {"name": "JOB_COMPLETION_INDEX", "valueFrom": field_ref}
            container["env"] = [*container.get("env", ()), new]
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "status": {"phase": "Pending"}}
        self.objects[Key("pods", key.namespace, about["name"])] = pod

    def _schedule(self, pod: Object) -> None:
        """The first node with enough free GPUs; the words are the real scheduler's."""
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        wanted, nodes = _gpus(pod), self.of_kind("nodes")
        sizes = {n["metadata"]["name"]: _room(n) for n in nodes}
        free = dict(sizes)
        for other in self.of_kind("pods"):
            node = other["spec"].get("nodeName")
            if node and other["status"].get("phase") not in ("Failed", "Succeeded"):
                free[node] = free.get(node, 0) - _gpus(other)
        busy = {o["spec"].get("nodeName") for o in self.of_kind("pods")}
        fits = sorted((n for n in free if free[n] >= wanted), key=lambda n: (n in busy, n))
        if fits:
            pod["spec"]["nodeName"] = fits[0]
            pod["status"]["conditions"] = [_condition("PodScheduled", "", "")]
            return
        helpless = all(size < wanted for size in sizes.values())
        why = "Preemption is not helpful for scheduling" if helpless else _NO_VICTIMS
        count = len(nodes)
        said = f"0/{count} nodes are available: {count} Insufficient {GPU}. "
        said += f"preemption: 0/{count} nodes are available: {count} {why}."
        refused = _condition("PodScheduled", "Unschedulable", said) | {"status": "False"}
        pod["status"]["conditions"] = [refused]

    def _collect(self, key: Key, found: Object) -> None:
        """Delete what has lost its owner."""
        owners = {owner["uid"] for owner in found["metadata"].get("ownerReferences", ())}
        living = {one["metadata"].get("uid") for one in self.objects.values()}
        if owners and not owners & living:
            with suppress(KeyError):
                self._delete(key, found, {})


_NO_VICTIMS = "No preemption victims found for incoming pod"


def _gpus(pod: Object) -> int:
    resources = pod["spec"]["containers"][0].get("resources") or {}
    return int((resources.get("limits") or {}).get(GPU, 0))


def _room(node: Object) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


def _condition(kind: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def _merge(found: Object, body: Object) -> None:
    for key, value in body.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            _merge(found.setdefault(key, {}), value)
        else:
            found[key] = value


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
