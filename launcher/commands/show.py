"""``show``: a results folder, while it is tuned and after.

``show RESULTS [--details] [--format table|md|csv|json] [--json] [--follow] [--html FILE]``
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autoconf_launch.autotuner.space import Trial
from autoconf_launch.core import ConfigError

from ..events import Finished, TrialFinished
from ..live import can_draw, open_live
from ..pages import tune_page, write_page
from ..report import (
    CSV_COLUMNS,
    SCHEMA_VERSION,
    LinesView,
    comparison_document,
    comparison_text,
    conclusion,
    csv_row,
    csv_text,
    different_trainings_text,
    headlines,
    results_document,
    results_text,
    trial_document,
    wrap_sentences,
)
from ..results import (
    Results,
    compare_results,
    read_results,
    training_differences,
)
from .follow import end_event, follow_events
from .parsers import LINE_FORMS, TABLE_FORMS, compare_parser, show_parser

SPACES = "spaces"


def show(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print, in pieces that come as they are known.

    Raises:
        ConfigError: wrong arguments, or the folder is not a results folder.
        ResultsFolderError: its journal is damaged.
    """
    if arguments and arguments[0] == SPACES:
        return  # a verb of its own; a folder of that name is ./spaces
    flags = show_parser().parse_args(arguments)
    form = "json" if flags.json else flags.format or "table"
    _require_use(flags, form)
    pieces = _pieces(flags, form)
    if form == "table" and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        yield from (wrap_sentences(piece, width) for piece in pieces)
    else:
        yield from pieces


def _pieces(flags: Namespace, form: str) -> Iterator[str]:
    results = read_results(Path(flags.results))
    if flags.html is not None:
        write_page(tune_page(results), flags.html)
        yield f"Written: {flags.html}"
    elif flags.follow:
        yield from _follow(results, form, details=flags.details)
    elif form in TABLE_FORMS:
        yield results_text(results, markdown=form == "md", details=flags.details)
    else:
        yield _FORMS[form](results)


def _require_use(flags: Namespace, form: str) -> None:
    """Refuse flags that the form of the answer has no place for."""
    if flags.html is not None and (flags.follow or flags.details):
        flag = "--follow" if flags.follow else "--details"
        raise ConfigError(f"--html writes all of a tune as it is now; omit {flag}.")
    if flags.details and form in LINE_FORMS:
        raise ConfigError(f"--details adds to a table, but the form is {form}; omit one of them.")


def _csv(results: Results) -> str:
    rows = map(csv_row, results.contents.records)
    return csv_text((CSV_COLUMNS, *rows)).rstrip("\n")


_FORMS: dict[str, Callable[[Results], str]] = {
    "csv": _csv,
    "json": lambda results: json.dumps(results_document(results), indent=2),
}


def _follow(results: Results, form: str, *, details: bool) -> Iterator[str]:
    """What the tune does, as it says it itself, then how it ended."""
    if form == "md":
        raise ConfigError("--follow shows lines and md is one table; use table, csv or json.")
    if form != "table":
        yield from _followed_trials(results, form)
        return
    if can_draw((sys.stdout,), os.environ):
        with open_live() as view:
            for event in follow_events(results):
                view.handle(event)
            view.handle(_end(results, details=details))
        return
    said: list[str] = []
    lines = LinesView(said.append, quiet=False, level="info")
    for event in follow_events(results):
        lines.handle(event)
        yield from said
        said.clear()
    yield _end(results, details=details).text


def _end(results: Results, *, details: bool) -> Finished:
    end = read_results(results.paths.results)
    summary = end.summary()
    said = ("\n".join(headlines(end, summary)), conclusion(end, details=details))
    return end_event(end, summary, "\n\n".join(filter(None, said)))


def _followed_trials(results: Results, form: str) -> Iterator[str]:
    """One line per trial of the search."""
    if form == "csv":
        yield csv_text((CSV_COLUMNS,)).rstrip("\n")
    for event in follow_events(results):
        if isinstance(event, TrialFinished) and _is_trial(event.record.trial):
            record = event.record
            document = {"schema_version": SCHEMA_VERSION, "trial": trial_document(record)}
            row = csv_text((csv_row(record),)).rstrip("\n")
            yield row if form == "csv" else json.dumps(document)


def _is_trial(trial: Trial) -> bool:
    """Whether it is one of the search, the first of its configuration."""
    return not (trial.again or trial.final or trial.soak_steps)


def compare(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, a folder is not a results folder, or they are of different
            trainings.
        ResultsFolderError: a journal is damaged.
    """
    flags = compare_parser().parse_args(arguments)
    a, b = read_results(Path(flags.a)), read_results(Path(flags.b))
    if unlike := training_differences(a, b):
        raise ConfigError(different_trainings_text(unlike))
    found = compare_results(a, b)
    if flags.json:
        yield json.dumps(comparison_document(a, b, found), indent=2)
    else:
        yield comparison_text(a, b, found)
