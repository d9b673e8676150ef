"""Measurements of earlier studies of the same model on the same hardware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autoconf_launch.core import Candidate

from ..space import CandidateTable, Measurement, PredictionTable, Record, Trial, candidate_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTime:
    """Mean seconds of a step of a candidate; ``study`` is equal for times of one study."""

    candidate: Candidate
    step_s: float
    study: str = ""


def times_of(records: Sequence[Record]) -> tuple[PastTime, ...]:
    """Times for a later study."""
    return tuple(
        PastTime(candidate=record.trial.candidate, step_s=record.measurement.mean_step_s)
        for record in records
        if record.measurement
    )


def as_records(
    past: Sequence[PastTime],
    pool: CandidateTable,
    predictions: PredictionTable | None,
    history: Sequence[Record],
) -> tuple[Record, ...]:
    """Earlier times of candidates in the pool, as if measured now, with numbers below 0.

    Candidates that were measured then and now show how much the machine changed; a study without
    any is not used. The median of several studies counts.
    """
    if not past:
        return ()
    now_s = {r.trial.candidate: r.measurement.mean_step_s for r in history if r.measurement}
    ratios: dict[str, list[float]] = defaultdict(list)
    for one in past:
        if one.candidate in now_s:
            ratios[one.study].append(now_s[one.candidate] / one.step_s)
    times_s: dict[Candidate, list[float]] = defaultdict(list)
    for one in past:
        if one.study in ratios and one.candidate not in now_s:
            times_s[one.candidate].append(median(ratios[one.study]) * one.step_s)
    found = [(pool.find(candidate), candidate) for candidate in times_s]
    return tuple(
        _record(-1 - i, candidate, median(times_s[candidate]), predictions, int(rows[0]))
        for i, (rows, candidate) in enumerate(found)
        if len(rows)
    )


def _record(
    number: int,
    candidate: Candidate,
    step_s: float,
    predictions: PredictionTable | None,
    row: int,
) -> Record:
    layout = candidate.layout
    return Record(
        trial=Trial(
            number=number,
            name=candidate_name(candidate),
            candidate=candidate,
            space=f"z{layout.zero_stage}",
        ),
        outcome=Measurement(
            step_s=(step_s,),
            samples_per_step=layout.global_batch,
            world_size=layout.world_size,
        ),
        wall_s=0.0,
        prediction=None if predictions is None else predictions.row(row),
    )
