"""State that a study derives from its records: trials as compared, the best, stages, curves.

Not: the next trial (Study), nor the trials to repeat (repeats).
"""

from __future__ import annotations

import heapq

from autoconf_launch.core import Layout

from ..measurement import Noise, NoiseTally, estimate_noise, measured_name
from ..space import Objective, Record, SearchSpace, StageProgress, is_better
from .pool import Grouping, Pool
from .repeats import Repeats, counts_instead, in_place_of


class Observations:
    """Takes every trial once; if a repeat replaces its trial, everything is learned anew."""

    def __init__(
        self, space: SearchSpace, pool: Pool, groups: Grouping, objective: Objective
    ) -> None:
        self._pool, self._groups, self._objective = pool, groups, objective
        stages = {groups.of(space.baseline.layout), *groups.of_rows(space.table).tolist()}
        self._numbers = sorted(stages)
        self._records: list[Record] = []
        self._doubted: dict[str, Record] = {}
        self._tally = NoiseTally()
        self._noise: Noise | None = None
        self.repeats = Repeats(objective)
        """The launches that were repeated, and those that are due."""
        self._start_over()

    def _start_over(self) -> None:
        self.stages: dict[int, StageProgress] = {
            number: self._groups.start(number) for number in self._numbers
        }
        self._compared: list[Record] = []
        self._layouts: dict[int, dict[Layout, tuple[float, int]]] = {}
        self._best: int | None = None
        self._pool.forget_speeds()

    @property
    def records(self) -> tuple[Record, ...]:
        """All trials as they were measured, in order."""
        return tuple(self._records)

    @property
    def compared(self) -> tuple[Record, ...]:
        """The records as they are compared; see :mod:`.repeats`."""
        return tuple(self._compared)

    @property
    def noise(self) -> Noise:
        """The noise of all launches."""
        if self._noise is None:
            self._noise = self._tally.noise
        return self._noise

    @property
    def best(self) -> Record | None:
        """The best trial as it was measured; the earlier one if two are equal."""
        return None if self._best is None else self._records[self._best]

    @property
    def best_compared(self) -> Record | None:
        """The best record as it is compared with all others."""
        return None if self._best is None else self._compared[self._best]

    def tell(self, record: Record) -> None:
        """Take a trial or a repeat, which may change the time of its trial."""
        self._noise = None
        self._tally.add(record)
        if record.trial.again:
            self._tell_again(record)
            return
        self._records.append(record)
        doubt = self._doubted.get(record.trial.name)
        compared = in_place_of(record, doubt) if doubt else record
        self.repeats.tell(compared, self._compared)
        self._take(compared)

    def _tell_again(self, record: Record) -> None:
        self.repeats.tell_again(record)
        name, known = measured_name(record.trial.name), self._records[: record.trial.again]
        trial = next((one for one in reversed(known) if one.trial.name == name), None)
        if trial is None or not counts_instead(record, trial, estimate_noise(known)):
            return
        self._doubted[name] = record
        self._start_over()
        for one in self._records:
            doubt = self._doubted.get(one.trial.name)
            self._take(in_place_of(one, doubt) if doubt else one)

    def _take(self, record: Record) -> None:
        self._pool.learn(record)
        layout, space = record.trial.candidate.layout, record.trial.space
        group = self._groups.of(layout)
        progress = self.stages.get(group, StageProgress(name=space))
        further = self._pool.is_further(record.trial.candidate)
        if not further:
            self._rank_layout(record, self._layouts.setdefault(group, {}))
        self.stages[group] = progress.after(record, self._objective, further=further)
        if is_better(record, self.best_compared, self._objective):
            self._best = len(self._compared)
        self._compared.append(record)

    def best_layouts(self, group: int, most: int) -> tuple[Layout, ...]:
        """Layouts of a group with default values of all other knobs, the best first."""
        ranks = self._layouts.get(group, {})
        return tuple(heapq.nsmallest(most, ranks, key=lambda layout: ranks[layout]))

    def _rank_layout(self, record: Record, ranks: dict[Layout, tuple[float, int]]) -> None:
        """Rank a layout by its best trial; the earlier layout is the better of equal ones."""
        value = self._objective.of(record)
        if value is None:
            return
        rank = -value if self._objective.higher_is_better else value, len(self._compared)
        layout = record.trial.candidate.layout
        ranks[layout] = min(rank, ranks.get(layout, rank))
