"""Backends, which run plans: one row each, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import cast

from autoconf_launch.core import ClusterSpec

from ..events import Listener, Note
from ..extension_points import find_reference, load_reference
from ..machine import started_hosts
from ..request import BATCH, KUBERNETES, QUEUES, RAY, LaunchRequest
from .base import Backend, Job, JobEnd
from .kubernetes import manifests_text
from .local import LocalBackend, await_agent

BACKENDS = MappingProxyType(
    {
        "local": "autoconf_launch.launcher.backends.local:LocalBackend",
        "hosts": "autoconf_launch.launcher.backends.hosts:HostsBackend",
        "ray": "autoconf_launch.launcher.backends.ray:RayBackend",
        "kubernetes": "autoconf_launch.launcher.backends.kubernetes:KubernetesBackend",
        "slurm": "autoconf_launch.launcher.backends.slurm:SlurmBackend",
        "fork_server": "autoconf_launch.launcher.backends.fork_server:ForkServerBackend",
    }
)
"""Name -> ``module:attribute``; others: the entry-point group ``autoconf_launch.backend``."""
_OF_QUEUES = {BATCH: "slurm", KUBERNETES: "kubernetes"}


def load_backend(name: str, *arguments: object, **options: object) -> Backend:
    """Make the backend of this name; what it takes is its own matter.

    Raises:
        ConfigError: no backend has this name.
    """
    factory = load_reference(find_reference("backend", BACKENDS, name, where="backend"))
    return cast(Backend, factory(*arguments, **options))


def backend_for(request: LaunchRequest, cluster: ClusterSpec, *, forks: bool = False) -> Backend:
    """The backend that the request names, or which its hosts need.

    ``forks``: ranks are Python with our runtime, so that this machine can fork them.
    """
    if request.backend != "local":
        return load_backend(request.backend)
    if request.remote.engine in QUEUES:
        name = _OF_QUEUES[request.remote.engine]
        return load_backend(name, request.remote, deadline_s=request.trial_timeout_s)
    if started_hosts(request, cluster):
        return load_hosts_backend(request)
    return load_backend("fork_server" if forks else "local")


def load_hosts_backend(request: LaunchRequest) -> Backend:
    """The backend of a launch over hosts that have names."""
    name = RAY if request.remote.engine == RAY else "hosts"
    return load_backend(name, request.remote)


def warn_listener(backend: Backend, listener: Listener) -> Backend:
    """Have the backend say what happens beside its jobs, if it can."""
    if hasattr(backend, "tell"):
        backend.tell = lambda text: listener(Note(text=text, warning=True))
    if hasattr(backend, "inform"):
        backend.inform = lambda text: listener(Note(text=text))
    return backend


@contextmanager
def closing_backend(backend: Backend) -> Iterator[Backend]:
    """Let go at the end of what a backend keeps between jobs, if it has a ``close``."""
    try:
        yield backend
    finally:
        getattr(backend, "close", lambda: None)()
