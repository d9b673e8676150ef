"""Runs the real command in a folder of its own, and sees that no process is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
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
    capfd: pytest.CaptureFixture[str] | None = None

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

    def here(self, *argv: str, fault: str = "") -> tuple[int, str]:
        """Exit code and text of the command in this process, which starts no interpreter."""
        assert self.capfd is not None
        self.capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAULT", fault)
            patch.setenv("AUTOCONF_TEST_MARK", self.mark)
            patch.chdir(self.folder)
            code = cli.main(list(argv))
        said = self.capfd.readouterr()
        return code, said.out + said.err

    def refusal(self, *argv: str) -> tuple[int, str]:
        """Exit code and text of a command that ends before it launches anything."""
        code, output = self.here(*argv)
        assert not self.results.exists()
        return code, output.rstrip("\n")

    def tune(self, *flags: str, fault: str = "", script: str = str(SCRIPT)) -> tuple[int, str]:
        """Tune ``config.json`` on one process, one trial at a time, quickly and without a soak."""
        return self.run(*self._tuning(*flags, script=script), fault=fault)

    def tune_here(
        self, *flags: str, fault: str = "", script: str = str(SCRIPT)
    ) -> tuple[int, str]:
        """The same in this process."""
        return self.here(*self._tuning(*flags, script=script), fault=fault)

    def _tuning(self, *flags: str, script: str) -> tuple[str, ...]:
        config = str(self.folder / "config.json")
        quick = ("--max-parallel-trials=1", "--soak-steps=0", "--effort=quick")
        return ("--autotuning=tune", *quick, *flags, script, "--config", config)

    @property
    def results(self) -> Path:
        return self.folder / "autotuning_results"

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.results / "summary.json").read_text())
        return found

    def journal(self, having: str = "") -> list[dict[str, Any]]:
        """Whole lines of the journal, those with this key; none if there is no journal yet."""
        path = self.results / "journal.jsonl"
        lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
        return [line for line in map(json.loads, lines) if not having or having in line]

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
def place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Place]:
    """A place with a small configuration; afterwards nothing that it started may live."""
    with clean_place(tmp_path, capfd) as made:
        yield made


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model on several threads takes long while other work has the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@contextmanager
def clean_place(folder: Path, capfd: pytest.CaptureFixture[str] | None = None) -> Iterator[Place]:
    made = Place(folder, uuid.uuid4().hex, capfd)
    made.write_config(SMALL)
    yield made
    wait_until(lambda: not made.living(), "processes are left behind", within_s=5)


def wait_until(is_so: Callable[[], bool], otherwise: str, within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(0.02)
