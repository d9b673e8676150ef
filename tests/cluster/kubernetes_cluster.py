"""A cluster of Kubernetes on this machine: a real API server where it is, or a stand-in.

The real one are etcd and Kubernetes' own API server, controller manager and scheduler, found in
the folder ``AUTOCONF_LAUNCH_KUBERNETES`` or on PATH. Nodes are ``kubelet.py`` in either case.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .kubelet import CAN_RUN, Kubelet, Rest
from .kubernetes_api import StandIn
from .launching import wait_until

_PLACE = f"{os.environ.get('AUTOCONF_LAUNCH_KUBERNETES', '')}:{os.environ['PATH']}"
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_FOUND = {name: shutil.which(name, path=_PLACE) for name in _PROGRAMS}
HAS_CLIENT = find_spec("kubernetes") is not None
CAN_STAND_IN = CAN_RUN and HAS_CLIENT
HAS_SERVER = CAN_STAND_IN and all(_FOUND.values()) and shutil.which("openssl") is not None
CLIENT_REASON = "needs root, unshare and the package kubernetes"
SERVER_REASON = (
    "needs etcd, kube-apiserver, kube-controller-manager and kube-scheduler in the folder "
    "AUTOCONF_LAUNCH_KUBERNETES or on PATH"
)
_POD = """
apiVersion: v1
kind: Pod
metadata: {{labels: {{team: tests}}}}
spec:
  containers:
    - image: {image}
      resources: {resources}
      volumeMounts: [{{name: shared, mountPath: /shared}}]
  volumes: [{{name: shared, hostPath: {{path: /shared}}}}]
