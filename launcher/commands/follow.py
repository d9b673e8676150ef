"""A tune's events by what its journal says, while it is written. Not: how they are shown."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate

from autoconf_launch.autotuner.measurement import EFFORTS, estimate_noise
from autoconf_launch.autotuner.playoff import (
    Playoff,
    Summary,
    best_of,
    playoff_s,
    replay_rounds,
    round_times_s,
)
from autoconf_launch.autotuner.space import Record

from ..events import Event, Finished, RoundFinished, TrialFinished, TuneBegun
from ..results import FolderState, JournalContents, Results, is_held, read_journal
from ..tuning import standings_of

LOOK_EVERY_S = 0.5
"""Between two looks, each of them one ``stat``."""


def follow_events(results: Results) -> Iterator[Event]:
    """What a tune does, until nobody holds its folder; what it did before at once.

    Launches are seen when they come back: what runs is not in the journal.
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
                yield from followed.new(read_journal(results.paths.journal))
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
        self._effort = EFFORTS[results.effort]
        self._counts = (0, 0, 0)
        self._rounds = 0
        self._best: Record | None = None

    def new(self, contents: JournalContents) -> Iterator[Event]:
        """Events of what came back since the last call; all of a folder that starts anew."""
        parts = (contents.told, contents.finals, contents.soaks)
        if any(len(part) < count for part, count in zip(parts, self._counts, strict=True)):
            self._counts, self._rounds, self._best = (0, 0, 0), 0, None
        times = (contents.search, contents.rounds, contents.soaking)
        lasts_s = [part.spent_s for part in times]
        before_s = [0.0, *accumulate(lasts_s[:2])]
        for place, (records, earlier) in enumerate(zip(parts, times, strict=True)):
            first = self._counts[place]
            for record, time_s in [*zip(records, earlier.times_s, strict=True)][first:]:
                yield self._finished(record, before_s[place] + time_s)
            if place == 1 and len(records) > first:
                yield from self._round(contents, before_s[1] + lasts_s[1])
        self._counts = (len(parts[0]), len(parts[1]), len(parts[2]))

    def _finished(self, record: Record, elapsed_s: float) -> TrialFinished:
        trial = record.trial
        if not (trial.final or trial.again or trial.soak_steps):
            known = (record,) if self._best is None else (self._best, record)
            self._best = best_of(known, self._objective)
        return TrialFinished(record=record, best=self._best, elapsed_s=elapsed_s)

    def _round(self, contents: JournalContents, elapsed_s: float) -> Iterator[RoundFinished]:
        """The last round that is over, if it is a new one."""
        noise = estimate_noise(contents.told)
        rounds = replay_rounds(
            contents.records, contents.finals, self._objective, noise, self._effort
        )
        if rounds.rounds > self._rounds:
            self._rounds = rounds.rounds
            yield RoundFinished(
                number=rounds.rounds,
                rounds_in_time=self._in_time(rounds, contents.search.spent_s),
                elapsed_s=elapsed_s,
                standings=standings_of(rounds),
            )

    def _in_time(self, rounds: Playoff, search_s: float) -> int:
        times_s = round_times_s(rounds.records)
        round_s = sum(times_s) / len(times_s)
        in_time = math.ceil(playoff_s(search_s, self._effort) / max(round_s, 1e-9) - 0.5)
        return max(rounds.rounds, min(in_time, self._effort.most_rounds))
