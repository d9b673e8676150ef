"""A real Ray of several nodes on this machine, on loopback: ``ray.cluster_utils.Cluster``.

    python -m tests.cluster.ray_cluster NODES CPUS GPUS

It prints its address, then obeys lines ``kill NAME``, and ends with its standard input.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .launching import wait_until

IS_INSTALLED = find_spec("ray") is not None and find_spec("ray.cluster_utils") is not None
REASON = "needs the package ray"


@dataclass(frozen=True, kw_only=True)
class Ray:
    """A running one, whose nodes are ``w0``, ``w1``, ...; the head runs no tasks."""

    folder: Path
    process: subprocess.Popen[str]
    address: str

    @property
    def variables(self) -> dict[str, str]:
        return _variables(self.folder) | {"RAY_ADDRESS": self.address}

    @contextmanager
    def without_node(self, name: str) -> Iterator[None]:
        """End a node as a failing host does; then add another of this name."""
        self._say(f"kill {name}")
        try:
            yield
        finally:
            self._say(f"add {name}")

    def _say(self, words: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def agents(self) -> list[str]:
        """Command lines of the agents of this cluster's launches that live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"RAY_ADDRESS={self.address}".encode() in path.read_bytes().split(b"\0"):
                    words = (path.parent / "cmdline").read_text().replace("\0", " ")
                    if "host_agent.py" in words or "ray_driver.py" in words:
                        found.append(words)
        return found

    def is_idle_within(self, timeout_s: float) -> bool:
        """True if no launch has left an agent, a driver or a placement group."""
        return wait_until(lambda: not self.agents() and not self.groups(), timeout_s)

    def groups(self) -> list[str]:
        """States of the placement groups that are not removed."""
        ask = (
            "import os, ray; ray.init(os.environ['RAY_ADDRESS'], log_to_driver=False)\n"
            "groups = ray.util.placement_group_table().values()\n"
            "print(*(g['state'] for g in groups if g['state'] != 'REMOVED'))"
        )
        command = (sys.executable, "-c", ask)
        answer = subprocess.run(
            command, env=self.variables, capture_output=True, text=True, check=True, timeout=60
        )
        return answer.stdout.split()


def _variables(folder: Path) -> dict[str, str]:
    """Ray's switch for a single host: every address is the loopback's."""
    return {
        **{name: v for name, v in os.environ.items() if not name.startswith("RAY_")},
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def running(nodes: int = 3, *, cpus: int = 2, gpus: int = 0) -> Iterator[Ray]:
    """Bring one up, and take it down with all its jobs.

    A stand-in for nvidia-smi lists its GPUs.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # paths of its sockets must be short
    if gpus:
        driver = folder / "nvidia-smi"
        numbers = " ".join(map(str, range(gpus)))
        driver.write_text(f"#!/bin/sh\nfor n in {numbers}; do echo $n, GPU-$n, Fake, 8000; done\n")
        driver.chmod(0o755)
    process = subprocess.Popen(
        (sys.executable, "-m", __name__, str(nodes), str(cpus), str(gpus)),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "log").open("w"),
        text=True,
        env=_variables(folder),
    )
    assert process.stdout
    address = process.stdout.readline().strip()
    if not address:
        raise RuntimeError(f"Ray does not start: {(folder / 'log').read_text()}")
    try:
        yield Ray(folder=folder, process=process, address=address)
    finally:
        process.communicate(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    count, cpus, gpus = map(int, sys.argv[1:])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints to standard output
    head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args=head
    )

    def add(name: str) -> object:
        return cluster.add_node(num_cpus=cpus, num_gpus=gpus, node_name=name)

    nodes = {f"w{number}": add(f"w{number}") for number in range(count)}
    said = cluster.address
    try:
        while True:
            out.write(f"{said}\n")
            out.flush()
            words = sys.stdin.readline().split()
            if not words:
                break
            if words[0] == "kill":
                cluster.remove_node(nodes.pop(words[1]), allow_graceful=False)
            else:
                nodes[words[1]] = add(words[1])
            said = "done"
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
