"""The extension point inference engine: a program that generates the text of an inference search.

Each is one row of a table, imported on demand; another package registers its own under
the entry-point group ``autoconf_launch.inference_engine``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast, runtime_checkable

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    DECODE,
    PREFILL,
    ConfigError,
    Failure,
    FailureKind,
    GenerationTask,
    MemoryUse,
    RawConfig,
    ResultsFolderError,
    encode,
)
from autoconf_launch.launcher.extension_points import find_reference, load_extension
from autoconf_launch.launcher.results import read_file

INFERENCE_ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "native": "autoconf_launch.nemo.inference_search.engines:NativeEngine",
        "vllm": "autoconf_launch.nemo.inference_search.vllm_engine:VllmEngine",
    }
)
"""Name -> ``module:attribute``; habits that predictions need have a table of the same names."""
LATENCY_FILE, FIRST_TOKEN_FILE = "latency.json", "first_token.json"
_LONGEST_S = 1e7
WARM_UP, ITERATIONS = 2, 10
"""Batches that an engine's own program writes before it times some, and those that it times."""
TIMED_S = 15.0
"""Seconds of batches on this machine after which a point has enough of them."""
MODULE = "autoconf_launch.runtime.generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """A point as an engine's program runs it.

    Attributes:
        base: the model's base configuration, with the vocabulary that it has.
        family: of the model.
        folder: of the run; the program's files are in it.
        beam_width: sequences that are kept; 1 is greedy.
    """

    task: GenerationTask
    base: RawConfig
    family: str
    folder: Path
    beam_width: int = 1


class InferenceEngine(Protocol):
    """Runs points in separate processes, one after the other."""

    def why_not(self, run: EngineRun) -> str:
        """The reason why it cannot run a point, as a sentence; empty if it can."""

    def why_not_here(self) -> str:
        """The reason why it cannot run on this machine, and the remedy; empty if it can."""

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        """Files that its commands read, by absolute path."""

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        """Words of its programs, one after the other; they leave their figures in the folder."""

    def tasks_per_run(self, run: EngineRun) -> int:
        """Processes that a launcher must start: one for each rank, or one for all."""

    def read(self, run: EngineRun) -> Outcome:
        """Measurement of its commands, or a failure, also if no file was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedProcess:
    """A process of this machine that measures points of one layout, one after the other.

    Attributes:
        python: path of its interpreter.
        program: a file that this runs.
        variables: beyond our environment.
        files: its input files, by absolute path.
        version: of the engine, as measurements of another are not taken for its own.
    """

    python: str
    program: Path
    arguments: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    files: Mapping[Path, str]
    version: str


@runtime_checkable
class SharingEngine(InferenceEngine, Protocol):
    """An engine whose own process measures all batches of a layout on this machine.

    Points of other engines have ranks each.
    """

    def shared_process(
        self, runs: Sequence[EngineRun], cores: tuple[tuple[int, ...], ...]
    ) -> SharedProcess:
        """The process that leaves the figures of each run, as its commands would.

        Args:
            runs: points that differ only in their batch, in order.
            cores: of each slot; empty if slots are GPUs.
        """


PERCENTS = (50, 90, 99)
"""Percentiles of the times of requests under load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """A load test: files by absolute path, and the words of its commands."""

    files: Mapping[Path, str]
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """Figures of one benchmark; None and empty if it does not report them.

    Attributes:
        benchmark: which one.
        max_concurrency: requests at once.
        tokens_per_s: of prompts and answers.
        ttft_s, token_s, latency_s: at each of ``PERCENTS``, of single requests.
        reason: why something is missing or wrong.
    """

    benchmark: str
    max_concurrency: int | None = None
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    ttft_s: tuple[float, ...] = ()
    token_s: tuple[float, ...] = ()
    latency_s: tuple[float, ...] = ()
    reason: str = ""


@runtime_checkable
class LoadTestingEngine(InferenceEngine, Protocol):
    """An engine that can also be measured while it serves many requests."""

    def load_test(self, run: EngineRun, folder: Path) -> LoadTest:
        """A test of the point's layout with up to its batch at once, all in this folder."""

    def read_load(self, folder: Path) -> Iterable[LoadFigures]:
        """Figures that the commands have left in a folder."""


def load_engine(name: str) -> InferenceEngine:
    """The engine of this name."""
    found = find_reference("inference_engine", INFERENCE_ENGINES, name, where="engine")
    made = load_extension("inference_engine", found, lambda kind: kind(), "no arguments")
    return cast(InferenceEngine, made)


