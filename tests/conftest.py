"""Settings for every test: a slow or busy machine is no reason to fail.

Where pytest-xdist runs tests side by side (``make test``), those marked ``undisturbed``
have the machine to themselves.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-machine",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")

for ignored in (signal.SIGHUP, signal.SIGINT):  # by nohup, and by shells in the background
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)  # tunes under test inherit it

os.environ["XDG_DATA_HOME"] = f"{tempfile.gettempdir()}/tests-{os.getpid()}"
"""Tunes keep their step times there, also those of fixtures that last longer than a test."""

_NUMBERS = count()
MACHINE, QUEUE = Path(__file__), Path(__file__).parent
"""What workers lock: the machine, shared or whole, and before it their place in the queue, so
that who wants the whole is not overtaken for ever."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with ExitStack() as machine:
        with file_lock(QUEUE, fcntl.LOCK_EX):
            whole = item.get_closest_marker("undisturbed") is not None
            machine.enter_context(file_lock(MACHINE, fcntl.LOCK_EX if whole else fcntl.LOCK_SH))
        return (yield)


@contextmanager
def file_lock(path: Path, how: int) -> Iterator[None]:
    """Until the block ends; given back by name, as processes forked by a test hold it, too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@pytest.fixture(autouse=True)
def _no_earlier_tune(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Give each test an empty history of tunes."""
    folder = tmp_path_factory.getbasetemp() / f"user-{next(_NUMBERS)}"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
