"""What a journal says, as values. Not: its file (journal), nor what is decided from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from autoconf_launch.autotuner.noise import measured_name
from autoconf_launch.autotuner.past import PastTime
from autoconf_launch.autotuner.trial import Record

from .launch_times import CoveredTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must be equal for two measurements to count as of the same thing; digests are hex."""

    script: str
    arguments: tuple[str, ...]
    config: str
    hardware: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launch that was begun; without a record after it, it is an orphan.

    ``before_s`` are the seconds of the study before the part that it is of: search, rounds or
    soak. None in journals of before.
    """

    name: str
    number: int
    attempt: str
    host: str
    pid: int | None
    start_unix_s: float
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStart:
    """When the launch began that a record is of."""

    name: str
    attempt: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """What is searched: a hex digest, the name of trial 0, and names of trials outside of it."""

    digest: str
    baseline: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What a controller goes on from: records in the order in which they came back."""

    records: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    starts: tuple[LaunchStart, ...] = ()

    @property
    def spent_s(self) -> float:
        """Seconds that launches took until the last record."""
        return max(self.times_s, default=0.0)

    @property
    def times_s(self) -> tuple[float, ...]:
        """Seconds that launches had taken when each record came back.

        Those side by side count once, as far as it is known when they began.
        """
        unix_s = {(start.name, start.attempt): start.unix_s for start in self.starts}
        covered, others_s = CoveredTime(), 0.0
        times_s = []
        for record in self.records:
            start_s = unix_s.get(_key(record))
            if start_s is None:
                others_s += record.wall_s
            else:
                covered.add(start_s, start_s + record.wall_s)
            times_s.append(covered.total_s + others_s)
        return tuple(times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """What a journal says. ``finals`` measured again; ``orphans`` began and have no record.

    ``told`` is the search in the order in which it came back, what it launched again included;
    ``soaks`` are the winner's longer launches; ``others`` are records outside of the ``space``.
    ``searched_s`` are the seconds of the search before the rounds after it began. ``past`` is what
    earlier studies had measured when this one began.
    """

    fingerprint: Fingerprint | None = None
    space: SpaceLine | None = None
    told: tuple[Record, ...] = ()
    others: tuple[Record, ...] = ()
    finals: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    starts: tuple[LaunchStart, ...] = ()
    searched_s: float | None = None
    profiled: bool = False
    past: tuple[PastTime, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        """Trials of the search, in order."""
        return tuple(record for record in self.told if not record.trial.again)

    @property
    def repeats(self) -> tuple[Record, ...]:
        """What the search launched again, in order."""
        return tuple(record for record in self.told if record.trial.again)

    @property
    def history(self) -> tuple[Record, ...]:
        """All trials, whatever is searched."""
        return (*self.records, *self.others)

    @property
    def search(self) -> Earlier:
        """The search, its repeats where they came back."""
        return self._earlier(self.told)

    @property
    def rounds(self) -> Earlier:
        """What was measured again after it."""
        return self._earlier(self.finals)

    @property
    def soaking(self) -> Earlier:
        """The winner's longer launches."""
        return self._earlier(self.soaks)

    def _earlier(self, records: tuple[Record, ...]) -> Earlier:
        return Earlier(records=records, orphans=self.orphans, starts=self.starts)

    def in_space(self, line: SpaceLine) -> JournalContents:
        """The same where another space is searched from here on.

        What was launched again at the end was chosen from other candidates, so it is left out.
        Trial 0 is the new one. Where it was not known what was searched, all that fits in counts.
        """
        if self.space is None and not line.left_out:
            return replace(self, space=line)
        back = (record for record in self.others if record.trial.name not in line.left_out)
        return replace(
            self,
            space=line,
            told=_numbered((*_kept(self.told, line.left_out), *back), line.baseline),
            others=tuple(r for r in self.history if r.trial.name in line.left_out),
            finals=(),
            soaks=(),
            searched_s=None,
        )


def _key(record: Record) -> tuple[str, int]:
    return record.trial.name, record.trial.attempt


def _kept(told: Sequence[Record], left_out: Sequence[str]) -> Iterator[Record]:
    """What still counts; repeats say how many trials that count had come back before them."""
    trials = [record for record in told if not record.trial.again]
    counts = [0, *accumulate(record.trial.name not in left_out for record in trials)]
    for record in told:
        before = counts[min(record.trial.again, len(trials))]
        if measured_name(record.trial.name) in left_out:
            continue
        if not record.trial.again:
            yield record
        elif before:
            yield replace(record, trial=replace(record.trial, again=before))


def _numbered(told: Sequence[Record], baseline: str) -> tuple[Record, ...]:
    """Number 0 for the baseline alone; one that was it is numbered after all others."""
    last = max((record.trial.number for record in told), default=0)

    def numbered(record: Record) -> Record:
        is_baseline = measured_name(record.trial.name) == baseline
        if is_baseline == (record.trial.number == 0):
            return record
        number = 0 if is_baseline else last + 1
        return replace(record, trial=replace(record.trial, number=number))

    return tuple(map(numbered, told))
