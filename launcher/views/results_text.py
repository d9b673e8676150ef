"""A results folder, finished or not, as text or one document. Not: the reading of it."""

from __future__ import annotations

from collections.abc import Sequence

from autoconf_launch.autotuner.summary import Summary
from autoconf_launch.autotuner.trial import Record
from autoconf_launch.core import encode

from ..results.journal import Started
from ..results.read_results import FolderState, Results
from .cells import HEADERS, TrialRow, finished_row, open_row, seconds_text, step_text
from .duration import plural
from .summary_text import SCHEMA_VERSION, first_part, speed_up_text
from .tables import table_of
from .trials_csv import trial_document

_ALIGN = ("right", "left", "right", "right", "right", "right", "left")
_AFTER = {
    FolderState.RUNNING: "running",
    FolderState.FINISHED: "finished",
    FolderState.STOPPED: "stopped before its end; the same command goes on from here",
}


def results_text(results: Results, *, markdown: bool, details: bool = False) -> str:
    """State, best so far, every trial; the result where the study is over.

    ``details``: the second part of the summary, too.
    """
    summary = results.summary()
    parts = [
        "\n".join(headlines(results, summary)),
        trials_table(trial_rows(results, summary), markdown=markdown),
        "\n".join(f"{'- ' if markdown else ''}{line}" for line in _failures(results)),
        "\n".join(_found(results, summary)),
        conclusion(results, details=details),
    ]
    return "\n\n".join(part for part in parts if part)


def _found(results: Results, summary: Summary) -> list[str]:
    """Why numbers of trials and of the best may differ, unless the kept summary says so."""
    said = results.summary_text or ""
    return [sentence for sentence in summary.findings if sentence not in said]


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
    first = f"{results.folder}: {_AFTER[results.state]}, {trials}{again}."
    is_below = "\nBest: " in f"\n{results.summary_text or ''}"
    return [first, _best(summary)] if summary.winner and not is_below else [first]


def trial_rows(results: Results, summary: Summary) -> list[TrialRow]:
    """One row per record, then one per trial that was started and has none."""
    rows = [finished_row(r, is_best=_is_best(r, summary)) for r in results.contents.records]
    opened = [open_row(o.number, o.name, _open_status(results, o)) for o in _open(results)]
    return [*rows, *opened]


def _is_best(record: Record, summary: Summary) -> bool:
    """The winner is the same trial, maybe with the steps of its rounds."""
    return summary.winner is not None and record.trial == summary.winner.trial


def trials_table(rows: Sequence[TrialRow], *, markdown: bool) -> str:
    """An aligned table; a pipe table for Markdown."""
    if not rows:
        return "No trial has come back yet."
    cells = [row.cells for row in rows]
    return table_of(cells, HEADERS, _ALIGN, markdown=markdown)


def results_document(results: Results) -> dict[str, object]:
    """Content of ``show --json``; trials have the columns of ``trials.csv``."""
    summary = results.summary()
    return {
        "schema_version": SCHEMA_VERSION,
        "folder": results.folder,
        "state": results.state.value,
        "metric": summary.metric,
        "unit": summary.unit,
        "best": summary.winner.trial.name if summary.winner else None,
        "baseline": summary.baseline.trial.name if summary.baseline else None,
        "speed_up": encode(summary.speed_up),
        "findings": list(summary.findings),
        "duration_s": results.duration_s,
        "spaces": [encode(row) for row in summary.rows],
        "trials": [trial_document(record) for record in results.contents.records],
        "open": [
            {"number": o.number, "name": o.name, "step": results.last_step(o.name)}
            for o in _open(results)
        ],
    }


def _open(results: Results) -> tuple[Started, ...]:
    return () if results.state is FolderState.FINISHED else results.contents.orphans


def _open_status(results: Results, started: Started) -> str:
    if results.state is FolderState.RUNNING:
        return step_text(results.last_step(started.name))
    return "interrupted"


def _best(summary: Summary) -> str:
    winner = summary.winner
    assert winner is not None
    value = f"{summary.rows[-1].best_metric_val:.4g} {summary.unit}"
    line = f"Best: {winner.trial.name}, {value}"
    if winner.measurement and summary.metric != "latency":
        line += f", {seconds_text(winner.measurement.mean_step_s)} per step"
    if summary.speed_up is None or summary.baseline is winner or summary.baseline is None:
        return f"{line}."
    return f"{line}, {speed_up_text(summary.speed_up, 'your configuration')}."


def _failures(results: Results) -> list[str]:
    return [
        f"{record.trial.name}: {record.failure.kind.value}, {record.failure.detail}"
        for record in results.contents.search.records
        if record.failure
    ]
