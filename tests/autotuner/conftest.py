"""Spaces, outcomes and a loop for tests of the deciding half. Nothing is launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoconf_launch.autotuner.search import Study
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    FailedTrial,
    GlobalBatchRule,
    KnobChoice,
    Measurement,
    Outcome,
    Record,
    SearchSpace,
    Trial,
    build_space,
)
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout, MemoryUse

LIMIT_BYTES = 1_000
Answer = Callable[[Trial], Outcome]


def candidate(
    stage: int = 0, micro: int = 1, accumulation: int = 1, ranks: int = 2, **others: Any
) -> Candidate:
    """A candidate with the knobs that tests vary."""
    return Candidate(
        layout=Layout(
            zero_stage=stage,
            micro_batch=micro,
            accumulation=accumulation,
            data_parallel=ranks,
            **others,
        )
    )


def small_space(
    baseline: Candidate | None = None,
    stages: tuple[int, ...] = (0, 1, 2, 3),
    least: int = 1,
    how: ChoiceKind = ChoiceKind.FREE,
) -> SearchSpace:
    """Stages times the micro-batches of a pinned global batch; by default 16 on 2 ranks."""
    baseline = baseline or candidate(accumulation=8)
    choices = (
        KnobChoice("zero_stage", stages, how),
        KnobChoice("micro_batch", (least,), ChoiceKind.MINIMUM),
    )
    rule = GlobalBatchRule(pinned=baseline.layout.global_batch)
    return build_space(baseline, choices, rule, AutotuningSettings())


def settings(**given: Any) -> AutotuningSettings:
    """Grid search, unless another strategy is given."""
    return AutotuningSettings(**{"tuner_type": "gridsearch", **given})


def steps_of(trial: Trial, step_s: float, flops_per_step: float | None = None) -> Measurement:
    """Three steps around ``step_s``, at the trial's own global batch."""
    return Measurement(
        step_s=(0.99 * step_s, step_s, 1.01 * step_s),
        samples_per_step=trial.candidate.layout.global_batch,
        world_size=trial.candidate.layout.world_size,
        flops_per_step=flops_per_step,
    )


def failure_of(kind: FailureKind, detail: str = "it failed") -> FailedTrial:
    """A failure that says nothing of memory."""
    return FailedTrial(failure=Failure(kind=kind, detail=detail, log_tail=("last line",)))


def out_of_memory(*, free: bool = True) -> FailedTrial:
    """Out of memory; with memory free before, so that it is the trial's own fault, or not."""
    memory = MemoryUse(
        free_before_bytes=LIMIT_BYTES if free else LIMIT_BYTES // 2,
        peak_bytes=LIMIT_BYTES,
        limit_bytes=LIMIT_BYTES,
    )
    full = Failure(kind=FailureKind.OUT_OF_MEMORY, detail="the device is full")
    return FailedTrial(failure=full, memory=memory)


def by_stage(*throughputs: float) -> Answer:
    """Each stage has one speed in samples/s."""

    def answer(trial: Trial) -> Outcome:
        layout = trial.candidate.layout
        return steps_of(trial, layout.global_batch / throughputs[layout.zero_stage])

    return answer


def timeline(records: Sequence[Record], repeats: Sequence[Record]) -> list[Record]:
    """All launches of a search in the order of their starts."""
    after = {id(one): (count, 0) for count, one in enumerate(records, 1)}
    after |= {id(one): (min(one.trial.again, len(records)), 1) for one in repeats}
    return sorted((*records, *repeats), key=lambda one: after[id(one)])


def record(trial: Trial, outcome: Outcome) -> Record:
    """A record of a trial that took no time."""
    return Record(trial=trial, outcome=outcome, wall_s=0.0)


@dataclass
class Loop:
    """Runs a study to its end on a function from trials to outcomes."""

    study: Study
    answer: Answer
    trials: list[Trial] = field(default_factory=list)

    def run(self, slots: int = 1) -> Loop:
        """Ask for as many as there are slots, tell the oldest one."""
        running: list[Trial] = []
        while self.study.stop_reason() is None:
            asked = self.study.ask(slots - len(running), 0.0)
            self.trials += asked
            running += asked
            if not running:
                assert self.study.stop_reason() is not None, "the study neither asks nor stops"
                break
            trial = running.pop(0)
            self.study.tell(record(trial, self.answer(trial)))
        return self

    @property
    def names(self) -> list[str]:
        """Names of the trials in order."""
        return [trial.name for trial in self.trials]
