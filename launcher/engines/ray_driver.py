"""Ray's side of a launch: ``python ray_driver.py ORDER``, the only code that imports ray.

A separate process: Ray aborts a driver whose cluster is gone, and handles signals itself.
``ORDER`` is ``{}`` to print the cluster's nodes as JSON, else the order of ``RayEngine``. Agents
are subprocesses of tasks inside a placement group, so that Ray gives them their GPUs; nothing is
reserved for agents that only describe their host. Events are files of the line's folder:
``placed`` once all agents have a place, ``K.lost`` with the reason for the loss of host ``K``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

_CONNECT_S = 20.0
_LOOK_S = 0.5
_NODE_ID = "ray.io/node-id"
_COMPLAINT = "autoconf-launch: "  # begins what an agent says that cannot begin
_CALLED_OFF = b'{"end": true}'

ray: Any = None


def main() -> None:
    """Print the nodes, or see a launch to its end."""
    order = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _connect(os.environ.get("RAY_ADDRESS") or "auto")
    if order:
        Launch(order, parent=os.getppid()).run()
    else:
        sys.stdout.write(json.dumps(list(_nodes())))


def _connect(address: str) -> None:
    """Join the cluster that runs; none is ever started."""
    global ray
    if address == "local":
        _fail("RAY_ADDRESS is local, which would start a new cluster; name one that runs")
    if place := re.fullmatch(r"(?:ray://)?(\[.*\]|[^:\[\]]+):(\d{1,5})", address):
        _require_answer(place[1].strip("[]"), int(place[2]), address)
    ray = importlib.import_module("ray")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except ConnectionError:
        where = "on this machine" if address == "auto" else f"at {address}"
        _fail(f"no Ray cluster is running {where}; set RAY_ADDRESS, or start one (ray start)")
    except (RuntimeError, ValueError, OSError, ImportError, AttributeError) as error:
        _fail(f"Ray refuses the connection to {address}: {' '.join(str(error).split())}")
    signal.signal(signal.SIGTERM, handler)


def _require_answer(host: str, port: int, address: str) -> None:
    """Ray itself would try a dead address for minutes."""
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or f"no answer within {_CONNECT_S:.0f} s"
        _fail(f"no Ray cluster answers at {address} ({why}); fix RAY_ADDRESS")


def _fail(text: str) -> NoReturn:
    sys.exit(f"{_COMPLAINT}{text}")


def _nodes() -> Iterator[dict[str, Any]]:
    """Nodes that run tasks, by name; a node with a taken or odd name goes by its number."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    names = [node["NodeName"] for node in alive]
    for node in sorted(alive, key=lambda node: _natural(node["NodeName"])):
        name, has = node["NodeName"], node["Resources"]
        if names.count(name) > 1 or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", name):
            name = f"node-{node['NodeID'][:12]}"
        cpus, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
        if cpus or gpus:
            yield {"name": name, "id": node["NodeID"], "cpus": cpus, "gpus": gpus}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


