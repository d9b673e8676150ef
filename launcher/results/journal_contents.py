"""What a journal says, as values. Not: its file (journal), nor what is decided from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.drift import timeline
from autoconf_launch.autotuner.noise import measured_name
from autoconf_launch.autotuner.trial import Record


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
    """A launch that was begun; without a record after it, it is an orphan."""

    name: str
    number: int
    attempt: str
    host: str
    pid: int | None
    start_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """What is searched: a hex digest, the name of trial 0, and names of trials outside of it."""

    digest: str
    baseline: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """What a journal says. ``finals`` measured again; ``orphans`` began and have no record.

    ``repeats`` measured again during the search, each after as many ``records`` as it says;
    ``soaks`` are the winner's longer launches; ``others`` are records outside of the ``space``.
    """

    fingerprint: Fingerprint | None = None
    space: SpaceLine | None = None
    records: tuple[Record, ...] = ()
    others: tuple[Record, ...] = ()
    repeats: tuple[Record, ...] = ()
    finals: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()
    orphans: tuple[Started, ...] = ()
    profiled: bool = False

    @property
    def history(self) -> tuple[Record, ...]:
        """All records, whatever is searched."""
        return (*self.records, *self.others)

    @property
    def search(self) -> JournalContents:
        """The search alone, its records with the repeats where they were made."""
        return replace(self, records=timeline(self.records, self.repeats), repeats=())

    def in_space(self, line: SpaceLine) -> JournalContents:
        """The same where another space is searched from here on.

        What was launched again at the end was chosen from other candidates, so it is left out.
        Trial 0 is the new one. Where it was not known what was searched, all that fits in counts.
        """
        if self.space is None and not line.left_out:
            return replace(self, space=line)
        inside = [r for r in self.history if r.trial.name not in line.left_out]
        return replace(
            self,
            space=line,
            records=_numbered(inside, line.baseline),
            others=tuple(r for r in self.history if r.trial.name in line.left_out),
            repeats=_placed(self, inside),
            finals=(),
            soaks=(),
        )


def _numbered(records: Sequence[Record], baseline: str) -> tuple[Record, ...]:
    """Number 0 for the baseline alone; one that was it is numbered after all others."""
    last = max((record.trial.number for record in records), default=0)

    def numbered(record: Record) -> Record:
        is_baseline = record.trial.name == baseline
        if is_baseline == (record.trial.number == 0):
            return record
        number = 0 if is_baseline else last + 1
        return replace(record, trial=replace(record.trial, number=number))

    return tuple(map(numbered, records))


def _placed(before: JournalContents, inside: Sequence[Record]) -> tuple[Record, ...]:
    """Repeats of records that still count, each after those of them that it came after."""
    names = {record.trial.name for record in inside}
    kept: list[Record] = []
    for repeat in before.repeats:
        count = sum(r.trial.name in names for r in before.records[: repeat.trial.again])
        if measured_name(repeat.trial.name) in names and count:
            kept.append(replace(repeat, trial=replace(repeat.trial, again=count)))
    return tuple(kept)
