"""What earlier studies measured of the same model on the same hardware. Not: where it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Candidate

from ..space import CandidateTable, Measurement, PredictionTable, Record, Trial, candidate_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTime:
    """Mean seconds of a step of a candidate."""

    candidate: Candidate
    step_s: float


def times_of(records: Sequence[Record]) -> tuple[PastTime, ...]:
    """What a later study may learn from."""
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

    What was measured then and now tells by how much the machine is another; where nothing was,
    earlier times are of no use.
    """
    if not past:
        return ()
    now_s = {r.trial.candidate: r.measurement.mean_step_s for r in history if r.measurement}
    both = [now_s[one.candidate] / one.step_s for one in past if one.candidate in now_s]
    if not both:
        return ()
    factor = float(np.median(both))
    latest = {one.candidate: one for one in past if one.candidate not in now_s}
    found = [(pool.find(one.candidate), one) for one in latest.values()]
    return tuple(
        _record(-1 - i, replace(one, step_s=factor * one.step_s), predictions, int(rows[0]))
        for i, (rows, one) in enumerate(found)
        if len(rows)
    )


def _record(number: int, one: PastTime, predictions: PredictionTable | None, row: int) -> Record:
    layout = one.candidate.layout
    return Record(
        trial=Trial(
            number=number,
            name=candidate_name(one.candidate),
            candidate=one.candidate,
            space=f"z{layout.zero_stage}",
        ),
        outcome=Measurement(
            step_s=(one.step_s,),
            samples_per_step=layout.global_batch,
            world_size=layout.world_size,
        ),
        wall_s=0.0,
        prediction=None if predictions is None else predictions.row(row),
    )
