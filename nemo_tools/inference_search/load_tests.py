"""Tests under load of the recommended point, for engines that have them.

A batch alone says how quick a point is, and decides the search. What its layout serves when
requests come beside each other is measured afterwards, for the recommended one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from autoconf_launch.launcher.report import csv_text

from .engines import EngineRun, InferenceEngine
from .jobs import command_job
from .points import SearchPoint
from .prepared import LengthSearch, PreparedInference
from .results import digits_of

PERCENTS = (50, 90, 99)
_SCRIPT, _TABLE = "submission_script.sh", "load.csv"
_HEADS = (
    *("Benchmark", "Requests at Once", "Requests/s", "Tokens/s", "Output Tokens/s"),
    "Tokens/s per GPU",
    *(f"TTFT p{percent} [ms]" for percent in PERCENTS),
    *(f"Time per Token p{percent} [ms]" for percent in PERCENTS),
    *(f"Latency p{percent} [ms]" for percent in PERCENTS),
    *("Reason", "Name"),
)


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


def load_script(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    """The job of a point's test; empty where the engine has none."""
    test = _test(prepared, search, point)
    return command_job(prepared, point, _folder(search, point), test.commands) if test else ""


def load_files(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> dict[Path, str]:
    """The job of a point's test with what it reads, and ``load.csv`` once it has run."""
    test, folder = _test(prepared, search, point), _folder(search, point)
    if test is None:
        return {}
    table = _table(prepared, search, point)
    files = {**test.files, folder / _SCRIPT: load_script(prepared, search, point)}
    return files | ({search.summary / _TABLE: table} if table else {})


def load_lines(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> Iterator[str]:
    """Lines on the recommended point's load test; none if the engine has no test."""
    if _table(prepared, search, point):
        yield f"Under load: {search.summary / _TABLE}"
    elif _test(prepared, search, point):
        script = shlex.quote(str(_folder(search, point) / _SCRIPT))
        yield f"To measure it under load, submit {script}; the same search then writes {_TABLE}."


def _test(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> LoadTest | None:
    """None where the engine has none, or no job runs it."""
    engine = prepared.engine
    if prepared.is_local or not isinstance(engine, LoadTestingEngine):
        return None
    return engine.load_test(prepared.run_of(point, search), _folder(search, point))


def _table(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    engine = prepared.engine
    if not isinstance(engine, LoadTestingEngine):
        return ""
    figures = tuple(engine.read_load(_folder(search, point)))
    return csv_text([_HEADS, *(tuple(_cells(one, point)) for one in figures)]) if figures else ""


def _folder(search: LengthSearch, point: SearchPoint) -> Path:
    return search.folder / point.name / "load_test"


def _cells(figures: LoadFigures, point: SearchPoint) -> Iterator[object]:
    tokens = figures.tokens_per_s
    yield figures.benchmark
    yield "" if figures.max_concurrency is None else figures.max_concurrency
    for value in (figures.requests_per_s, tokens, figures.output_tokens_per_s):
        yield "" if value is None else digits_of(value)
    yield "" if tokens is None else digits_of(tokens / point.gpus)
    for times_s in (figures.ttft_s, figures.token_s, figures.latency_s):
        yield from (digits_of(1e3 * time_s) for time_s in times_s or ())
        yield from [""] * (0 if times_s else len(PERCENTS))
    yield from (figures.reason, point.name)
