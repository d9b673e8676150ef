"""Searches and the rounds after them, with outcomes that a test gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoconf_launch.autotuner.measurement import NORMAL, estimate_noise
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget, ranking
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    FailedTrial,
    Measurement,
    Outcome,
    Record,
    Trial,
)
from autoconf_launch.core import Failure, FailureKind

from ..builders import launch, measurement, trial_of

THROUGHPUT = OBJECTIVES["throughput"]
CRASH = FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail="it did"))
PREEMPTED = FailedTrial(failure=Failure(kind=FailureKind.PREEMPTED, detail="another failed"))
Answer = Callable[[Trial], Outcome]


def steps_of(step_s: float, peak: int | None = None) -> Measurement:
    return measurement(step_s, step_s * 1.01, step_s * 0.99, samples=10, peak=peak)


def record(number: int, outcome: Outcome) -> Record:
    return launch(trial_of(number, {"micro_batch": number + 1}), outcome)


def runs_of(*seconds: float, peak: int | None = None) -> tuple[Record, ...]:
    return tuple(record(n, steps_of(s, peak)) for n, s in enumerate(seconds))


def again_of(number: int, step_s: float) -> Record:
    """A repeat of a trial in the search."""
    made = record(number, steps_of(step_s))
    return replace(made, trial=replace(made.trial, name=f"t{number}_again", again=1))


def truth(*seconds: float) -> Answer:
    """Each number's own seconds in every round, a little more in the even ones."""
    return lambda trial: steps_of(seconds[trial.number] * (1 + 0.001 * (trial.attempt % 2)))


def playoff_of(
    records: tuple[Record, ...],
    *,
    wanted: int = NORMAL.contenders,
    budget: PlayoffBudget | None = None,
) -> Playoff:
    """The playoff of the best ``wanted`` and the user's own."""
    ranked = ranking(records, THROUGHPUT)
    best = [record for record in ranked if record.trial.number][:wanted]
    chosen = [record for record in ranked if record in best or not record.trial.number]
    return Playoff(chosen, THROUGHPUT, noise=estimate_noise(records), budget=budget)


def run(playoff: Playoff, answer: Answer, slots: int = 1, launch_s: float = 0.0) -> list[str]:
    """Names in the order in which they were asked for; each gets its outcome."""
    asked: list[str] = []
    while playoff.stop_reason() is None:
        trials = playoff.ask(slots, launch_s * len(asked))
        asked += [trial.name.removesuffix("_final") for trial in trials]
        for trial in trials:
            playoff.tell(Record(trial=trial, outcome=answer(trial), wall_s=1.0))
    return asked
