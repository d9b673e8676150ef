"""Two tuning runs side by side as text and as one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.autotuner.measurement import (
    AGAIN_SUFFIX,
    FINAL_SUFFIX,
    drift,
    measured_name,
)
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX, Summary
from autoconf_launch.autotuner.space import Objective, Record
from autoconf_launch.core import encode, plural

from ..results import Comparison, Difference, FolderState, Pair, Results, SpeedVerdict, Started
from .cells import (
    HEADERS,
    TrialRow,
    finished_row,
    label,
    number_text,
    open_row,
    speed_up_text,
    step_text,
    table_of,
    trial_document,
)
from .search import drift_findings, findings, labels
from .summary import SCHEMA_VERSION, first_part, second_part, speed_text

_RESULTS_TEXT_ALIGN = ("right", "left", "right", "right", "right", "right", "left")
_PURPOSES = (
    (SOAK_SUFFIX, "verification run"),
    (FINAL_SUFFIX, "playoff"),
    (AGAIN_SUFFIX, "re-measured"),
)
_AFTER = {
    FolderState.RUNNING: "running",
    FolderState.FINISHED: "finished",
    FolderState.STOPPED: "stopped before its end; the same command continues from here",
}


def results_text(results: Results, *, markdown: bool, details: bool = False) -> str:
    """State and the result where the study is over, else the best so far; then every trial.

    ``details``: the second part of the summary, too.
    """
    summary = results.summary()
    parts = [
        "\n".join(headlines(results, summary)),
        conclusion(results, details=False),
        trials_table(trial_rows(results, summary), markdown=markdown),
        "\n".join(f"{'- ' if markdown else ''}{line}" for line in _failures(results)),
        "\n".join(_new_findings(results, summary)),
        second_part(results.summary_text or "").rstrip() if details else "",
    ]
    return "\n\n".join(part for part in parts if part)


def results_answer(results: Results, summary: Summary) -> str:
    """State, best so far and result of a study, without the table of trials."""
    parts = (
        "\n".join(headlines(results, summary)),
        conclusion(results, details=False),
        "\n".join(_new_findings(results, summary)),
    )
    return "\n\n".join(part for part in parts if part)


def _new_findings(results: Results, summary: Summary) -> list[str]:
    """Why numbers of trials and of the best may differ, unless the kept summary says so."""
    said = results.summary_text or ""
    return [sentence for sentence in findings(summary) if sentence not in said]


def conclusion(results: Results, *, details: bool) -> str:
    """The summary once the study is over, its second part only with ``details``."""
    text = results.summary_text or ""
    return (text if details else first_part(text)).rstrip()


def headlines(results: Results, summary: Summary) -> list[str]:
    """Where and how far it is, and the best so far."""
    count = len(results.contents.records)
    trials = plural(count, "trial")
    repeats = len(results.contents.repeats)
    again = f", {repeats} re-measured" if repeats else ""
    is_refused = results.refused and results.state is FolderState.STOPPED
    state = "stopped by its budget" if is_refused else _AFTER[results.state]
    why = f" {results.refused}" if is_refused else ""
    first = f"{results.folder}: {state}, {trials}{again}.{why}"
    below = f"\n{results.summary_text or ''}"
    is_below = "\nBest: " in below or "\nRecommended: " in below
    return (
        [first, _best(results, summary)] if summary.decision.winner and not is_below else [first]
    )


def trial_rows(results: Results, summary: Summary) -> list[TrialRow]:
    """One row per record, at its configuration's one speed, then one per trial without any."""
    known = labels(summary)
    met = {measured_name(record.trial.name) for record in results.contents.finals}
    rows = [
        finished_row(
            record,
            is_best=_is_best(record, summary),
            in_playoff=record.trial.name in met,
        )
        for record in summary.shown
    ]
    opened = [
        open_row(o.number, known.get(_trial_name(o), o.name), _open_status(results, o))
        for o in _open(results)
    ]
    return [*rows, *opened]


def _trial_name(started: Started) -> str:
    """Name of the trial that a launch is of, or measures again."""
    return measured_name(started.name.removesuffix(SOAK_SUFFIX))


def _is_best(record: Record, summary: Summary) -> bool:
    """The winner is the same trial, maybe with the steps of its rounds."""
    return summary.decision.winner is not None and record.trial == summary.decision.winner.trial


def trials_table(rows: Sequence[TrialRow], *, markdown: bool) -> str:
    """An aligned table; a pipe table for Markdown."""
    if not rows:
        return "No trial has come back yet."
    cells = [row.cells for row in rows]
    return table_of(cells, HEADERS, _RESULTS_TEXT_ALIGN, markdown=markdown)


def results_document(results: Results) -> dict[str, object]:
    """Content of ``show --json``; trials have the columns of ``trials.csv``."""
    summary = results.summary()
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": results.folder,
        "state": results.state.value,
        "metric": summary.metric,
        "unit": summary.unit,
        "best": summary.decision.winner.trial.name if summary.decision.winner else None,
        "baseline": summary.baseline.trial.name if summary.baseline else None,
        "speed_up": encode(summary.decision.speed_up),
        "findings": list(findings(summary)),
        "duration_s": results.duration_s,
        "spaces": [encode(row) for row in summary.rows],
        "trials": [trial_document(record) for record in summary.shown],
        "open": [
            {"number": o.number, "name": o.name, "step": results.last_step(o.name)}
            for o in _open(results)
        ],
    }


def _open(results: Results) -> tuple[Started, ...]:
    return () if results.state is FolderState.FINISHED else results.contents.orphans


def _open_status(results: Results, started: Started) -> str:
    purpose = next((f"{what}, " for end, what in _PURPOSES if started.name.endswith(end)), "")
    if results.state is FolderState.RUNNING:
        return f"{purpose}{step_text(results.last_step(started.name))}"
    return f"{purpose}interrupted"


def _best(results: Results, summary: Summary) -> str:
    winner = summary.decision.winner
    assert winner is not None
    so_far = "" if results.state is FolderState.FINISHED else " so far"
    line = f"Best{so_far}: {label(winner.trial.candidate)}, {speed_text(summary)}"
    if summary.decision.speed_up is None or summary.baseline is winner or summary.baseline is None:
        return f"{line}."
    return f"{line}, {speed_up_text(summary.decision.speed_up, 'your configuration')}."


def _failures(results: Results) -> list[str]:
    return [
        f"{label(record.trial.candidate)} (its folder is {record.trial.name}): "
        f"{record.failure.kind.value}, {record.failure.detail}"
        for record in results.contents.search.records
        if record.failure
    ]


_ALIGN = ("left", "right", "right", "right", "left", "left")
_WORDS = {SpeedVerdict.A: "A", SpeedVerdict.B: "B", SpeedVerdict.TIE: "-", None: "-"}


def comparison_text(a: Results, b: Results, found: Comparison) -> str:
    """What differs, each candidate that both tried, and which run is faster."""
    parts = (
        f"A: {_run(a)}\nB: {_run(b)}",
        "\n".join(_difference_lines(found)),
        _table(found),
        "\n".join(_findings(found)),
        "\n".join((*_again("A", a), *_again("B", b))),
        "\n".join((*_impossible("A", a), *_impossible("B", b))),
    )
    return "\n\n".join(part for part in parts if part)


def different_trainings_text(unlike: Sequence[Difference]) -> str:
    """Why two runs are not compared."""
    parts = "; ".join(f"the {one.part} is {one.a} in A, {one.b} in B" for one in unlike)
    return f"A and B are different trainings, so their speeds cannot be compared: {parts}."


def comparison_document(a: Results, b: Results, found: Comparison) -> dict[str, object]:
    """Content of ``compare --json``; ratios are B over A, above 1 where B is better."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _run_document(a),
        "b": _run_document(b),
        "metric": found.objective.name,
        "unit": found.objective.unit,
        "faster": found.best.verdict and found.best.verdict.value if found.best else None,
        "best": _pair_document(found.best, found.objective) if found.best else None,
        "common": [_pair_document(pair, found.objective) for pair in found.pairs],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "differences": [encode(difference) for difference in found.differences],
    }


def _run_document(results: Results) -> dict[str, object]:
    return {
        "folder": results.folder,
        "state": results.state.value,
        "trials": len(results.contents.records),
        "impossible": results.impossible or None,
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
    return {"value": objective.metric_of(record), "failure": kind}


def _run(results: Results) -> str:
    count = len(results.contents.records)
    return f"{results.folder}, {results.state.value}, {plural(count, 'trial')}"


def _difference_lines(found: Comparison) -> Iterator[str]:
    if not found.differences:
        yield "Script, configuration, hardware and versions are the same."
        return
    yield "Differences between A and B:"
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
        label(pair.a.trial.candidate),
        _value(pair.a, objective),
        _value(pair.b, objective),
        f"{ratio.ratio:.2f}" if ratio else "-",
        f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio else "-",
        _WORDS[pair.verdict],
    )


def _value(record: Record, objective: Objective) -> str:
    value = objective.metric_of(record)
    if value is not None:
        return number_text(value)
    return record.failure.kind.value if record.failure else "-"


def _again(name: str, run: Results) -> Iterator[str]:
    """Why numbers here are others than those of its trials."""
    for sentence in drift_findings(drift(run.contents.records, run.contents.repeats)):
        yield f"In {name}: {sentence}"


def _impossible(name: str, run: Results) -> Iterator[str]:
    if run.impossible:
        yield f"In {name}, {run.impossible}"


def _findings(found: Comparison) -> Iterator[str]:
    for name, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            yield f"Only in {name}: {', '.join(only)}."
    if found.pairs:
        yield (
            f"Tried in both: {len(found.pairs)}; faster in B: {found.count(SpeedVerdict.B)}, "
            f"faster in A: {found.count(SpeedVerdict.A)}, "
            f"equal within noise: {found.count(SpeedVerdict.TIE)}."
        )
    yield from _best_lines(found)


def _best_lines(found: Comparison) -> Iterator[str]:
    best = found.best
    if best is None:
        yield "One of them measured nothing, so they cannot be compared."
        return
    for name, record in (("A", best.a), ("B", best.b)):
        value = _value(record, found.objective)
        best_label = label(record.trial.candidate)
        yield f"Best of {name}: {best_label}, {value} {found.objective.unit}."
    yield _conclusion(best)


def _conclusion(best: Pair) -> str:
    ratio = best.ratio
    if ratio is None:
        return "The best of A and of B cannot be compared."
    if best.verdict is SpeedVerdict.TIE:
        interval = f"ratio {ratio.low:.2f} to {ratio.high:.2f}"
        return f"A and B are equally fast within noise ({interval})."
    return f"The best of B is {speed_up_text(ratio, 'the best of A')}."