class Launch:
    """The agents of one launch; ``parent`` is the launcher, without which it ends."""

    def __init__(self, order: dict[str, Any], parent: int) -> None:
        self._folder, self._parent = Path(order["folder"]), parent
        self._hosts, self._sizes = order["hosts"], order["sizes"]
        self._command: list[str] = order["command"]
        self._node_variable = order["node_variable"]
        self._secrets = {name: os.environ[name] for name in order["secrets"]}
        self._lost: set[int] = set()
        self._ids: dict[str, str] = {}

    def run(self) -> None:
        """Place the agents, start them, and wait until the last one has ended."""
        group = None
        try:
            bundles = self._bundles()
            if not self._lost and any(bundles):
                group = self._place(bundles)
            if not self._lost and (group or not any(bundles)):
                (self._folder / "placed").touch()
                self._watch(self._start(group, bundles))
            while self._lost and not self._is_over():
                signal.sigtimedwait((), _LOOK_S)
        finally:
            if group is not None:
                ray.util.remove_placement_group(group)
            ray.shutdown()

    def _bundles(self) -> list[dict[str, float]]:
        """Resources of each host: Ray's default CPU for each rank, and its GPU."""
        known = {node["name"]: node for node in _nodes()}
        roomiest = max(known.values(), key=lambda n: (n["gpus"], n["cpus"]), default=None)
        found = []
        for number, (host, size) in enumerate(zip(self._hosts, self._sizes, strict=True)):
            node = known.get(host) if host else roomiest
            if node is None:
                self._lose(number, "node_lost", "is not a node of the Ray cluster")
                continue
            if host:
                self._ids[host] = node["id"]
            if size["gpus"] > node["gpus"]:
                has = f"has {node['gpus']} GPUs in Ray, but {size['gpus']} are asked for"
                self._lose(number, "bad_config", f"Host {node['name']} {has}")
            wants = {"CPU": min(size["ranks"], node["cpus"]), "GPU": size["gpus"]}
            found.append({name: float(amount) for name, amount in wants.items() if amount})
        return found

    def _place(self, bundles: list[dict[str, float]]) -> Any:
        """Reserve all hosts at once, waiting for busy ones."""
        one = len(bundles) == 1
        group = ray.util.placement_group(
            bundles,
            strategy="STRICT_PACK" if one else "STRICT_SPREAD",
            bundle_label_selector=[{_NODE_ID: self._ids[h]} if h else {} for h in self._hosts],
        )
        while ray.util.placement_group_table(group)["state"] != "CREATED":
            signal.sigtimedwait((), _LOOK_S)
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            for number, host in enumerate(self._hosts):
                if host and self._ids[host] not in alive:
                    self._lose(number, "node_lost", "left the Ray cluster")
            if self._lost or self._is_over():
                ray.util.remove_placement_group(group)
                return None
        return group

    def _start(self, group: Any, bundles: Sequence[dict[str, float]]) -> dict[Any, int]:
        strategies = ray.util.scheduling_strategies
        agents = {}
        for number, (host, bundle) in enumerate(zip(self._hosts, bundles, strict=True)):
            if group is not None:
                place = strategies.PlacementGroupSchedulingStrategy(group, number)
            else:
                place = strategies.NodeAffinitySchedulingStrategy(self._ids[host], soft=False)
            task = ray.remote(run_agent).options(
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                max_retries=0,
                scheduling_strategy=place,
            )
            variables = {**self._secrets, self._node_variable: str(number)}
            agents[task.remote(self._command, variables)] = number
        return agents

    def _watch(self, agents: dict[Any, int]) -> None:
        while agents and os.getppid() == self._parent:
            for task in ray.wait(list(agents), timeout=_LOOK_S)[0]:
                self._note_end(agents.pop(task), task)

    def _note_end(self, number: int, task: Any) -> None:
        try:
            code, said = ray.get(task)
        except ray.exceptions.RayError as error:
            why = " ".join(str(error).split()) or "no reason given"
            self._lose(number, "node_lost", f"was lost ({type(error).__name__}: {why[:300]})")
            return
        marked = [
            line.partition(_COMPLAINT)[2] for line in said.splitlines() if _COMPLAINT in line
        ]
        if marked:
            self._lose(number, "bad_config", f"Host {marked[0]}")
        elif code:
            last = (said.strip().splitlines() or [f"code {code}"])[-1]
            self._lose(number, "node_lost", f"closed the connection ({last})")

    def _lose(self, number: int, kind: str, detail: str) -> None:
        self._lost.add(number)
        new = self._folder / f".{number}.lost"
        with contextlib.suppress(OSError):
            new.write_text(json.dumps({"kind": kind, "detail": detail}))
            new.replace(self._folder / f"{number}.lost")

    def _is_over(self) -> bool:
        if os.getppid() != self._parent:
            return True
        try:
            return _CALLED_OFF in (self._folder / "0.down").read_bytes()
        except FileNotFoundError:
            return not self._folder.is_dir()


def run_agent(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run in a worker of Ray, which does not know this module: an agent to its end."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            check=False,
        )
    except OSError as error:
        return 127, f"{_COMPLAINT}{socket.gethostname()} cannot run {command[0]}: {error.strerror}"
    return done.returncode, done.stderr[-4096:].decode(errors="replace")


if __name__ == "__main__":
    main()
