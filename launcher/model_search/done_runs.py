"""What came back from the runs of a search, as a value. Not: running them, nor what it means."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.autotuner.stop import StopReason
from autoconf_launch.autotuner.trial import Record

from .candidates import SearchCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRuns:
    """What came back.

    Attributes:
        candidates: that were to be run, in order.
        records: of the search; ``finals`` of the best, measured again in turn.
        ruled_out: names that were not started, each with the failure that rules it out.
        too_slow: not started, as a few micro-batches would surely overrun the minutes of a run.
    """

    candidates: tuple[SearchCandidate, ...]
    records: tuple[Record, ...]
    finals: tuple[Record, ...]
    ruled_out: tuple[tuple[str, Record], ...]
    too_slow: tuple[SearchCandidate, ...]
    stop: StopReason
