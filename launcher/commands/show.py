"""``show``: a results folder, while it is tuned and after.

``show RESULTS [--details] [--format table|md|csv|json] [--json] [--follow] [--html FILE]``
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autoconf_launch.autotuner.playoff import best_of
from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import ConfigError

from ..events import TrialFinished
from ..pages import tune_page, write_page
from ..report import (
    CSV_COLUMNS,
    SCHEMA_VERSION,
    comparison_document,
    comparison_text,
    conclusion,
    csv_row,
    csv_text,
    different_trainings_text,
    failure_lines,
    headlines,
    results_document,
    results_text,
    trial_document,
    trial_line,
    wrap_sentences,
)
from ..results import (
    JournalTail,
    Results,
    compare_results,
    is_held,
    read_results,
    training_differences,
)
from .parsers import LINE_FORMS, TABLE_FORMS, compare_parser, show_parser

SPACES = "spaces"
LOOK_EVERY_S = 0.5
"""Between two looks of ``--follow``, each of them one ``stat``."""


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
    """One line per record, then how it ended."""
    if form == "md":
        raise ConfigError("--follow shows lines and md is one table; use table, csv or json.")
    if form == "csv":
        yield csv_text((CSV_COLUMNS,)).rstrip("\n")
    lines = _Lines(results, form)
    for record in _records_as_they_come(results):
        yield from lines.of(record)
    if form == "table":
        end = read_results(results.paths.results)
        yield "\n".join(headlines(end, end.summary()))
        if text := conclusion(end, details=details):
            yield f"\n{text}"


def _records_as_they_come(results: Results) -> Iterator[Record]:
    tail = JournalTail(results.paths.journal)
    while True:
        more_to_come = is_held(results.paths.lease)  # asked first, so that the last ones count
        yield from tail.new()
        if not more_to_come:
            return
        time.sleep(LOOK_EVERY_S)


class _Lines:
    """Records as lines; keeps what a line says of the ones before it."""

    def __init__(self, results: Results, form: str) -> None:
        self._objective = results.objective
        self._form = form
        self._best: Record | None = None
        self._elapsed_s = 0.0

    def of(self, record: Record) -> Iterator[str]:
        """The lines of one record."""
        self._elapsed_s += record.wall_s
        both = (record,) if self._best is None else (self._best, record)
        self._best = best_of(both, self._objective)
        if self._form == "csv":
            yield csv_text((csv_row(record),)).rstrip("\n")
        elif self._form == "json":
            yield json.dumps({"schema_version": SCHEMA_VERSION, "trial": trial_document(record)})
        else:
            yield trial_line(
                TrialFinished(record=record, best=self._best, elapsed_s=self._elapsed_s)
            )
            yield from failure_lines(record)[1:]


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
