"""Tunes real frameworks' scripts with the real command; a run is shared by a module's tests."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

COMMAND = (sys.executable, "-m", "autoconf_launch.launcher.cli")
SCRIPTS = Path(__file__).parent / "scripts"
ONE_AT_A_TIME = ("--max-parallel-trials=1", "--soak_steps=0", "--end_profile_step=5")
WITH_SOAK = ("--max-parallel-trials=1", "--soak_steps=20", "--end_profile_step=5")
DEADLINE_S = 900
NEEDED = {
    "test_hf_trainer": ("transformers", "accelerate"),
    "test_accelerate": ("accelerate",),
    "test_lightning": ("lightning", "jsonargparse"),
    "test_example_hf_trainer": ("transformers", "accelerate"),
    "test_hf_deepspeed": ("transformers", "accelerate", "deepspeed"),
}
NOTHING: Mapping[str, str] = {}
_SIZES = re.compile(r"trained (\d+) steps of (\d+) samples")


@dataclass(frozen=True)
class Run:
    """A command that has ended, and the folder it was given in."""

    folder: Path
    code: int
    output: str
    wall_s: float

    @property
    def results(self) -> Path:
        return self.folder / "autotuning_results"

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.results / "summary.json").read_text())
        return content

    @property
    def trained(self) -> list[tuple[int, int]]:
        """Steps and global batch, each time that the script came to its own end."""
        return [(int(steps), int(samples)) for steps, samples in _SIZES.findall(self.output)]

    def ranks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name of the trial, and the result of each of its ranks."""
        for path in sorted(self.results.glob("z*/result*.json")):
            yield path.parent.name, json.loads(path.read_text())

    def failure(self, trial: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.results / trial / "failure.json").read_text())
        return content

    def soak_command(self) -> str:
        """Task of the winner's soak."""
        (path,) = self.results.glob("z*_soak/cmd.txt")
        return path.read_text()

    def checkpoints(self) -> list[str]:
        """Checkpoints below the user's folder, including the trials'."""
        kinds = ("*.safetensors", "*.pt", "*.ckpt", "*.bin")
        return [path.name for kind in kinds for path in self.folder.rglob(kind)]

    def left(self) -> set[str]:
        """Names in the user's folder besides the results."""
        return {path.name for path in self.folder.iterdir()} - {
            "autotuning_results",
            "autotuning_exps",
        }


@dataclass(frozen=True)
class Launcher:
    """Starts the real command, in a new folder each time."""

    make: Callable[[str], Path]

    def __call__(
        self,
        *words: str,
        files: Mapping[str, str] = NOTHING,
        variables: Mapping[str, str] = NOTHING,
        folder: Path | None = None,
    ) -> Run:
        """Run ``autoconf-launch`` with these words and variables where these files are."""
        folder = folder or self.make("run")
        for name, text in files.items():
            (folder / name).write_text(text)
        own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment = {**os.environ, **own, **variables}
        began_s = time.monotonic()
        ended = subprocess.run(
            (*COMMAND, *words),
            check=False,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        wall_s = time.monotonic() - began_s
        return Run(folder, ended.returncode, ended.stdout, wall_s)


LaunchIt: TypeAlias = Callable[..., Run]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> LaunchIt:
    """The real command; skipped where the framework is not installed."""
    module = request.module.__name__.rpartition(".")[2]
    missing = [name for name in NEEDED[module] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} is not installed")
    return Launcher(make=tmp_path_factory.mktemp)


def as_asked(run: Run) -> bool:
    """True if every rank of every trial that ran found what the trial's name says."""
    found = {
        (name, rank["applied"]["micro_batch"], rank["applied"]["accumulation"])
        for name, rank in run.ranks()
        if rank["failure"] is None
    }
    asked = {
        (name, int(sizes[2]), int(sizes[1]))
        for name, _, _ in found
        if (sizes := re.search(r"gas(\d+)_tmbspg(\d+)", name))
    }
    return bool(found) and found == asked


def script(name: str) -> str:
    """Path of a script of these tests."""
    return str(SCRIPTS / f"{name}.py")
