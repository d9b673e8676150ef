"""Read a results folder that another process may be writing, follow a trial, compare two runs.

Ranks append their steps, and read a file that names their last one.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from autoconf_launch.autotuner.measurement import Noise, SpeedUp, compare_trials
from autoconf_launch.autotuner.playoff import Launches, Summary, summarise_launches
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    EffortName,
    Objective,
    Record,
)
from autoconf_launch.core import (
    END_FILE,
    MODEL_INFO_FILE,
    STEPS_FILE,
    ConfigError,
    DecodeError,
    RankResult,
    RankTask,
    RawConfig,
    ResultsFolderError,
    StepRecord,
    decode,
    dotted_name,
)

from .journal import Fingerprint, JournalContents, read_journal
from .lease import is_held
from .own_files import open_file, read_file
from .paths import CONFIG_STEMS, METRICS_FILE, ResultsPaths
from .secrets import own_secrets

_MOST_BYTES = 16 << 20
"""Read at once; the rest waits for the next call."""


class FolderState(str, Enum):
    """State of a study."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """No controller holds the folder and the study is not over; the same command continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder at one moment.

    Attributes:
        folder: its path, as it was given.
        objective: of the study; throughput if the folder does not have it yet.
        effort: of the last session; normal if the folder does not have it.
        summary_text: the last summary; None unless the study is over.
        baseline_config: of the profile run; None if there is none.
        script: as the command named it, if known.
        parameters: of the profiled model, if there is one.
        impossible: a sentence on a trial whose FLOPS are above the peak of its GPUs; else empty.
        refused: why the last command's budget had no room to continue; else empty.
    """

    folder: str
    paths: ResultsPaths
    contents: JournalContents
    state: FolderState
    objective: Objective
    effort: EffortName
    summary_text: str | None
    duration_s: float
    baseline_config: RawConfig | None
    script: str | None = None
    parameters: int | None = None
    refused: str = ""
    impossible: str = ""

    def summary(self) -> Summary:
        """The summary of the records so far, playoff and verification included."""
        contents = self.contents
        launches = Launches(
            records=contents.records,
            repeats=contents.repeats,
            playoff=contents.finals,
            soaks=contents.soaks,
        )
        settings = AutotuningSettings(metric=self.objective.name, effort=self.effort)
        found = summarise_launches(launches, settings, duration_s=self.duration_s)
        return replace(found, impossible=self.impossible)

    def last_step(self, name: str) -> int:
        """The last step that a rank of this trial has made; 0 before the first."""
        steps = StepsTail(self.paths.trial(name) / STEPS_FILE).new()
        return max((step.step for step in steps), default=0)


def read_result(path: Path) -> RankResult | None:
    """A rank's result, without secrets of this command; None if it cannot be read."""
    try:
        return decode(RankResult, own_secrets().document(json.loads(read_file(path))))
    except (OSError, ValueError, RecursionError, ResultsFolderError):
        return None


def read_results(folder: Path) -> Results:
    """Read a folder as it is now.

    Raises:
        ConfigError: it is not a results folder.
        ResultsFolderError: its journal is damaged.
    """
    paths = results_paths(folder)
    running = is_held(paths.lease)  # asked first: what is written later is only more
    contents = read_journal(paths.journal)
    summary, environment = _document(paths.summary_json), _document(paths.environment)
    stems = (_document(paths.profile / f"{stem}.json") for stem in CONFIG_STEMS)
    baseline = next(filter(None, stems), {})
    count = len(contents.records)
    over = not running and _experiments(summary) == count
    state = FolderState.RUNNING if running else FolderState.STOPPED
    spent_s = contents.search.spent_s
    return Results(
        folder=str(folder),
        paths=paths,
        contents=contents,
        state=FolderState.FINISHED if over else state,
        objective=_objective(summary, environment),
        impossible=_impossible(paths, (*contents.records, *contents.finals)),
        refused=str(environment.get("refused", "")),
        effort=_effort(environment),
        summary_text=read_file(paths.summary_text).decode(errors="replace") if over else None,
        duration_s=float(summary.get("duration_s", spent_s)) if over else spent_s,
        baseline_config=RawConfig(baseline) if baseline else None,
        script=environment.get("script"),
        parameters=_parameters(_document(paths.profile / MODEL_INFO_FILE)),
    )


