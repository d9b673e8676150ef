"""``show``: a results folder, while it is tuned and after.

``show RESULTS [--details] [--format table|md|csv|json] [--json] [--follow] [--html FILE]``
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from autoconf_launch.autotuner.measurement import EFFORTS, estimate_noise
from autoconf_launch.autotuner.playoff import (
    Summary,
    best_of,
    rounds_of,
)
from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import ConfigError

from ..asked import TABLE_FORMS, CompareCommand, ShowCommand, read_flags
from ..events import Event, Finished, RoundFinished, TrialFinished, TuneBegun
from ..live import LinesView, can_draw, open_live, wrap_sentences
from ..pages import tune_page, write_page
from ..report import (
    SCHEMA_VERSION,
    comparison_document,
    comparison_text,
    conclusion,
    different_trainings_text,
    finished_row,
    headlines,
    results_document,
    results_text,
    trial_document,
    trial_rows,
    trials_csv,
)
from ..results import (
    FolderState,
    JournalContents,
    Results,
    compare_results,
    is_held,
    read_journal,
    read_results,
    training_differences,
)
from ..tuning import standings_of

SPACES = "spaces"
LOOK_EVERY_S = 0.5
"""Between two looks, each of them one ``stat``."""


def show(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print, in pieces that come as they are known.

    Raises:
        ConfigError: wrong arguments, or the folder is not a results folder.
        ResultsFolderError: its journal is damaged.
    """
    if arguments and arguments[0] == SPACES:
        return  # a verb of its own; a folder of that name is ./spaces
    asked = read_flags(ShowCommand, arguments)
    pieces = _pieces(asked)
    if asked.form == "table" and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        yield from (wrap_sentences(piece, width) for piece in pieces)
    else:
        yield from pieces


def _pieces(asked: ShowCommand) -> Iterator[str]:
    results = read_results(asked.results)
    if asked.html is not None:
        write_page(tune_page(results), asked.html)
        yield f"Written: {asked.html}"
    elif asked.follow:
        yield from _follow(results, asked.form, details=asked.details)
    elif asked.form in TABLE_FORMS:
        yield results_text(results, markdown=asked.form == "md", details=asked.details)
    else:
        yield _FORMS[asked.form](results)


def _csv(results: Results) -> str:
    return trials_csv(trial_rows(results.summary())).rstrip("\n")


_FORMS: dict[str, Callable[[Results], str]] = {
    "csv": _csv,
    "json": lambda results: json.dumps(results_document(results), indent=2),
}


def _follow(results: Results, form: str, *, details: bool) -> Iterator[str]:
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
    end = read_results(Path(results.folder))
    summary = end.summary()
    said = ("\n".join(headlines(end, summary)), conclusion(end, details=details))
    return end_event(end, summary, "\n\n".join(filter(None, said)))


def _followed_trials(results: Results, form: str) -> Iterator[str]:
    if form == "csv":
        yield trials_csv([]).rstrip("\n")
    for event in follow_events(results):
        if isinstance(event, TrialFinished) and event.record.trial.is_of_search:
            record = event.record
            document = {"schema_version": SCHEMA_VERSION, "trial": trial_document(record)}
            row = trials_csv([finished_row(record)], header=False).rstrip("\n")
            yield row if form == "csv" else json.dumps(document)


def compare(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, a folder is not a results folder, or they are of different
            trainings.
        ResultsFolderError: a journal is damaged.
    """
    flags = read_flags(CompareCommand, arguments)
    a, b = read_results(flags.a), read_results(flags.b)
    if unlike := training_differences(a, b):
        raise ConfigError(different_trainings_text(unlike))
    found = compare_results(a, b)
    if flags.json:
        yield json.dumps(comparison_document(a, b, found), indent=2)
    else:
        yield comparison_text(a, b, found)


def follow_events(results: Results) -> Iterator[Event]:
    """Events of a tune until its folder is free; earlier events come at once.

    Launches are seen when they come back; the journal lacks running launches.
    """
    starts_s = [start.unix_s for start in results.contents.starts]
    is_running = results.state is FolderState.RUNNING
    spent_s = time.time() - min(starts_s) if starts_s and is_running else results.duration_s
    yield TuneBegun(effort=EFFORTS[results.effort], spent_s=spent_s)
    followed = _Followed(results)
    size = -1
    while True:
        more_to_come = is_held(results.paths.lease)  # asked first, so that the last ones count
        with suppress(OSError):  # it may just be moved aside
            now = results.paths.journal.stat().st_size
            if now != size:
                size = now
                yield from followed.new(
                    read_journal(results.paths.journal), is_over=not more_to_come
                )
        if not more_to_come:
            return
        time.sleep(LOOK_EVERY_S)


def end_event(results: Results, summary: Summary, text: str) -> Finished:
    """The end of a tune that was followed."""
    compared = tuple(summary.decision.compared.values())
    return Finished(text=text, winner=summary.decision.winner, compared=compared)


class _Followed:
    """Turns records that a journal has more than before into events."""

    def __init__(self, results: Results) -> None:
        self._objective = results.objective
        self._counts = (0, 0, 0)
        self._rounds = 0
        self._best: Record | None = None

    def new(self, contents: JournalContents, *, is_over: bool) -> Iterator[Event]:
        """Events of what came back since the last call; all of a folder that starts anew."""
        parts = (contents.told, contents.finals, contents.soaks)
        if any(len(part) < count for part, count in zip(parts, self._counts, strict=True)):
            self._counts, self._rounds, self._best = (0, 0, 0), 0, None
        times = (contents.search, contents.rounds, contents.soaking)
        lasts_s = [part.spent_s for part in times]
        before_s = [0.0, *accumulate(lasts_s[:2])]
        for place, (records, earlier) in enumerate(zip(parts, times, strict=True)):
            first = self._counts[place]
            if place == 2 and len(records) > first:
                yield from self._round(contents, before_s[2], is_over=True)
            for record, time_s in [*zip(records, earlier.times_s, strict=True)][first:]:
                yield self._finish(record, before_s[place] + time_s)
            if place == 1 and len(records) > first:
                now_s = before_s[1] + lasts_s[1]
                yield from self._round(contents, now_s, is_over=is_over or _is_whole(contents))
        self._counts = (len(parts[0]), len(parts[1]), len(parts[2]))

    def _finish(self, record: Record, elapsed_s: float) -> TrialFinished:
        trial = record.trial
        if trial.is_of_search:
            known = (record,) if self._best is None else (self._best, record)
            self._best = best_of(known, self._objective)
        return TrialFinished(record=record, best=self._best, elapsed_s=elapsed_s)

    def _round(
        self, contents: JournalContents, elapsed_s: float, *, is_over: bool
    ) -> Iterator[RoundFinished]:
        """The last round that is over, if it is a new one; launches of the next one show that."""
        if not contents.finals:
            return
        noise = estimate_noise(contents.told)
        rounds = rounds_of(contents.records, contents.finals, self._objective, noise)
        count = rounds.count(before=math.inf if is_over else _last_round(contents))
        if count > self._rounds:
            self._rounds = count
            yield RoundFinished(
                number=count,
                elapsed_s=elapsed_s,
                standings=standings_of(rounds),
            )


def _last_round(contents: JournalContents) -> int:
    return contents.finals[-1].trial.attempt


def _is_whole(contents: JournalContents) -> bool:
    """True if all launches of the last round are known to have ended."""
    number = _last_round(contents)
    last = [record.trial for record in contents.finals if record.trial.attempt == number]
    members = {trial.turn.next_name for trial in last if trial.turn}
    return bool(members) and members <= {trial.name for trial in last}
