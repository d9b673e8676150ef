"""Read a results folder that another process may be writing. Not: hold it, or change anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from autoconf_launch.autotuner.measurement import (
    Noise,
    SpeedUp,
    is_tie,
    of_both,
    speed_up,
    without_drift,
)
from autoconf_launch.autotuner.playoff import Launches, Summary, summarise_launches
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    EffortName,
    Objective,
    Record,
    decode_record,
)
from autoconf_launch.core import (
    STEPS_FILE,
    ConfigError,
    RawConfig,
    ResultsFolderError,
    dotted_name,
)

from .fingerprints import differences
from .journal import Fingerprint, JournalContents, read_journal
from .lease import is_held
from .paths import CONFIG_STEMS, ResultsPaths
from .steps import StepsTail


class FolderState(str, Enum):
    """Whether more is to come."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """Nobody holds the folder and the study is not over; the same command goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A results folder at one moment.

    Attributes:
        objective: what is optimised; throughput where the folder does not say it yet.
        effort: of the last session; normal where the folder does not say it.
        summary_text: the last summary; None unless the study is over.
        baseline_config: of the profile run; None where there is none.
    """

    paths: ResultsPaths
    contents: JournalContents
    state: FolderState
    objective: Objective
    effort: EffortName
    summary_text: str | None
    duration_s: float
    baseline_config: RawConfig | None

    @property
    def folder(self) -> str:
        """The path, as it was given."""
        return str(self.paths.results)

    def summary(self) -> Summary:
        """What the records say so far, and the launches that were measured again after them."""
        contents = self.contents
        launches = Launches(
            records=contents.records,
            repeats=contents.repeats,
            playoff=contents.finals,
            soaks=contents.soaks,
        )
        settings = AutotuningSettings(metric=self.objective.name, effort=self.effort)
        return summarise_launches(launches, settings, duration_s=self.duration_s)

    def last_step(self, name: str) -> int:
        """The last step that a rank of this trial has made; 0 before the first."""
        steps = StepsTail(self.paths.trial(name) / STEPS_FILE).new()
        return max((step.step for step in steps), default=0)


def read_results(folder: Path) -> Results:
    """Read a folder as it is now.

    Raises:
        ConfigError: it is not a results folder.
        ResultsFolderError: its journal is damaged.
    """
    paths = results_paths(folder)
    running = is_held(paths.lease)  # asked first: what is written later is only more
    contents = read_journal(paths.journal)
    summary = _document(paths.summary_json)
    stems = (_document(paths.profile / f"{stem}.json") for stem in CONFIG_STEMS)
    baseline = next(filter(None, stems), {})
    count = len(contents.records)
    over = not running and _experiments(summary) == count
    state = FolderState.RUNNING if running else FolderState.STOPPED
    spent_s = contents.search.spent_s
    return Results(
        paths=paths,
        contents=contents,
        state=FolderState.FINISHED if over else state,
        objective=_objective(summary, _document(paths.environment)),
        effort=_effort(_document(paths.environment)),
        summary_text=paths.summary_text.read_text(encoding="utf-8", errors="replace")
        if over
        else None,
        duration_s=float(summary.get("duration_s", spent_s)) if over else spent_s,
        baseline_config=RawConfig(baseline) if baseline else None,
    )


def results_paths(folder: Path) -> ResultsPaths:
    """Names in a folder that has a journal.

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


