"""A node agent that runs pods as processes of this machine, for tests: no images, no volumes.

It speaks to any API server. Each pod has its own process numbers and host name, and names of
the other pods of its Service in ``/etc/hosts``; it sees this machine's files. An image whose name
begins with ``missing`` cannot be pulled; one named ``elsewhere`` does not see our folders. GPUs
are listed by a stand-in for ``nvidia-smi``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GPU = "nvidia.com/gpu"
CAN_RUN = os.geteuid() == 0 and shutil.which("unshare") is not None
_INDEX = "batch.kubernetes.io/job-completion-index"
_GRACE_S = 15.0
_IN_POD = 'hostname "$1"; mount --bind "$2" /etc/hosts; cd "$3"; shift 3; exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Rest:
    """JSON to and from an API server."""

    url: str
    token: str = ""

    def ask(self, method: str, path: str, body: object = None, kind: str = "json") -> Any:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": f"application/{kind}",
            },
        )
        context = ssl._create_unverified_context() if self.url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.loads(answer.read())

    def patch(self, path: str, body: object) -> Any:
        return self.ask("PATCH", path, body, "strategic-merge-patch+json")


@dataclass(kw_only=True)
class _Running:
    name: str
    namespace: str
    node: str
    process: subprocess.Popen[bytes]
    log: Path
    reason: str = ""
    end_s: float = float("inf")
    is_reported: bool = False


@dataclass(kw_only=True)
class Kubelet:
    """The nodes ``n0``, ``n1``, ..., all on this machine."""

    rest: Rest
    folder: Path
    nodes: int
    gpus: int
    dead: set[str] = field(default_factory=set)
    _pods: dict[str, _Running] = field(default_factory=dict)
    _stops: threading.Event = field(default_factory=threading.Event)
    _port: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Register the nodes, and run what is bound to them."""
        self._serve_logs()
        for number in range(self.nodes):
            self._beat(f"n{number}")
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Kill everything."""
        self._stops.set()
        for pod in list(self._pods.values()):
            self._kill(pod)

    @contextmanager
    def without_node(self, node: str) -> Iterator[None]:
        """End its processes, and say nothing of it; then let it come back, with nothing on it."""
        self.dead.add(node)
        for pod in self._pods.values():
            if pod.node == node:
                self._kill(pod)
        try:
            yield
        finally:
            self.dead.discard(node)
            self._beat(node)

    def kill_out_of_memory(self, name: str) -> None:
        """End a pod's container as the kernel does beyond its memory limit."""
        pod = next(pod for pod in self._pods.values() if pod.name == name)
        pod.reason = "OOMKilled"
        self._kill(pod)

    def read_log(self, name: str) -> str:
        """Output of a pod."""
        pods = (pod for pod in self._pods.values() if pod.name == name)
        return "".join(pod.log.read_text(errors="replace") for pod in pods)

    @property
    def living(self) -> list[str]:
        """Names of pods whose processes live."""
        return [pod.name for pod in self._pods.values() if pod.process.poll() is None]

    def _run(self) -> None:
        beat_s = time.monotonic()
        while not self._stops.wait(0.1):
            with suppress(OSError, KeyError):
                if time.monotonic() > beat_s + 5:
                    beat_s = time.monotonic()
                    for number in range(self.nodes):
                        self._beat(f"n{number}")
                pods = self.rest.ask("GET", "/api/v1/pods")["items"]
                for pod in pods:
                    with suppress(urllib.error.HTTPError):
                        self._sync(pod, pods)

    def _beat(self, node: str) -> None:
        if node in self.dead:
            return
        about = {"name": node, "labels": {"kubernetes.io/hostname": node}}
        with suppress(urllib.error.HTTPError):
            new = {"apiVersion": "v1", "kind": "Node", "metadata": about}
            self.rest.ask("POST", "/api/v1/nodes", new)
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        room |= {GPU: str(self.gpus)} if self.gpus else {}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        status = {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        self.rest.patch(f"/api/v1/nodes/{node}/status", {"status": status})
        self.rest.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": None}})

    def _sync(self, pod: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        about, node = pod["metadata"], pod["spec"].get("nodeName")
        if not node or node in self.dead:
            return
        running = self._pods.get(about["uid"])
        if "deletionTimestamp" in about:
            self._delete(pod, running)
        elif running is None and pod["status"].get("phase", "Pending") == "Pending":
            self._begin(pod, pods)
        elif running is not None and running.process.poll() is not None:
            self._report(pod, running)

    def _begin(self, pod: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        container = pod["spec"]["containers"][0]
        if container["image"].startswith("missing"):
            why = f'Back-off pulling image "{container["image"]}"'
            self._say(pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": why}})
            return
        try:
            variables = self._variables(pod, container)
        except urllib.error.HTTPError:
            waits = {"reason": "CreateContainerConfigError", "message": "secret not found"}
            self._say(pod, "Pending", {"waiting": waits})
            return
        words = [_expand(word, variables) for word in container.get("command", ())]
        if not shutil.which(words[0]):
            why = f'exec: "{words[0]}": no such file or directory'
            ended = {"exitCode": 128, "reason": "StartError", "message": why}
            self._say(pod, "Failed", {"terminated": ended})
            return
        if container["image"].startswith(
            "elsewhere"
        ):  # it has no volume, so that its root is empty
            words = [w.replace("/.agents-", "/.elsewhere-") for w in words]
        about = pod["metadata"]
        log = self.folder / f"{about['name']}.log"
        hosts = self.folder / f"{about['name']}.hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(map(_host_line, pods)))
        name = pod["spec"].get("hostname", about["name"])
        place = (name, str(hosts), container.get("workingDir", "/"))
        apart = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._pods[about["uid"]] = _Running(
            name=about["name"],
            namespace=about["namespace"],
            node=pod["spec"]["nodeName"],
            process=subprocess.Popen(
                ("unshare", *apart, "setsid", "sh", "-c", _IN_POD, "pod", *place, *words),
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log.open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ),
            log=log,
        )
        self._say(pod, "Running", {"running": {"startedAt": _now()}})

    def _variables(self, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
        """The container's own, as the API's documents say; nothing of ours but its PATH."""
        found = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}
        limits = container.get("resources", {}).get("limits", {})
        if gpus := int(limits.get(GPU, 0)):
            found["PATH"] = f"{self._driver(gpus)}:{found['PATH']}"
        namespace = pod["metadata"]["namespace"]
        for source in container.get("envFrom", ()):
            name = source["secretRef"]["name"]
            secret = self.rest.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
            found |= {k: base64.b64decode(v).decode() for k, v in secret["data"].items()}
        for own in container.get("env", ()):
            if "value" in own:
                found[own["name"]] = _expand(own["value"], found)
            elif "completion-index" in json.dumps(own):
                found[own["name"]] = pod["metadata"]["annotations"][_INDEX]
        return found

    def _driver(self, gpus: int) -> Path:
        folder = self.folder / f"driver-{gpus}"
        folder.mkdir(exist_ok=True)
        numbers = " ".join(map(str, range(gpus)))
        program = folder / "nvidia-smi"
        program.write_text(
            f"#!/bin/sh\nfor n in {numbers}; do echo $n, GPU-$n, Fake, 8000; done\n"
        )
        program.chmod(0o755)
        return folder

    def _report(self, pod: dict[str, Any], running: _Running) -> None:
        if running.is_reported or pod["status"].get("phase") != "Running":
            return
        code = running.process.returncode
        code = code if code >= 0 else 128 - code
        reason = running.reason or ("Completed" if code == 0 else "Error")
        ended = {"exitCode": code, "reason": reason, "finishedAt": _now()}
        self._say(pod, "Failed" if code else "Succeeded", {"terminated": ended})
        running.is_reported = True

    def _delete(self, pod: dict[str, Any], running: _Running | None) -> None:
        """End it after a while; a process that is 1 in its pod sees no signal but the last."""
        if running is not None and running.process.poll() is None:
            if running.end_s == float("inf"):
                running.end_s = time.monotonic() + _GRACE_S
            if time.monotonic() < running.end_s:
                return
            self._kill(running)
        if running is not None:
            self._report(pod, running)
        about = pod["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
        self.rest.ask("DELETE", f"{path}?gracePeriodSeconds=0")

    def _kill(self, pod: _Running) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pod.process.pid, signal.SIGKILL)
        pod.process.wait(10)

    def _say(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        about, container = pod["metadata"], pod["spec"]["containers"][0]
        is_ready = phase == "Running"
        status = {
            "phase": phase,
            "podIP": f"10.99.0.{2 + self._number(pod) % 250}",  # no Service takes a loopback one
            "hostIP": "127.0.0.1",
            "startTime": _now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": is_ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}/status"
        self.rest.patch(path, {"status": status})

    def _number(self, pod: dict[str, Any]) -> int:
        return self._numbers.setdefault(pod["metadata"]["uid"], len(self._numbers))

    def _serve_logs(self) -> None:
        """``/containerLogs/NAMESPACE/POD/CONTAINER``, by which API servers read logs."""
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = self.path.partition("?")[0].split("/")
                data = kubelet.read_log(parts[3]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self._port = server.server_port
        key, own = self.folder / "kubelet.key", self.folder / "kubelet.crt"
        make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1")
        files = ("-keyout", str(key), "-out", str(own), "-subj", "/CN=kubelet")
        subprocess.run((*make, *files), check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()


def _host_line(pod: dict[str, Any]) -> str:
    """Address of a pod of a headless Service, as the cluster's DNS gives it."""
    spec, about = pod["spec"], pod["metadata"]
    if "hostname" not in spec or "subdomain" not in spec:
        return f"127.0.0.1 {spec.get('hostname', about['name'])}\n"
    name = f"{spec['hostname']}.{spec['subdomain']}.{about['namespace']}.svc"
    return f"127.0.0.1 {spec['hostname']} {name} {name}.cluster.local\n"


def _expand(word: str, variables: dict[str, str]) -> str:
    """``$(NAME)`` and ``$$`` as the field ``command`` of a container documents them."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", value, word)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