def results_paths(folder: Path) -> ResultsPaths:
    """Paths in a folder that has a journal.

    Raises:
        ConfigError: it is not a results folder.
    """
    paths = ResultsPaths(results=folder, exps=folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is not a folder; give the results folder of a tuning run, "
            "autotuning_results unless --results-dir said otherwise."
        )
    if not paths.journal.is_file():
        inside = folder / "autotuning_results"
        hint = f"did you mean {inside}?" if inside.is_dir() else "give one of a tuning run."
        raise ConfigError(
            f"{folder} is not a results folder: it has no {paths.journal.name}; {hint}"
        )
    if not os.access(paths.journal, os.R_OK):
        raise ConfigError(f"{paths.journal} cannot be read; ask its owner for permission.")
    return paths


def _document(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is none that can be read."""
    try:
        document = json.loads(read_file(path))
    except (OSError, ValueError, RecursionError, ResultsFolderError):
        return {}
    return document if isinstance(document, dict) else {}


def _impossible(paths: ResultsPaths, records: Iterable[Record]) -> str:
    names = (record.trial.name for record in records if record.measurement)
    found = (
        (name, _document(paths.trial(name) / METRICS_FILE).get("impossible")) for name in names
    )
    return next((f"{name}: {why}" for name, why in found if isinstance(why, str)), "")


def _experiments(summary: dict[str, Any]) -> int:
    spaces = summary.get("spaces") or [{}]
    return int(spaces[-1].get("num_experiments", -1))


def _parameters(model_info: dict[str, Any]) -> int | None:
    blocks = model_info.get("blocks")
    try:
        return sum(block["count"] * block["parameters"] for block in blocks) if blocks else None
    except (KeyError, TypeError):
        return None


def _objective(*documents: dict[str, Any]) -> Objective:
    named = (OBJECTIVES.get(document.get("metric", "")) for document in documents)
    return next((objective for objective in named if objective), OBJECTIVES["throughput"])


def _effort(document: dict[str, Any]) -> EffortName:
    name = document.get("effort")
    return next((known for known in get_args(EffortName) if known == name), "normal")


class StepsTail:
    """Gives each whole line once; a line that is still being written waits for the next call."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> tuple[StepRecord, ...]:
        """Steps appended since the last call; other lines, and impossible times, are skipped."""
        if self._path is None:
            return ()
        try:
            with open(self._path, "rb", opener=open_file) as file:
                file.seek(self._offset)
                whole = file.read(_MOST_BYTES).rpartition(b"\n")[0]
        except (OSError, ResultsFolderError):
            return ()
        if not whole:
            return ()
        self._offset += len(whole) + 1
        steps = (_step(line) for line in whole.splitlines())
        return tuple(step for step in steps if step)

    def age_s(self) -> float:
        """Seconds since the last step was written; 0 if there is none."""
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime) if self._path else 0.0
        except OSError:
            return 0.0


