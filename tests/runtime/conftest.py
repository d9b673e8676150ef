"""Real ranks in separate processes, as a launcher starts them."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.distributed as dist

from autoconf_launch.core import (
    STEPS_FILE,
    TASK_VARIABLE,
    FailureKind,
    RankResult,
    RankTask,
    decode,
    result_file,
)

from .forked import ForkServer, Order, fork_server_with, free_port

SCRIPTS = Path(__file__).parent / "ranks"
LIBRARY = ("transformers.models.llama.modeling_llama",) if find_spec("transformers") else ()
"""All that its models share; each rank would import it for 2 s."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A launch that has ended."""

    exit_codes: tuple[int, ...]
    outputs: tuple[str, ...]
    errors: tuple[str, ...]
    folder: Path

    def result(self, rank: int = 0) -> RankResult:
        text = (self.folder / result_file(rank)).read_text()
        return decode(RankResult, json.loads(text))

    def failure_kind(self, rank: int = 0) -> FailureKind | None:
        failure = self.result(rank).failure
        return failure.kind if failure else None

    def step_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / STEPS_FILE).read_text().splitlines()]


Launch: TypeAlias = Callable[..., Ended]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models on several threads take long where other work has the cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with fork_server_with(
        "autoconf_launch.runtime.engine.engine", "autoconf_launch.runtime.profile.trace", *LIBRARY
    ) as process:
        yield process


@pytest.fixture(scope="session")
def launch(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """``launch(script, *arguments, ranks=1, **task)``: run to the end."""

    def run(script: str | Path, *arguments: str, ranks: int = 1, **task: Any) -> Ended:
        folder = tmp_path_factory.mktemp("ranks")
        port = free_port()
        left = fork_server.launch(
            Order(
                argv=[str(SCRIPTS / script), *arguments],
                folder=folder,
                environments=[
                    _environment(rank, ranks, port, folder, task) for rank in range(ranks)
                ],
                working_directory=Path.cwd(),
            )
        )
        return Ended(
            exit_codes=left.exit_codes, outputs=left.outputs, errors=left.errors, folder=folder
        )

    return run


@pytest.fixture(scope="session")
def tiny() -> Any:
    """The module ``ranks/tiny.py``, which the scripts beside it import."""
    spec = importlib.util.spec_from_file_location("tiny", SCRIPTS / "tiny.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def alone() -> Iterator[None]:
    """Leave the process group that a test in this process made."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def _environment(
    rank: int, ranks: int, port: int, folder: Path, task: dict[str, Any]
) -> dict[str, str]:
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if task:
        asked = RankTask(folder=str(folder), attempt="attempt-1", **task)
        environment[TASK_VARIABLE] = asked.to_variable()
    return environment
