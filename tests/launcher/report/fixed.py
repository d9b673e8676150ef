"""Fixed records, and folders that hold them; texts that must not change unseen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.autotuner.space import (
    FailedTrial,
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
    candidate_name,
)
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, MemoryUse, StepRecord
from autoconf_launch.launcher.events import (
    Event,
    SpaceBuilt,
    StepSeen,
    TrialFinished,
    TrialStarted,
)
from autoconf_launch.launcher.results import Fingerprint, Journal

GOLDEN = Path(__file__).parent / "golden"
PRINT = Fingerprint(
    script="0123456789abcdef",
    arguments=("--data", "x"),
    config="fedcba9876543210",
    hardware=("cpu (x86_64), limit None",) * 2,
    versions=(("python", "3.11.7"), ("torch", "2.13.0")),
)
LIMIT_BYTES = 2_000_000_000


def trial(number: int, stage: int, micro: int) -> Trial:
    """A trial at a global batch of 32 on two ranks."""
    layout = Layout(zero_stage=stage, micro_batch=micro, accumulation=16 // micro, data_parallel=2)
    candidate = Candidate(layout=layout)
    return Trial(
        number=number, name=candidate_name(candidate), candidate=candidate, space=f"z{stage}"
    )


def steps_of(step_s: float, spread: float = 0.01) -> Measurement:
    """Three steps around ``step_s``."""
    return Measurement(
        step_s=((1 - spread) * step_s, step_s, (1 + spread) * step_s),
        samples_per_step=32,
        world_size=2,
        memory=MemoryUse(
            free_before_bytes=LIMIT_BYTES, peak_bytes=250_000_000, limit_bytes=LIMIT_BYTES
        ),
    )


def failure_of(kind: FailureKind, detail: str) -> FailedTrial:
    """A failure with a child's last lines."""
    failure = Failure(kind=kind, detail=detail, log_tail=("Traceback [most]", "ValueError: no"))
    return FailedTrial(failure=failure)


def record(a_trial: Trial, outcome: Outcome, wall_s: float = 3.5) -> Record:
    """A record with a prediction of a quarter of a second."""
    prediction = Prediction(peak_bytes=200_000_000, step_s=0.25, band=0.3, how="fixed")
    return Record(trial=a_trial, outcome=outcome, wall_s=wall_s, prediction=prediction)


RECORDS = (
    record(trial(0, 0, 1), steps_of(0.32)),
    record(trial(1, 0, 8), steps_of(0.16)),
    record(trial(2, 0, 16), failure_of(FailureKind.OUT_OF_MEMORY, "the device is full")),
    record(trial(3, 1, 8), steps_of(0.064)),
    record(trial(4, 1, 4), failure_of(FailureKind.CRASHED, "rank 1 ended with code 1")),
)
RUNNING = trial(5, 1, 16)
STEP = StepRecord(rank=1, step=3, wall_s=0.1, samples=16)


def events(records: Sequence[Record] = RECORDS) -> list[Event]:
    """Events of these records, and of a trial that still runs."""
    best = records[0]
    said: list[Event] = [SpaceBuilt(considered=20, left=19, rejected=())]
    for done in records:
        if done.measurement and best.measurement:
            best = done if done.measurement.step_s < best.measurement.step_s else best
        said.append(TrialStarted(trial=done.trial, prediction=done.prediction))
        said.append(TrialFinished(record=done, best=best, elapsed_s=3.5))
    said.append(TrialStarted(trial=RUNNING, prediction=records[0].prediction))
    said.append(StepSeen(trial=RUNNING, step=STEP))
    return said


def write_folder(
    folder: Path, records: Sequence[Record] = RECORDS, fingerprint: Fingerprint = PRINT
) -> Path:
    """A results folder as a controller that was killed leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder / "journal.jsonl") as journal:
        journal.write_header(fingerprint)
        journal.write_profiled(7.5)
        for done in records:
            journal.write_record(done)
    return folder


def start(folder: Path, a_trial: Trial = RUNNING) -> None:
    """A trial is begun; one rank has made a step."""
    with Journal(folder / "journal.jsonl") as journal:
        journal.write_started(name=a_trial.name, number=a_trial.number, attempt="one", handle=None)
    steps = folder / a_trial.name / "steps.jsonl"
    steps.parent.mkdir()
    step = {"rank": STEP.rank, "step": STEP.step, "wall_s": STEP.wall_s, "samples": 16}
    steps.write_text(json.dumps(step) + "\n")


def finish(folder: Path, count: int = len(RECORDS), metric: str = "throughput") -> None:
    """The study is over; what ``show`` reads of a summary is there."""
    spaces = [{"tuning_space": "global", "num_experiments": count}]
    document = {"metric": metric, "spaces": spaces, "duration_s": 17.5}
    (folder / "summary.json").write_text(json.dumps(document))
    (folder / "summary.txt").write_text("| the summary |\n")


def golden(name: str) -> str:
    """The text that is expected, as it was looked at and kept."""
    return (GOLDEN / name).read_text()
