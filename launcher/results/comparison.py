"""Two results folders side by side: which is faster, and what else differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from autoconf_launch.autotuner.measurement import (
    Noise,
    SpeedUp,
    is_tie,
    of_both,
    speed_up,
)
from autoconf_launch.autotuner.space import OBJECTIVES, Objective, Record
from autoconf_launch.core import dotted_name

from .folder import differences
from .journal import Fingerprint
from .reading import Results


class SpeedVerdict(str, Enum):
    """The faster of two runs, beyond the noise of both."""

    A = "a"
    B = "b"
    TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A record of each run. ``ratio`` is B over A in the metric's direction, above 1 better.

    ``ratio`` and ``verdict`` are None if one of them has no measurement.
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
    noise = of_both(of_a.noise, of_b.noise)

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
    """Why two runs are of different trainings, so that their speeds cannot be compared."""
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
            yield from _config(a, b)
        elif part == "script":
            yield _script(a, b)
        else:
            yield from _PARTS.get(part, _texts)(part, old, new)


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


def _script(a: Results, b: Results) -> Difference:
    if a.script and b.script and a.script != b.script:
        return Difference(part="script", a=a.script, b=b.script)
    name = a.script or b.script or "the script"
    return Difference(part="script", a=name, b=f"{name}, edited")


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
    "hardware": _hardware,
    "versions": _versions,
}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