"""


@dataclass(kw_only=True)
class Cluster:
    """A running one; ``variables`` are the environment of its launchers."""

    folder: Path
    rest: Rest
    kubelet: Kubelet
    stand_in: StandIn | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        own = {"KUBECONFIG": str(self.folder / "kubeconfig"), "OMP_NUM_THREADS": "1"}
        return dict(os.environ) | own

    def pod_file(self, *, gpus: int = 0, image: str = "train:1") -> Path:
        """A Pod's manifest."""
        path = self.folder / f"pod-{gpus}-{image.partition(':')[0]}.yaml"
        resources = json.dumps({"limits": {"nvidia.com/gpu": gpus}} if gpus else {})
        path.write_text(_POD.format(image=image, resources=resources))
        return path

    def flags(self, *, gpus: int = 0) -> tuple[str, ...]:
        """Flags of a launch in such pods; its size follows."""
        return ("--launcher", "kubernetes", "--launcher_args", str(self.pod_file(gpus=gpus)))

    def objects(self) -> list[str]:
        """Our objects in the cluster: kind and name."""
        label = "?labelSelector=app.kubernetes.io/managed-by%3Dautoconf-launch"
        paths = {kind: f"/api/v1/{kind}{label}" for kind in ("pods", "services", "secrets")}
        paths["jobs"] = f"/apis/batch/v1/jobs{label}"
        return [
            f"{kind} {found['metadata']['name']}"
            for kind, path in paths.items()
            for found in self.rest.ask("GET", path)["items"]
        ]

    def pods(self) -> list[dict[str, Any]]:
        found = self.rest.ask("GET", "/api/v1/pods")["items"]
        return [pod for pod in found if pod["status"].get("phase") == "Running"]

    def delete(self, kind: str) -> None:
        """As somebody else would delete the first object of ours of this kind."""
        name = next(o.split()[1] for o in self.objects() if o.startswith(kind))
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        path = f"{group}/namespaces/default/{kind}/{name}"
        self.rest.ask("DELETE", path, {"propagationPolicy": "Background"})

    def evict(self, pod: dict[str, Any]) -> None:
        """As ``kubectl drain`` does with each pod of a node."""
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.rest.ask("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)

    def end_killed_launch(self) -> None:
        """Wait for the ends of its pods; delete its Job before its deadline does."""
        assert wait_until(lambda: not self.kubelet.living, 20)
        assert "jobs" in str(self.objects())
        self.delete("jobs")

    def is_empty_within(self, timeout_s: float) -> bool:
        """True if nothing of ours is left, in the cluster or running."""
        return wait_until(lambda: not self.objects() and not self.kubelet.living, timeout_s)


@contextmanager
def running(*, real: bool, nodes: int = 3, gpus: int = 4) -> Iterator[Cluster]:
    """Bring one up, and take it down with all its pods."""
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    if real:
        cluster = _start_real(folder, nodes, gpus)
    else:
        stand_in = StandIn()
        stand_in.start()
        rest = Rest(url=stand_in.url)
        kubelet = Kubelet(rest=rest, folder=folder, nodes=nodes, gpus=gpus)
        stand_in.read_log = kubelet.read_log
        cluster = Cluster(folder=folder, rest=rest, kubelet=kubelet, stand_in=stand_in)
        write_config(folder, rest.url, rest.token)
    try:
        cluster.kubelet.start()
        yield cluster
    finally:
        _stop(cluster)


def write_config(folder: Path, url: str, token: str = "") -> Path:
    """The file for KUBECONFIG."""
    user = {"token": token} if token else {}
    place = {"server": url, "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": place}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


def _stop(cluster: Cluster) -> None:
    cluster.kubelet.stop()
    if cluster.stand_in is not None:
        cluster.stand_in.stop()
    for process in reversed(cluster.processes):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _start_real(folder: Path, nodes: int, gpus: int) -> Cluster:
    """Tokens, no service accounts, only loopback."""
    token = secrets.token_hex(16)
    client, peer, secure, kcm, scheduler = (_free_port() for _ in range(5))
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    key = folder / "accounts.key"
    subprocess.run(("openssl", "genrsa", "-out", key, "2048"), check=True, capture_output=True)
    rest = Rest(url=f"https://127.0.0.1:{secure}", token=token)
    kubelet = Kubelet(rest=rest, folder=folder, nodes=nodes, gpus=gpus)
    cluster = Cluster(folder=folder, rest=rest, kubelet=kubelet)
    config = write_config(folder, rest.url, rest.token)

    def run(name: str, *flags: str) -> None:
        log = (folder / f"{name}.log").open("wb")
        program = _FOUND[name]
        assert program
        process = subprocess.Popen((program, *flags), stdout=log, stderr=log, cwd=folder)
        cluster.processes.append(process)

    listen = f"http://127.0.0.1:{client}"
    peers = f"http://127.0.0.1:{peer}"
    run(
        "etcd",
        *("--data-dir", str(folder / "etcd"), "--listen-client-urls", listen),
        *("--advertise-client-urls", listen, "--listen-peer-urls", peers),
        *("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"),
    )
    run(
        "kube-apiserver",
        *(f"--etcd-servers={listen}", f"--secure-port={secure}", "--bind-address=127.0.0.1"),
        *(f"--cert-dir={folder}/certs", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--authorization-mode=AlwaysAllow"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *("--service-cluster-ip-range=10.96.0.0/16", f"--token-auth-file={folder}/tokens.csv"),
        "--disable-admission-plugins=ServiceAccount",
        "--kubelet-preferred-address-types=InternalIP",
    )
    if not wait_until(lambda: _is_ready(rest), 120):
        _stop(cluster)
        raise RuntimeError((folder / "kube-apiserver.log").read_text()[-2000:])
    same = (f"--kubeconfig={config}", "--leader-elect=false")
    keys = (f"--service-account-private-key-file={key}", f"--cert-dir={folder}/kcm")
    run("kube-controller-manager", *same, *keys, f"--secure-port={kcm}")
    run("kube-scheduler", *same, f"--cert-dir={folder}/scheduler", f"--secure-port={scheduler}")
    return cluster


def _is_ready(rest: Rest) -> bool:
    with suppress(OSError, urllib.error.URLError, ValueError):
        return bool(rest.ask("GET", "/api/v1/namespaces/default"))
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
