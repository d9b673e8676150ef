"""Drives ``fork_server_main.py``: launches of scripts as forks of one process."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_S = 120
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, kw_only=True)
class Order:
    """A launch; ``injected`` is the file that arms the probe, empty for none."""

    argv: Sequence[str]
    folder: Path
    environments: Sequence[dict[str, str]]
    working_directory: Path
    injected: str = ""


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Exit codes and output of the ranks of a launch."""

    exit_codes: tuple[int, ...]
    outputs: tuple[str, ...]
    errors: tuple[str, ...]


class ForkServer:
    """The process, which lives as long as its context."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def launch(self, order: Order) -> Streams:
        """Run to the end."""
        document: dict[str, Any] = {
            "argv": list(order.argv),
            "folder": str(order.folder),
            "environments": list(order.environments),
            "working_directory": str(order.working_directory),
            "injected": order.injected,
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], DEADLINE_S)[0], "the ranks hang"
        codes = tuple(json.loads(self._process.stdout.readline()))
        outputs, errors = (
            tuple(_script_output(order.folder / f"{rank}.{name}") for rank in range(len(codes)))
            for name in STREAMS
        )
        return Streams(exit_codes=codes, outputs=outputs, errors=errors)


def _script_output(path: Path) -> str:
    """Output of a script, without the lines that gloo of torch 2.9 prints there."""
    lines = path.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("[Gloo] Rank "))


@contextmanager
def fork_server_with(*modules: str) -> Iterator[ForkServer]:
    """A fork server that has imported these."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server_main.py")), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield ForkServer(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def free_port() -> int:
    """A port that nobody listens to now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
