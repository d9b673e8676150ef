"""Foreign scripts under the probe: forked for speed, or launched as a user would."""

import builtins
import io
import json
import os
import pathlib
import posix
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch.jit import _recursive

from autoconf_launch.core import (
    MODEL_INFO_FILE,
    Failure,
    FailureKind,
    Mode,
    RankResult,
    RankTask,
    decode,
    result_file,
)
from autoconf_launch.launcher.launch import probe_environment
from autoconf_launch.launcher.launch.planning import INJECTED
from autoconf_launch.runtime.redirect.saved_files import SavedFiles

from ..forked import DEADLINE_S, ForkServer, Order, fork_server_with
from ..forked import free_port as free_port

STOOD_BEFORE = (
    (torch, "save"),
    (torch, "load"),
    (_recursive, "create_script_module"),
    *(
        (os, name)
        for name in (
            *("replace", "rename", "remove", "unlink", "mkdir", "link", "symlink"),
            *("open", "truncate"),
        )
    ),
    (shutil, "rmtree"),
    (io, "open"),
    (builtins, "open"),
    (sys, "meta_path"),
)
"""Attributes that our code replaces."""
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
OF_USER = "of a long training"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A probed launch that has ended."""

    exit_codes: tuple[int, ...]
    output: str
    errors: str
    task: RankTask

    @property
    def folder(self) -> Path:
        return Path(self.task.folder)

    def result(self, rank: int = 0) -> RankResult:
        path = self.folder / result_file(rank)
        assert path.exists(), f"no result: {self.errors[-2000:]} {self.signs()}"
        return decode(RankResult, json.loads(path.read_text()))

    def has_reported(self, rank: int = 0) -> bool:
        return (self.folder / result_file(rank)).exists()

    def failure(self, rank: int = 0) -> Failure | None:
        return self.result(rank).failure

    def failure_kind(self, rank: int = 0) -> FailureKind | None:
        failure = self.failure(rank)
        return failure.kind if failure else None

    def steps(self, rank: int = 0) -> list[int]:
        return [record.step for record in self.result(rank).steps]

    def batches(self, rank: int = 0) -> tuple[int, int]:
        """Micro-batch and accumulation that were found."""
        applied = self.result(rank).applied
        assert applied, self.signs()
        return applied.micro_batch, applied.accumulation

    def model_info(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / MODEL_INFO_FILE).read_text())
        return content

    def signs(self) -> dict[str, str]:
        signs = sorted((self.folder / "probe").glob("*"))
        return {sign.name.partition(".")[0]: sign.read_text() for sign in signs}


Probed: TypeAlias = Callable[..., Ended]


@pytest.fixture
def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore afterwards what our code changes in this process."""
    for module, name in STOOD_BEFORE:
        held = getattr(module, name)
        monkeypatch.setattr(module, name, list(held) if name == "meta_path" else held)
        if accessor := getattr(pathlib, "_NormalAccessor", None):  # of Python 3.10
            monkeypatch.setattr(accessor, name, getattr(accessor, name, None), raising=False)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A checkpoint of the user's."""
    path = tmp_path / "model.pt"
    path.write_text(OF_USER)
    return path


@pytest.fixture
def theirs(users: Path) -> set[Path]:
    """All that the user has."""
    return {users}


@pytest.fixture
def saved(
    tmp_path: Path, theirs: set[Path], put_back: None, monkeypatch: pytest.MonkeyPatch
) -> SavedFiles:
    """Follows what this process saves, in the user's folder."""
    monkeypatch.chdir(tmp_path)
    made = SavedFiles(str(tmp_path / "trial"), theirs.__contains__)
    made.install()
    return made


def put(path: Path, text: str = OF_USER) -> Path:
    """A file of the user's, which ``open`` would make the script's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = posix.open(path, os.O_WRONLY | os.O_CREAT)  # not as the script does
    os.write(descriptor, text.encode())
    os.close(descriptor)
    return path


def on_disk(path: Path) -> str:
    """Without ``open``, which gives what the trial wrote instead."""
    descriptor = posix.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 20).decode(errors="replace")
    finally:
        os.close(descriptor)


def in_trial(folder: Path) -> list[str]:
    return names_of_saved(folder / "trial")


def names_of_saved(trial: Path) -> list[str]:
    """Names of files that a trial wrote into its own folder."""
    return sorted(path.name for path in (trial / "saved").rglob("*") if path.is_file())


@pytest.fixture(scope="session")
def probe_fork_server() -> Iterator[ForkServer]:
    modules = ("_dynamo", "distributed.fsdp", "distributed.optim", "nn.parallel", "utils.data")
    with fork_server_with(*(f"torch.{name}" for name in modules)) as process:
        yield process


@pytest.fixture(scope="session")
def probed(probe_fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    """``probed(script, *arguments, ranks=1, **task)``: run to the end in forks, once each."""

    @remember
    def run(
        script: str,
        *arguments: str,
        ranks: int = 1,
        more: dict[str, str] | None = None,
        **task: Any,
    ) -> Ended:
        folder = trial_folder(tmp_path_factory, "probed")
        asked, variables = asked_of(folder, **task)
        left = probe_fork_server.launch(
            Order(
                argv=[str(SCRIPTS / script), *arguments],
                folder=folder,
                environments=[{**variables, **place, **(more or {})} for place in places(ranks)],
                working_directory=tmp_path_factory.mktemp("work"),
                injected=str(INJECTED / "sitecustomize.py"),
            )
        )
        return Ended(
            exit_codes=left.exit_codes,
            output="".join(left.outputs),
            errors="".join(left.errors),
            task=asked,
        )

    return run


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Probed:
    """``launched(*command, **task)``: a command run with the probe's variables set, once each."""

    @remember
    def run(*command: str, more: dict[str, str] | None = None, **task: Any) -> Ended:
        asked, variables = asked_of(trial_folder(tmp_path_factory, "launched"), **task)
        ended = subprocess.run(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables, **(more or {})},
            cwd=tmp_path_factory.mktemp("work"),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ended(
            exit_codes=(ended.returncode,), output=ended.stdout, errors=ended.stderr, task=asked
        )

    return run


def remember(run: Probed) -> Probed:
    ended: dict[str, Ended] = {}

    def once(*arguments: str, **named: Any) -> Ended:
        key = repr((arguments, sorted(named.items())))
        if key not in ended:
            ended[key] = run(*arguments, **named)
        return ended[key]

    return once


def trial_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A trial's folder without siblings, whose notes would keep folders in place."""
    folder = factory.mktemp(name) / "trial"
    folder.mkdir()
    return folder


def asked_of(folder: Path, **task: Any) -> tuple[RankTask, dict[str, str]]:
    asked = RankTask(**{"mode": Mode.MEASURE, "folder": str(folder), "attempt": "a1", **task})
    return asked, dict(probe_environment(asked, folder))


def places(ranks: int) -> list[dict[str, str]]:
    if ranks == 1:
        return [{}]
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