class JournalTail:
    """Gives each record once, as it is appended; a folder that starts anew is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def new(self) -> tuple[Record, ...]:
        """Records since the last call; one ``stat`` where there are none.

        Raises:
            ResultsFolderError: a whole line cannot be read.
        """
        try:
            status = self._path.stat()
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
            if status.st_size == self._offset:
                return ()
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return ()
        self._offset += len(whole) + len(newline)
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            return tuple(decode_record(line) for line in lines if "name" in line)
        except (ValueError, TypeError) as error:
            raise ResultsFolderError(
                f"{self._path} has a line that cannot be read ({error})."
            ) from error


def _document(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _experiments(summary: dict[str, Any]) -> int:
    spaces = summary.get("spaces") or [{}]
    return int(spaces[-1].get("num_experiments", -1))


def _objective(*documents: dict[str, Any]) -> Objective:
    named = (OBJECTIVES.get(document.get("metric", "")) for document in documents)
    return next((objective for objective in named if objective), OBJECTIVES["throughput"])


def _effort(document: dict[str, Any]) -> EffortName:
    name = document.get("effort")
    return next((known for known in get_args(EffortName) if known == name), "normal")


_DIGEST_SHOWN = 12


class SpeedVerdict(str, Enum):
    """Which of two is faster beyond the noise of both."""

    A = "a"
    B = "b"
    TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A record of each run. ``ratio`` is B over A in the metric's direction, above 1 better.

    ``ratio`` and ``verdict`` are None where one of them has no measurement.
    """

    a: Record
    b: Record
    ratio: SpeedUp | None
    verdict: SpeedVerdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same; None means "not there"."""

    part: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run B against run A.

    Attributes:
        objective: the metric of both; throughput where they optimise different ones.
        pairs: candidates that both tried, in the order of A; as if all of a run were measured at
            one time.
        only_a: names of candidates that B did not try; ``only_b`` the other way round.
        best: the winner of each as its summary has it; None where one measured nothing.
        differences: what else was not the same.
    """

    objective: Objective
    pairs: tuple[Pair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    best: Pair | None
    differences: tuple[Difference, ...]

    def count(self, verdict: SpeedVerdict) -> int:
        """Pairs with this verdict."""
        return sum(pair.verdict is verdict for pair in self.pairs)


def compare_results(a: Results, b: Results) -> Comparison:
    """Compare what two folders hold."""
    same = a.objective is b.objective
    objective = a.objective if same else OBJECTIVES["throughput"]
    in_a, in_b = _by_name(a), _by_name(b)
    of_a, of_b = a.summary(), b.summary()
    noise = of_both(of_a.noise, of_b.noise)

    def pair(one: Record, other: Record) -> Pair:
        return _pair(one, other, objective, noise)

    return Comparison(
        objective=objective,
        pairs=tuple(pair(in_a[name], in_b[name]) for name in in_a if name in in_b),
        only_a=tuple(name for name in in_a if name not in in_b),
        only_b=tuple(name for name in in_b if name not in in_a),
        best=pair(of_a.decision.winner, of_b.decision.winner)
        if of_a.decision.winner and of_b.decision.winner
        else None,
        differences=tuple(_differences(a, b)),
    )


def _by_name(results: Results) -> dict[str, Record]:
    """The last record of each candidate, in the order of the first ones."""
    contents = results.contents
    records = without_drift(contents.records, contents.repeats)
    return {record.trial.name: record for record in records}


def _pair(a: Record, b: Record, objective: Objective, noise: Noise) -> Pair:
    if a.measurement is None or b.measurement is None:
        return Pair(a=a, b=b, ratio=None, verdict=None)
    ratio = speed_up(a.measurement, b.measurement, objective, noise)
    if ratio is None:
        return Pair(a=a, b=b, ratio=None, verdict=None)
    faster = SpeedVerdict.B if ratio.ratio > 1.0 else SpeedVerdict.A
    tie = is_tie(a.measurement, b.measurement, objective, noise)
    return Pair(a=a, b=b, ratio=ratio, verdict=SpeedVerdict.TIE if tie else faster)


def _differences(a: Results, b: Results) -> Iterator[Difference]:
    if a.objective is not b.objective:
        yield Difference(part="metric", a=a.objective.name, b=b.objective.name)
    old, new = a.contents.fingerprint, b.contents.fingerprint
    if old is None or new is None:
        return
    for part in differences(old, new):
        if part == "config":
            yield from _config(a, b, old, new)
        else:
            yield from _PARTS.get(part, _texts)(part, old, new)


def _config(a: Results, b: Results, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    """The keys of the profiled configurations; the digests where these do not tell."""
    before, after = a.baseline_config, b.baseline_config
    edits = before.diff(after) if before and after else ()
    if not edits:
        yield from _digests("config", old, new)
    for edit in edits:
        part = f"config {dotted_name(edit.path)}"
        yield Difference(part=part, a=_text(edit.before), b=_text(edit.after))


def _digests(part: str, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    a, b = (str(getattr(print_, part))[:_DIGEST_SHOWN] for print_ in (old, new))
    yield Difference(part=part, a=a, b=b)


def _texts(part: str, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    a, b = (getattr(print_, part) for print_ in (old, new))
    a, b = (" ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in (a, b))
    yield Difference(part=part, a=a, b=b)


def _versions(part: str, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    a, b = dict(old.versions), dict(new.versions)
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield Difference(part=f"version of {name}", a=a.get(name), b=b.get(name))


def _hardware(part: str, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    a, b = ("; ".join(_device_counts(print_.hardware)) for print_ in (old, new))
    yield Difference(part=part, a=a, b=b)


def _device_counts(devices: tuple[str, ...]) -> Iterator[str]:
    for device in dict.fromkeys(devices):
        yield f"{devices.count(device)} x {device}"


_PARTS = {
    "script": _digests,
    "hardware": _hardware,
    "versions": _versions,
}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