class SlowestRanks:
    """Duration of each step that every rank has made, on its slowest rank, in seconds."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._seen: dict[int, list[float]] = {}

    def take(self, step: StepRecord) -> None:
        self._seen.setdefault(step.step, []).append(step.wall_s)

    @property
    def step_s(self) -> tuple[float, ...]:
        """Durations from the first step on, without a gap."""
        found: list[float] = []
        while len(ranks := self._seen.get(len(found) + 1, ())) >= self._world_size:
            found.append(max(ranks))
        return tuple(found)


def tell_end(task: RankTask, step: int) -> None:
    """Have the ranks end at this step, or at their current one.

    Raises:
        OSError: the folder cannot be written.
    """
    path = Path(task.folder) / END_FILE
    written = path.with_name(f".{END_FILE}")
    with open(written, "w", encoding="utf-8", opener=open_file) as file:
        file.write(f"{task.attempt} {step}")
    written.replace(path)


def _step(line: bytes) -> StepRecord | None:
    try:
        step = decode(StepRecord, json.loads(line))
    except (DecodeError, ValueError, RecursionError):
        return None
    return step if 0.0 < step.wall_s < math.inf else None


class SpeedVerdict(str, Enum):
    """The faster of two runs, beyond the noise of both."""

    A = "a"
    B = "b"
    TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A record of each run. ``ratio`` is B over A in the metric's direction, above 1 better.

    ``ratio`` and ``verdict`` are None if either has no measurement.
    """

    a: Record
    b: Record
    ratio: SpeedUp | None
    verdict: SpeedVerdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A part that differs; None means that it is missing."""

    part: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run B against run A.

    Attributes:
        objective: the metric of both; throughput if they optimise different ones.
        pairs: candidates that both tried, in the order of A, each with its speed in its run.
        only_a: names of candidates that B did not try; ``only_b`` vice versa.
        best: the winners of both summaries; None if one measured nothing.
        differences: other parts that differ.
    """

    objective: Objective
    pairs: tuple[Pair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    best: Pair | None
    differences: tuple[Difference, ...]

    def count(self, verdict: SpeedVerdict) -> int:
        return sum(pair.verdict is verdict for pair in self.pairs)


def compare_results(a: Results, b: Results) -> Comparison:
    """Compare what two folders hold."""
    same = a.objective is b.objective
    objective = a.objective if same else OBJECTIVES["throughput"]
    of_a, of_b = a.summary(), b.summary()
    in_a, in_b = ({r.trial.name: r for r in each.shown} for each in (of_a, of_b))
    best_a, best_b = of_a.decision.winner, of_b.decision.winner
    noise = max(of_a.noise, of_b.noise, key=lambda one: one.between)

    def pair(one: Record, other: Record) -> Pair:
        return _pair(one, other, objective, noise)

    return Comparison(
        objective=objective,
        pairs=tuple(pair(in_a[name], in_b[name]) for name in in_a if name in in_b),
        only_a=tuple(name for name in in_a if name not in in_b),
        only_b=tuple(name for name in in_b if name not in in_a),
        best=pair(in_a[best_a.trial.name], in_b[best_b.trial.name]) if best_a and best_b else None,
        differences=tuple(_differences(a, b)),
    )


def training_differences(a: Results, b: Results) -> tuple[Difference, ...]:
    """Reason why two runs are of different trainings, so that their speeds cannot be compared."""
    parts = (
        ("script", a.script, b.script),
        ("model", _model(a), _model(b)),
        ("global batch", _batch(a), _batch(b)),
    )
    return tuple(
        Difference(part=part, a=one, b=other)
        for part, one, other in parts
        if one is not None and other is not None and one != other
    )


def _model(results: Results) -> str | None:
    count = results.parameters
    return None if count is None else f"{count:,} parameters"


def _batch(results: Results) -> str | None:
    records = results.contents.records
    first = next((record.trial for record in records if record.trial.number == 0), None)
    return None if first is None else f"{first.candidate.layout.global_batch} samples"


def _pair(a: Record, b: Record, objective: Objective, noise: Noise) -> Pair:
    if a.measurement is None or b.measurement is None:
        return Pair(a=a, b=b, ratio=None, verdict=None)
    found = compare_trials(a.measurement, b.measurement, objective, noise)
    if found is None:
        return Pair(a=a, b=b, ratio=None, verdict=None)
    faster = SpeedVerdict.B if found.mean > 0.0 else SpeedVerdict.A
    verdict = faster if found.differs else SpeedVerdict.TIE
    return Pair(a=a, b=b, ratio=found.speed_up, verdict=verdict)


def _differences(a: Results, b: Results) -> Iterator[Difference]:
    if a.objective is not b.objective:
        yield Difference(part="metric", a=a.objective.name, b=b.objective.name)
    old, new = a.contents.fingerprint, b.contents.fingerprint
    if old is None or new is None:
        return
    for part in old.differences(new):
        if part == "config":
            yield from _config(a, b)
        elif part == "versions":
            yield from _versions(dict(old.versions), dict(new.versions))
        else:
            was, now = _part(part, a, old), _part(part, b, new)
            yield Difference(part=part, a=was, b=now if now != was else f"{now}, edited")


def _part(part: str, results: Results, fingerprint: Fingerprint) -> str:
    if part == "script":
        return results.script or "the script"
    if part == "arguments":
        return " ".join(fingerprint.arguments)
    devices = fingerprint.hardware
    return "; ".join(f"{devices.count(device)} x {device}" for device in dict.fromkeys(devices))


def _versions(was: dict[str, str], now: dict[str, str]) -> Iterator[Difference]:
    for name in sorted({*was, *now}):
        if was.get(name) != now.get(name):
            yield Difference(part=f"version of {name}", a=was.get(name), b=now.get(name))


def _config(a: Results, b: Results) -> Iterator[Difference]:
    """The keys of the profiled configurations that differ, or other inputs if these are equal."""
    before, after = a.baseline_config, b.baseline_config
    edits = before.diff(after) if before and after else ()
    if not edits:
        yield Difference(
            part="config", a="as it was", b="other files, variables or profiled steps"
        )
    for edit in edits:
        part = f"config {dotted_name(edit.path)}"
        yield Difference(part=part, a=_text(edit.before), b=_text(edit.after))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
