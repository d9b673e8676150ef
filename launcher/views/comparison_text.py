"""Two tuning runs side by side as text and as one document. Not: the comparing (comparison)."""

from __future__ import annotations

from collections.abc import Iterator

from autoconf_launch.autotuner.objective import Objective
from autoconf_launch.autotuner.study_findings import repeat_findings
from autoconf_launch.autotuner.trial import Record
from autoconf_launch.core import encode

from ..results.comparison import Comparison, Difference, Pair, Verdict
from ..results.read_results import Results
from .duration import plural
from .summary_text import SCHEMA_VERSION, speed_up_text
from .tables import table_of

_ALIGN = ("left", "right", "right", "right", "left", "left")
_WORDS = {Verdict.A: "A", Verdict.B: "B", Verdict.TIE: "-", None: "-"}


def comparison_text(a: Results, b: Results, found: Comparison) -> str:
    """What differs, each candidate that both tried, and which run is faster."""
    parts = (
        f"A: {_run(a)}\nB: {_run(b)}",
        "\n".join(_difference_lines(found)),
        _table(found),
        "\n".join(_findings(found)),
        "\n".join((*_again("A", a), *_again("B", b))),
    )
    return "\n\n".join(part for part in parts if part)


def comparison_document(a: Results, b: Results, found: Comparison) -> dict[str, object]:
    """Content of ``compare --json``; ratios are B over A, above 1 where B is better."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": {"folder": a.folder, "state": a.state.value, "trials": len(a.contents.records)},
        "b": {"folder": b.folder, "state": b.state.value, "trials": len(b.contents.records)},
        "metric": found.objective.name,
        "unit": found.objective.unit,
        "faster": found.best.verdict and found.best.verdict.value if found.best else None,
        "best": _pair_document(found.best, found.objective) if found.best else None,
        "common": [_pair_document(pair, found.objective) for pair in found.pairs],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "differences": [encode(difference) for difference in found.differences],
    }


def _pair_document(pair: Pair, objective: Objective) -> dict[str, object]:
    return {
        "a": {"name": pair.a.trial.name, **_outcome(pair.a, objective)},
        "b": {"name": pair.b.trial.name, **_outcome(pair.b, objective)},
        "ratio": encode(pair.ratio),
        "faster": pair.verdict.value if pair.verdict else None,
    }


def _outcome(record: Record, objective: Objective) -> dict[str, object]:
    kind = record.failure.kind.value if record.failure else None
    return {"value": objective.of(record), "failure": kind}


def _run(results: Results) -> str:
    count = len(results.contents.records)
    return f"{results.folder}, {results.state.value}, {plural(count, 'trial')}"


def _difference_lines(found: Comparison) -> Iterator[str]:
    if not found.differences:
        yield "Script, configuration, hardware and versions are the same."
        return
    yield "Not the same in A and B:"
    yield from map(_difference_line, found.differences)


def _difference_line(difference: Difference) -> str:
    a, b = (value or "(not there)" for value in (difference.a, difference.b))
    return f"  {difference.part}: {a} -> {b}"


def _table(found: Comparison) -> str:
    if not found.pairs:
        return "No candidate was tried in both."
    unit = found.objective.unit
    headers = ("config", f"A {unit}", f"B {unit}", "B / A", "95 % interval", "faster")
    rows = [_row(pair, found.objective) for pair in found.pairs]
    return table_of(rows, headers, _ALIGN)


def _row(pair: Pair, objective: Objective) -> tuple[str, ...]:
    ratio = pair.ratio
    return (
        pair.a.trial.name,
        _value(pair.a, objective),
        _value(pair.b, objective),
        f"{ratio.ratio:.2f}" if ratio else "-",
        f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio else "-",
        _WORDS[pair.verdict],
    )


def _value(record: Record, objective: Objective) -> str:
    value = objective.of(record)
    if value is not None:
        return f"{value:.6g}"
    return record.failure.kind.value if record.failure else "-"


def _again(name: str, run: Results) -> Iterator[str]:
    """Why numbers here are others than those of its trials."""
    for sentence in repeat_findings(run.contents.records, run.contents.repeats):
        yield f"In {name}: {sentence}"


def _findings(found: Comparison) -> Iterator[str]:
    for name, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            yield f"Only in {name}: {', '.join(only)}."
    if found.pairs:
        yield (
            f"Tried in both: {len(found.pairs)}; faster in B: {found.count(Verdict.B)}, faster "
            f"in A: {found.count(Verdict.A)}, equal within noise: {found.count(Verdict.TIE)}."
        )
    yield from _best_lines(found)


def _best_lines(found: Comparison) -> Iterator[str]:
    best = found.best
    if best is None:
        yield "One of them measured nothing, so they cannot be compared."
        return
    for name, record in (("A", best.a), ("B", best.b)):
        value = _value(record, found.objective)
        yield f"Best of {name}: {record.trial.name}, {value} {found.objective.unit}."
    yield _conclusion(best)


def _conclusion(best: Pair) -> str:
    ratio = best.ratio
    if ratio is None:
        return "The best of A and of B cannot be compared."
    if best.verdict is Verdict.TIE:
        interval = f"ratio {ratio.low:.2f} to {ratio.high:.2f}"
        return f"A and B are equally fast within noise ({interval})."
    return f"The best of B is {speed_up_text(ratio, 'the best of A')}."