def read_figures(run: EngineRun) -> Outcome:
    """A measurement from both files that an engine's program may write, by names of fields.

    ``latency.json`` has ``latencies`` in seconds; ``first_token.json``, if there is one, has the
    latencies of the first token. Our own program writes both phases and the peak to the former.
    """
    try:
        found = json_object(run.folder / LATENCY_FILE)
        latencies = tuple(_numbers(found, "latencies", run.folder / LATENCY_FILE))
        phases = tuple(_phases(run, found, sum(latencies) / len(latencies)))
    except ConfigError as error:
        return FailedTrial(failure=Failure(kind=FailureKind.NO_STEPS, detail=str(error)))
    peak = found.get("peak_bytes")
    return Measurement(
        step_s=latencies,
        samples_per_step=run.task.layout.micro_batch,
        world_size=run.task.layout.world_size,
        memory=MemoryUse(free_before_bytes=0, peak_bytes=peak, limit_bytes=0)
        if isinstance(peak, int)
        else None,
        phases=phases,
    )


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object that an engine's program wrote."""
    try:
        document = json.loads(read_file(path))
    except FileNotFoundError:
        raise ConfigError(f"{path.name} was not written; see the log of the run.") from None
    except (OSError, ValueError, RecursionError, ResultsFolderError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path.name} is not a JSON object.")
    return document


def read_number(document: Mapping[str, Any], field: str) -> float:
    """A number that is not negative."""
    value = document.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(
            f"{field!r} is {value!r}, which is not a number; its version is unknown."
        )
    return float(value)


def _numbers(document: Mapping[str, Any], field: str, path: Path) -> Iterator[float]:
    values = document.get(field)
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{path.name} has no list {field!r}; its version is unknown.")
    for value in values:
        yield _seconds(value, field, path)


def _seconds(value: object, field: str, path: Path, *, least_s: float = 1e-9) -> float:
    is_flag = isinstance(value, bool)
    if isinstance(value, (int, float)) and not is_flag and least_s <= value <= _LONGEST_S:
        return float(value)
    raise ConfigError(
        f"{path.name} has {repr(value)[:40]} in {field!r}, which is not a time in seconds."
    )


def _phases(
    run: EngineRun, found: Mapping[str, Any], mean_s: float
) -> Iterator[tuple[str, float]]:
    path = run.folder / FIRST_TOKEN_FILE
    if path.exists():
        times = tuple(_numbers(json_object(path), "latencies", path))
        first_s = min(sum(times) / len(times), mean_s)
        yield PREFILL, first_s
        yield DECODE, mean_s - first_s
    elif {PREFILL, DECODE} <= found.keys():
        for phase in (PREFILL, DECODE):
            yield phase, _seconds(found[phase], phase, run.folder / LATENCY_FILE, least_s=0.0)


_BASE, _POINT = "base.json", "generation.json"


class NativeEngine:
    """Greedy, kernel by kernel, with a preallocated cache; see ``runtime/generation``."""

    def why_not(self, run: EngineRun) -> str:
        if run.task.precision not in BUILTIN_PRECISIONS:
            known = ", ".join(one.value for one in BUILTIN_PRECISIONS)
            return (
                f"engine native computes in {known}, not in data_type {run.task.precision.value}; "
                "give one of these."
            )
        if run.beam_width > 1:
            return (
                f"beam_width is {run.beam_width}, but engine native writes greedily; set it to 1 "
                "or take engine=vllm."
            )
        if run.task.layout.pipeline_parallel > 1 and run.family in ("t5", "mt5"):
            return (
                "engine native cuts one list of blocks into stages, an encoder-decoder has two; "
                "pipeline_parallel_sizes must be [1]."
            )
        return ""

    def why_not_here(self) -> str:
        if find_spec("transformers") is None:
            return (
                "engine native builds models with transformers, which is not installed; run "
                "pip install 'autoconf-launch[search]'."
            )
        return ""

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        return {
            run.folder / _BASE: run.base.to_json() + "\n",
            run.folder / _POINT: json.dumps(encode(run.task), indent=2) + "\n",
        }

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        words = ("python3", "-m", MODULE, *self.arguments(run))
        return ((*words, "--output-json", str(run.folder / LATENCY_FILE)),)

    def arguments(self, run: EngineRun) -> tuple[str, ...]:
        base, point = (str(run.folder / name) for name in (_BASE, _POINT))
        return ("--base-config", base, "--generation", point)

    def tasks_per_run(self, run: EngineRun) -> int:
        return run.task.layout.world_size

    def read(self, run: EngineRun) -> Outcome:
        return read_figures(run)
