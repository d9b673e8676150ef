"""Results of ranks in a trial's folder, and ends of their processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import (
    AppliedStrategy,
    Candidate,
    Failure,
    FailureKind,
    Layout,
    Mode,
    Precision,
    RankResult,
    RankTask,
    Recompute,
    StepRecord,
    encode,
    result_file,
)
from autoconf_launch.launcher.launch import RankExit, RanksEnd, read_outcome
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

START_S = 1000.0
EXPECTED = Candidate(layout=Layout(data_parallel=2, zero_stage=1, micro_batch=2, accumulation=1))
APPLIED = AppliedStrategy(
    zero_stage=1,
    data_parallel=2,
    micro_batch=2,
    accumulation=1,
    precision=Precision.FP32,
    recompute=Recompute.NONE,
)


def plan_of(folder: Path, *, ranks: int = 2, soak: bool = False, **more: Any) -> LaunchPlan:
    """A measured launch of ``ranks`` in ``folder`` whose steps 3 to 5 count."""
    task = RankTask(
        mode=Mode.MEASURE, folder=str(folder), attempt="now", start_step=3, end_step=5, soak=soak
    )
    plan = LaunchPlan(
        name="z1_gas1_tmbspg2",
        ranks=tuple(
            RankPlan(rank=rank, local_rank=rank, argv=("python", "train.py"), environment=())
            for rank in range(ranks)
        ),
        working_directory=str(folder),
        folder=str(folder),
        task=task,
    )
    return replace(plan, **more)


def steps_of(*seconds: float, loss: float | None = 1.0) -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(rank=0, step=number, wall_s=wall_s, samples=4, loss=loss)
        for number, wall_s in enumerate(seconds, 1)
    )


def result_of(rank: int = 0, kind: FailureKind | None = None, **more: Any) -> RankResult:
    """A full report after 10 s, or the failure of a rank."""
    failure = None if kind is None else Failure(kind=kind, detail=f"{kind.value} it is")
    result = RankResult(
        rank=rank,
        world_size=2,
        attempt="now",
        ended_unix_s=START_S + more.pop("after_s", 10),
        steps=() if failure else steps_of(9, 9, 1, 2, 3),
        failure=failure,
        applied=APPLIED,
    )
    return replace(result, **more)


def report(folder: Path, *results: RankResult) -> None:
    for result in results:
        (folder / result_file(result.rank)).write_text(json.dumps(encode(result)))


def ends_of(*codes: int, after_s: tuple[float, ...] | None = None) -> RanksEnd:
    times = after_s or tuple(10.0 + rank for rank in range(len(codes)))
    return RanksEnd(
        exits=tuple(
            RankExit(code=code, unix_s=START_S + after)
            for code, after in zip(codes, times, strict=True)
        )
    )


BOTH_WELL = ends_of(0, 0)


def outcome_of(
    folder: Path, *results: RankResult, end: RanksEnd = BOTH_WELL, **plan: Any
) -> Outcome:
    """The outcome of a launch whose ranks left these results."""
    report(folder, *results)
    return read_outcome(plan_of(folder, **plan), end)


def failure_of(outcome: Outcome | None) -> Failure:
    assert isinstance(outcome, FailedTrial)
    return outcome.failure


def measure(outcome: Outcome | None) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome
