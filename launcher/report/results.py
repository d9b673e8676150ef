"""Trials of tuning runs, one run's and two side by side, as text, documents and CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.measurement import (
    AGAIN_SUFFIX,
    FINAL_SUFFIX,
    measured_name,
)
from autoconf_launch.autotuner.playoff import SOAK_SUFFIX, Summary
from autoconf_launch.autotuner.search import drift
from autoconf_launch.autotuner.space import (
    Measurement,
    Objective,
    Prediction,
    Record,
    Trial,
    candidate_name,
)
from autoconf_launch.core import encode, plural

from ..results import Comparison, Difference, FolderState, Pair, Results, SpeedVerdict, Started
from .cells import (
    csv_text,
    label,
    launch_label,
    memory_text,
    number_text,
    seconds_text,
    speed_up_text,
    step_text,
)
from .search import drift_findings, findings, labels
from .summary import (
    COMPUTED,
    SCHEMA_VERSION,
    first_part,
    scale_text,
    second_part,
    speed_text,
)
from .tables import (
    Column,
    csv_rows,
    each,
    rows_cells,
    rows_documents,
    rows_text,
)

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
ABOVE_PEAK = "FLOPS above the peak of its GPUs: their count or the step time is wrong"
_SEARCH, _PLAYOFF, _VERIFICATION = "search", "playoff", "verification run"
_WORDS = {"a": "A", "b": "B", "tie": "tie"}


class RowKind(Enum):
    """Meaning of a row; views colour by it."""

    RUNNING = "running"
    MEASURED = "measured"
    BEST = "best"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial as it is shown.

    Attributes:
        record: its record; None until it has ended.
        judged_in: the launches that its speed comes from, or that it is computed.
    """

    number: int
    label: str
    status: str
    kind: RowKind = RowKind.RUNNING
    prediction: Prediction | None = None
    record: Record | None = None
    judged_in: str = _SEARCH

    @property
    def measurement(self) -> Measurement | None:
        return self.record.measurement if self.record else None

    @property
    def detail(self) -> str | None:
        """Reason of its failure, or doubts about its result."""
        if self.record and self.record.failure:
            return self.record.failure.detail
        return ABOVE_PEAK if self.measurement and self.measurement.above_peak else None

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells in the order of ``HEADERS``."""
        return tuple(cells[0] for cells in rows_cells(TRIAL_COLUMNS, [self]).values())


def _outcome_of(answer: Any, row: TrialRow) -> str | None:
    failure = row.record.failure if row.record else None
    return failure.kind.value if failure else "measured" if row.measurement else None


TRIAL_COLUMNS = (
    each("number", "", "trial"),
    each("", "label", "config", is_left=True),
    each("name", lambda a, row: row.record and candidate_name(row.record.trial.candidate)),
    each("space", "record.trial.space"),
    each("outcome", _outcome_of),
    each("judged_in", lambda a, row: row.judged_in if row.measurement else None),
    each("predicted_step_s", "prediction.step_s", "predicted", seconds_text),
    each("predicted_peak_bytes", "prediction.peak_bytes"),
    each(
        *("latency_ms", "measurement.mean_step_s", "measured", seconds_text),
        data=lambda step_s: 1e3 * step_s,
    ),
    each(
        *("throughput", "measurement.throughput_per_s", "samples/s"),
        shown=lambda speed: f"{speed:.2f}",
    ),
    each("flops_per_gpu", "measurement.flops_per_gpu_per_s"),
    each(
        *("peak_bytes", "record.outcome.memory", "memory", memory_text),
        data=lambda memory: memory.peak_bytes,
    ),
    each("wall_s", "record.wall_s"),
    each("", "status", "status", is_left=True),
    each("detail"),
)
HEADERS = tuple(column.header for column in TRIAL_COLUMNS if column.header)


def finished_row(
    record: Record, *, is_best: bool = False, status: str = "measured", judged_in: str = _SEARCH
) -> TrialRow:
    """The row of a trial that has ended."""
    kind = RowKind.BEST if is_best else RowKind.MEASURED
    status = "best" if is_best else status
    if record.failure:
        kind, status = RowKind.FAILED, record.failure.kind.value
    if record.measurement and record.measurement.above_peak:
        status = f"{status}, FLOPS > peak"
    row = running_row(record.trial, record.prediction, 0)
    return replace(row, status=status, kind=kind, record=record, judged_in=judged_in)


def running_row(trial: Trial, prediction: Prediction | None, step: int) -> TrialRow:
    """The row of a running trial; ``step`` is the last step of a rank, 0 before the first."""
    what = "second attempt" if trial.attempt > 1 else ""
    if not trial.is_of_search:
        what = launch_label(trial)
    name = f"{label(trial.candidate)}{what and f' ({what})'}"
    number, status = trial.number, step_text(step)
    return TrialRow(number=number, label=name, status=status, prediction=prediction)


def trials_csv(rows: Sequence[TrialRow], *, header: bool = True) -> str:
    """Content of ``trials.csv``."""
    return csv_text(csv_rows(TRIAL_COLUMNS, rows, header=header))


def trial_document(record: Record) -> dict[str, Any]:
    """The numbers of a trial as a JSON object."""
    return rows_documents(TRIAL_COLUMNS, [finished_row(record)])[0]


def results_text(results: Results, *, markdown: bool, details: bool = False) -> str:
    """State and result of a finished study, else the best so far; then every trial.

    ``details``: the second part of the summary, too.
    """
    summary = results.summary()
    rows = [*trial_rows(summary), *_open_rows(results, summary)]
    failures = "\n".join(f"{'- ' if markdown else ''}{line}" for line in _failures(results))
    text = results_answer(results, summary, trials_table(rows, markdown=markdown), failures)
    more = second_part(results.summary_text or "") if details else ""
    return f"{text}\n\n{more}".rstrip()


def results_answer(results: Results, summary: Summary, *more: str) -> str:
    """State, best so far and result of a study; findings come after more texts."""
    parts = (
        "\n".join(headlines(results, summary)),
        conclusion(results, details=False),
        *more,
        "\n".join(_new_findings(results, summary)),
    )
    return "\n\n".join(part for part in parts if part)


def _new_findings(results: Results, summary: Summary) -> list[str]:
    """Reasons why numbers of trials and of the best may differ, unless the summary has them."""
    said = results.summary_text or ""
    told = (scale_text(summary.decision), *findings(summary))
    return [sentence for sentence in told if sentence not in said]


def conclusion(results: Results, *, details: bool) -> str:
    """The summary once the study is over, its second part only with ``details``."""
    text = results.summary_text or ""
    return (text if details else first_part(text)).rstrip()


def headlines(results: Results, summary: Summary) -> list[str]:
    """Folder and progress of a tune, and the best so far."""
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


def trial_rows(summary: Summary) -> list[TrialRow]:
    """A row for each record, at its configuration's only speed."""
    decision, winner = summary.decision, summary.decision.winner
    judged = {
        name: COMPUTED if name in decision.computed else _PLAYOFF
        for name in (record.trial.name for record in decision.played)
    }
    if winner and judged and decision.is_verified:
        judged[winner.trial.name] = _VERIFICATION
    other = "search only" if judged else "measured"
    return [
        finished_row(
            record,
            is_best=winner is not None and record.trial == winner.trial,
            status=judged.get(record.trial.name, other),
            judged_in=judged.get(record.trial.name, _SEARCH),
        )
        for record in summary.shown
    ]


def _open_rows(results: Results, summary: Summary) -> list[TrialRow]:
    known = labels(summary)
    return [
        TrialRow(
            number=started.number,
            label=known.get(measured_name(started.name.removesuffix(SOAK_SUFFIX)), started.name),
            status=_open_status(results, started),
        )
        for started in _open(results)
    ]


def trials_table(rows: Sequence[TrialRow], *, markdown: bool) -> str:
    """An aligned table; a pipe table for Markdown."""
    if not rows:
        return "No trial has come back yet."
    return rows_text(TRIAL_COLUMNS, rows, markdown=markdown)


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
        "scale": scale_text(summary.decision) or None,
        "trials": rows_documents(TRIAL_COLUMNS, trial_rows(summary)),
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


def comparison_text(a: Results, b: Results, found: Comparison) -> str:
    """Differences, each candidate that both tried, and the faster run."""
    table = rows_text(_pair_columns(found.objective), found.pairs) if found.pairs else ""
    parts = (
        f"A: {_run(a)}\nB: {_run(b)}",
        "\n".join(_difference_lines(found)),
        table or "No candidate was tried in both.",
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
    """Content of ``compare --json``; ratios are B over A, above 1 if B is better."""
    columns = _pair_columns(found.objective)
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _run_document(a),
        "b": _run_document(b),
        "metric": found.objective.name,
        "unit": found.objective.unit,
        "faster": found.best.verdict and found.best.verdict.value if found.best else None,
        "best": next(iter(rows_documents(columns, [found.best] if found.best else [])), None),
        "common": rows_documents(columns, found.pairs),
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


def _pair_columns(objective: Objective) -> tuple[Column, ...]:
    def outcome(record: Record) -> dict[str, Any]:
        kind = record.failure.kind.value if record.failure else None
        name, value = record.trial.name, objective.metric_of(record)
        return {"name": name, "value": value, "failure": kind}

    return (
        each("", lambda a, pair: label(pair.a.trial.candidate), "config", is_left=True),
        each("a", lambda a, pair: outcome(pair.a), f"A {objective.unit}", _outcome_text),
        each("b", lambda a, pair: outcome(pair.b), f"B {objective.unit}", _outcome_text),
        each("ratio", "", "B / A", lambda found: f"{found.ratio:.2f}", data=encode),
        each("", "ratio", "95 % interval", lambda x: f"{x.low:.2f} to {x.high:.2f}", is_left=True),
        each("faster", "verdict.value", "faster", _WORDS.__getitem__, omit="tie", is_left=True),
    )


def _outcome_text(found: dict[str, Any]) -> str:
    value = found["value"]
    return number_text(value) if value is not None else found["failure"] or "-"


def _run(results: Results) -> str:
    count = len(results.contents.records)
    return f"{results.folder}, {results.state.value}, {plural(count, 'trial')}"


def _difference_lines(found: Comparison) -> Iterator[str]:
    if not found.differences:
        yield "Script, configuration, hardware and versions are the same."
        return
    yield "Differences between A and B:"
    for one in found.differences:
        yield f"  {one.part}: {one.a or '(not there)'} -> {one.b or '(not there)'}"


def _again(name: str, run: Results) -> Iterator[str]:
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
        value = number_text(found.objective.metric_of(record) or math.nan)
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
