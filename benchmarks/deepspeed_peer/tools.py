"""The two tuners and their runtimes, each started by its own command as a user starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .children import Child, ChildError, run
from .choice import GLOBAL_BATCH, LARGEST_MICRO_BATCH, RANKS, Choice, read_choice

HERE = Path(__file__).parent
START_DEADLINE_S = 300.0
"""For a launch up to the end of its first turn; DeepSpeed's first one compiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a tuner did; ``wall_s`` is that of its whole command."""

    wall_s: float
    trials: int
    choice: Choice


class Tool(Protocol):
    """A tuner with its runtime."""

    name: str

    def tune(self, folder: Path, deadline_s: float) -> Tuned:
        """Run the tuner's own command in a folder of its own."""

    def training(self, choice: Choice, folder: Path) -> Child:
        """A plain launch that takes its steps in turns."""


class Ours:
    """autoconf-launch and its runtime."""

    name = "ours"

    def tune(self, folder: Path, deadline_s: float) -> Tuned:
        """``autoconf-launch --autotuning=tune`` from micro-batch 1, as the README has it."""
        first = Choice(zero_stage=0, micro_batch=1, accumulation=GLOBAL_BATCH // RANKS)
        document = {**first.document(), "autotuning": {"enabled": True}}
        del document["zero_optimization"]
        config = _write(folder, document)
        argv = ("--autotuning=tune", *self._command(config))
        wall_s = run(self._child(argv, folder, deadline_s))
        results = folder / "autotuning_results"
        summary = json.loads((results / "summary.json").read_text())
        optimal = json.loads((results / "ds_config_optimal.json").read_text())
        trials = summary["spaces"][-1]["num_experiments"]
        return Tuned(wall_s=wall_s, trials=trials, choice=read_choice(optimal))

    def training(self, choice: Choice, folder: Path) -> Child:
        """``autoconf-launch`` without tuning."""
        config = _write(folder, choice.document())
        return self._child((*self._command(config), *_turns(folder)), folder, START_DEADLINE_S)

    def _command(self, config: str) -> tuple[str, ...]:
        return ("--num_gpus", str(RANKS), str(HERE / "train_ours.py"), "--config", config)

    def _child(self, argv: tuple[str, ...], folder: Path, deadline_s: float) -> Child:
        return Child(
            argv=(sys.executable, "-m", "autoconf_launch.launcher.cli", *argv),
            folder=folder,
            environment=_threads(),
            deadline_s=deadline_s,
        )


class DeepSpeed:
    """DeepSpeed and its Autotuner, in a Python of its own."""

    name = "deepspeed"

    def __init__(self, python: Path, *, without_pdsh: Path) -> None:
        self.python, self._without_pdsh = python, without_pdsh

    def tune(self, folder: Path, deadline_s: float) -> Tuned:
        """``deepspeed --autotuning tune`` in its fast mode, over all stages.

        The maximum batch is our global batch: the same splits are then within reach of both.
        """
        first = Choice(zero_stage=0, micro_batch=1, accumulation=1)
        section = {
            "enabled": True,
            "max_train_batch_size": GLOBAL_BATCH,
            "max_train_micro_batch_size_per_gpu": LARGEST_MICRO_BATCH,
        }
        document = {**_for_deepspeed(first), "zero_optimization": {"stage": "all"}}
        config = _write(folder, {**document, "autotuning": section})
        argv = ("--autotuning", "tune", *self._command(config))
        wall_s = run(self._child(argv, folder, deadline_s))
        results = folder / "autotuning_results"
        if not (results / "ds_config_optimal.json").exists():
            raise ChildError("DeepSpeed's tuner found no configuration; see child.log")
        optimal = json.loads((results / "ds_config_optimal.json").read_text())
        trials = len(list(results.glob("z*/cmd.txt")))
        return Tuned(wall_s=wall_s, trials=trials, choice=read_choice(optimal))

    def training(self, choice: Choice, folder: Path) -> Child:
        """``deepspeed`` without tuning."""
        config = _write(folder, _for_deepspeed(choice))
        return self._child((*self._command(config), *_turns(folder)), folder, START_DEADLINE_S)

    def _command(self, config: str) -> tuple[str, ...]:
        place = ("--num_gpus", str(RANKS), "--master_port", str(_free_port()))
        return (*place, str(HERE / "train_deepspeed.py"), "--deepspeed_config", config)

    def _child(self, argv: tuple[str, ...], folder: Path, deadline_s: float) -> Child:
        return Child(
            argv=(str(self.python.parent / "deepspeed"), *argv),
            folder=folder,
            environment=deepspeed_environment(self.python, self._without_pdsh),
            deadline_s=deadline_s,
        )


def deepspeed_environment(python: Path, without_pdsh: Path) -> dict[str, str]:
    """What DeepSpeed needs on one machine without accelerators and without ssh.

    Its tuner starts trials as ``deepspeed``, counts devices by ``LOCAL_SIZE``, and after each
    trial runs ``pdsh … pkill -f <trial name>``: a pdsh that does nothing stands in for that.
    """
    stub = without_pdsh / "pdsh"
    if not stub.exists():
        without_pdsh.mkdir(parents=True, exist_ok=True)
        stub.write_text("#!/bin/sh\nexit 0\n")
        stub.chmod(0o755)
    return {
        **_threads(),
        "PATH": os.pathsep.join((str(without_pdsh), str(python.parent), os.environ["PATH"])),
        "DS_ACCELERATOR": "cpu",
        "DS_BUILD_OPS": "0",
        "LOCAL_SIZE": str(RANKS),
    }


def deepspeed_versions(python: Path, without_pdsh: Path) -> dict[str, str] | None:
    """Versions in that Python; None where something that it takes is missing."""
    names = ("deepspeed", "torch", "tabulate", "autoconf_launch.runtime")
    lines = [f"import {', '.join(names)}, json"]
    lines += ["print(json.dumps({m.__name__: m.__version__ for m in (deepspeed, torch)}))"]
    environment = {**os.environ, **deepspeed_environment(python, without_pdsh)}
    try:
        ended = subprocess.run(
            (str(python), "-c", "\n".join(lines)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _for_deepspeed(choice: Choice) -> dict[str, Any]:
    """The same optimizer: by itself DeepSpeed would compile one of its own for CPUs."""
    document = json.loads(json.dumps(choice.document()))
    document["optimizer"]["params"]["torch_adam"] = True
    return dict(document)


def _threads() -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // RANKS))}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _turns(folder: Path) -> tuple[str, ...]:
    return ("--steps", str(10**6), "--turns", str(folder))


def _write(folder: Path, document: dict[str, Any]) -> str:
    folder.mkdir(parents=True)
    path = folder / "config.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return str(path)
