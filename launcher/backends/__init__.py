"""Backends, which run plans: one row each, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from autoconf_launch.core import ConfigError, lazy_names, nearest_known

from ..events import Listener, Note
from .base import Backend, Job, JobEnd

if TYPE_CHECKING:
    from .local import LocalBackend
    from .local_job import await_agent
else:
    __getattr__ = lazy_names(__name__, __file__)


BACKENDS = MappingProxyType(
    {
        "local": "autoconf_launch.launcher.backends.local:LocalBackend",
        "replay": "autoconf_launch.launcher.backends.replay:ReplayBackend",
        "fork_server": "autoconf_launch.launcher.backends.fork_server:ForkServerBackend",
    }
)
"""Name -> ``module:attribute``; others come by the entry-point group below."""

_ENTRY_POINTS = "autoconf_launch.backend"


def load_backend(name: str, *arguments: object, **options: object) -> Backend:
    """Make the backend of this name; what it takes is its own matter.

    Raises:
        ConfigError: no backend has this name.
    """
    return _factory(name)(*arguments, **options)


def telling(backend: Backend, listener: Listener) -> Backend:
    """The same backend, which from here on warns of what happens beside its jobs, if it can."""
    if hasattr(backend, "tell"):
        backend.tell = lambda text: listener(Note(text=text, warning=True))
    return backend


@contextmanager
def released(backend: Backend) -> Iterator[Backend]:
    """Let go at the end of what a backend keeps between jobs, if it has a ``close``."""
    try:
        yield backend
    finally:
        getattr(backend, "close", lambda: None)()


def _factory(name: str) -> Callable[..., Backend]:
    if name in BACKENDS:
        module, _, attribute = BACKENDS[name].partition(":")
        factory: Callable[..., Backend] = getattr(import_module(module), attribute)
        return factory
    installed = {point.name: point for point in entry_points(group=_ENTRY_POINTS)}
    if name not in installed:
        known = nearest_known(name, {*BACKENDS, *installed})
        raise ConfigError(f"backend {name!r} is unknown; {known}")
    loaded: Callable[..., Backend] = installed[name].load()
    return loaded


__all__ = [
    "BACKENDS",
    "ENTRY_POINTS",
    "Backend",
    "Job",
    "JobEnd",
    "load_backend",
    "released",
    "telling",
]
