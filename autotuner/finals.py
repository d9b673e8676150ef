"""Which trials are measured again at the end, alone, and what follows. Not: the search (Study).

Where trials ran side by side, the best of them and the baseline are measured again, and these
measurements decide. Otherwise the best one is only confirmed by a launch as the training's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from .cost.facts import TrainingFacts
from .noise import is_tie, speed_up
from .objective import Objective
from .settings import AutotuningSettings
from .stop import StopKind, StopReason
from .summary import Summary, best_of, summarise_records
from .trial import Record, Trial

FINALISTS = 3
CAUSELESS = 0.12
"""Trials minutes apart were seen to differ by as much without cause (DESIGN, rule 11)."""
_SUFFIX = "_final"


class Decider(Protocol):
    """What a controller asks and tells; see :class:`~.study.Study`."""

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """Trials to start now; none may mean to wait for pending ones."""

    def tell(self, record: Record) -> None:
        """Take an outcome."""

    def stop_reason(self) -> StopReason | None:
        """Why nothing more will be asked."""


class Finals:
    """Asks for the best trials once more, one after another, until ``wanted`` were measured.

    One that fails now gives its place to the next best. With several the baseline comes, too,
    so that what it is compared with was measured alike.
    """

    def __init__(self, records: Sequence[Record], objective: Objective, *, wanted: int) -> None:
        self._ranked = _ranked(records, objective)
        self._objective = objective
        self._wanted = wanted
        self._told: dict[str, Record] = {}
        self._pending = False

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told.values())

    @property
    def best(self) -> Record | None:
        """The best measured final so far."""
        return best_of(self._told.values(), self._objective)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next one, when none is running."""
        trial = self._next()
        if trial is None or self._pending or free_slots < 1:
            return ()
        self._pending = True
        return (trial,)

    def tell(self, record: Record) -> None:
        """Take the outcome of a final of this session or an earlier one."""
        self._pending = False
        if any(record.trial.name == _final(known.trial).name for known in self._ranked):
            self._told[record.trial.name] = record

    def stop_reason(self) -> StopReason | None:
        """That all were measured."""
        if self._pending or self._next() is not None:
            return None
        return StopReason(kind=StopKind.EXPLORED, sentence="The best trials were measured again.")

    def _next(self) -> Trial | None:
        measured = 0
        for record in self._ranked:
            trial = _final(record.trial)
            again = self._told.get(trial.name)
            due = measured < self._wanted or (trial.number == 0 and self._wanted > 1)
            if due and again is None:
                return trial
            measured += again is not None and again.measurement is not None
        return None


def settled(
    summary: Summary,
    records: Sequence[Record],
    finals: Sequence[Record],
    settings: AutotuningSettings,
    facts: TrainingFacts,
) -> Summary:
    """The summary with the choice that the finals lead to; rows of spaces stay as searched."""
    pool = _pool(records, finals)
    if pool == tuple(records):
        return summary
    chosen = summarise_records(pool, settings, duration_s=summary.duration_s, facts=facts)
    best = chosen.rows[-1]
    last = replace(
        summary.rows[-1],
        best_metric_val=best.best_metric_val,
        best_exp_name=best.best_exp_name,
        failure=best.failure,
    )
    return replace(
        summary,
        rows=(*summary.rows[:-1], last),
        winner=chosen.winner,
        baseline=chosen.baseline,
        speed_up=chosen.speed_up,
        ties=chosen.ties,
        learning_rate=chosen.learning_rate,
    )


def findings(
    records: Sequence[Record], finals: Sequence[Record], objective: Objective
) -> tuple[str, ...]:
    """A sentence on each thing that the finals show and the search did not."""
    return (*_failures(finals), *_surprise(records, finals, objective))


def _ranked(records: Sequence[Record], objective: Objective) -> tuple[Record, ...]:
    """Measured candidates once each, the best first; the earlier one where two are equal."""
    left = {r.trial.name: r for r in records if objective.of(r) is not None}
    ranked = []
    while (best := best_of(left.values(), objective)) is not None:
        ranked.append(left.pop(best.trial.name))
    return tuple(ranked)


def _final(trial: Trial) -> Trial:
    return replace(trial, name=f"{trial.name}{_SUFFIX}", attempt=1, final=True)


def _searched(record: Record) -> Record:
    """A final under the name of the trial that it measured again."""
    name = record.trial.name.removesuffix(_SUFFIX)
    return replace(record, trial=replace(record.trial, name=name, final=False))


def _pool(records: Sequence[Record], finals: Sequence[Record]) -> tuple[Record, ...]:
    """Records of one kind to choose from: finals where there are several, else the search's."""
    measured = tuple(_searched(record) for record in finals if record.measurement)
    if len(measured) > 1:
        return measured
    failed = {_searched(record).trial.name for record in finals if record.failure}
    return tuple(record for record in records if record.trial.name not in failed)


def _failures(finals: Sequence[Record]) -> tuple[str, ...]:
    return tuple(
        f"{_searched(record).trial.name} failed when it was launched again "
        f"({record.failure.kind.value}: {record.failure.detail}), so it was passed over."
        for record in finals
        if record.failure
    )


def _surprise(
    records: Sequence[Record], finals: Sequence[Record], objective: Objective
) -> tuple[str, ...]:
    measured = [_searched(record) for record in finals if record.measurement]
    before = {record.trial.name: record for record in records if record.measurement}
    if len(measured) > 1:
        first, best = best_of(before.values(), objective), best_of(measured, objective)
        if first and best and first.trial.name != best.trial.name:
            return (
                f"Measured again alone, {best.trial.name} is better than {first.trial.name}, "
                "which was best side by side with other trials.",
            )
        return ()
    gaps = (_gap(before[record.trial.name], record, objective) for record in measured)
    return tuple(gap for gap in gaps if gap)


def _gap(search: Record, final: Record, objective: Objective) -> str | None:
    """What to say where a launch of its own measures something else; None within the noise."""
    if search.measurement is None or final.measurement is None:
        return None
    ratio = speed_up(search.measurement, final.measurement, objective)
    if ratio is None or is_tie(search.measurement, final.measurement, objective):
        return None
    if abs(ratio.ratio - 1.0) <= CAUSELESS:
        return None
    values = [objective.of(record) or 0.0 for record in (search, final)]
    return (
        f"{final.trial.name} made {values[0]:.4g} {objective.unit} in its trial but "
        f"{values[1]:.4g} in a launch of its own, as the training will be: expect the latter."
    )
