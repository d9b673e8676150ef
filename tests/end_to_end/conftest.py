"""Runs the real command in a folder of its own, and sees that no process is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher import cli

SCRIPT = Path(__file__).parent / "scripts" / "train.py"
COMMAND = (sys.executable, "-m", "autoconf_launch")
SMALL: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 0},
    "autotuning": {"enabled": True},
}


@dataclass(frozen=True)
class Place:
    """A folder with a configuration, and a mark on every process started in it."""

    folder: Path
    mark: str

    def write_config(self, document: object, name: str = "config.json") -> Path:
        path = self.folder / name
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text)
        return path

    def start(self, *argv: str, fault: str = "", **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "FAULT": fault, "AUTOCONF_TEST_MARK": self.mark}
        return subprocess.Popen(
            (*COMMAND, *argv),
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )

    def run(self, *argv: str, fault: str = "") -> tuple[int, str]:
        process = self.start(*argv, fault=fault)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def refusal(self, *argv: str) -> tuple[int, str]:
        """Exit code and text of a command that ends before it launches anything, run here."""
        lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_write_line", lines.append)
            patch.chdir(self.folder)
            code = cli.main(list(argv))
        assert not self.results.exists()
        return code, "\n".join(lines)

    def tune(self, *flags: str, fault: str = "", script: str = str(SCRIPT)) -> tuple[int, str]:
        """Tune ``config.json`` on one process, one trial at a time, quickly and without a soak."""
        config = str(self.folder / "config.json")
        quick = ("--max-parallel-trials=1", "--soak-steps=0", "--effort=quick")
        argv = ("--autotuning=tune", *quick, *flags, script, "--config", config)
        return self.run(*argv, fault=fault)

    @property
    def results(self) -> Path:
        return self.folder / "autotuning_results"

    def living(self) -> list[int]:
        """Processes that carry the mark and are not zombies."""
        folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        return [int(folder.name) for folder in folders if self._ours(folder)]

    def _ours(self, folder: Path) -> bool:
        try:
            environment = (folder / "environ").read_bytes()
            return f"AUTOCONF_TEST_MARK={self.mark}".encode() in environment.split(b"\0")
        except OSError:
            return False


@dataclass(frozen=True)
class Tune:
    """A finished tune of candidates with faults; ``records`` by micro-batch."""

    place: Place
    code: int
    output: str
    records: dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Finished:
    """A command that has ended, and where; several tests look at it."""

    place: Place
    code: int
    output: str


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place with a small configuration; afterwards nothing that it started may live."""
    with clean_place(tmp_path) as made:
        yield made


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model on several threads takes long while other work has the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def sound_tune(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two trials that work; a key is a near miss, and the script writes of errors to stderr."""
    with clean_place(tmp_path_factory.mktemp("sound")) as place:
        settings = {"enabled": True, "tuner_type": "gridsearch"}
        place.write_config({**SMALL, "autotuning": settings, "gradient_cliping": 1.0})
        yield Finished(place, *place.tune("--tuner-num-trials=2", fault="stderr"))


@contextmanager
def clean_place(folder: Path) -> Iterator[Place]:
    made = Place(folder, uuid.uuid4().hex)
    made.write_config(SMALL)
    yield made
    deadline_s = time.monotonic() + 5
    while made.living() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert made.living() == [], "processes are left behind"
