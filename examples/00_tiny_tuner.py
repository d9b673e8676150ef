"""A whole tuner in about 100 lines: space, predictions, study, trials, summary.

Run ``python examples/00_tiny_tuner.py``. Nothing is launched: the backend here answers with
arithmetic. A real one starts processes instead; everything else stays as it is.
"""

from __future__ import annotations

from autoconf_launch.autotuner.cost.predictions import estimate, memory_rule
from autoconf_launch.autotuner.playoff.summary import Summary, summarise
from autoconf_launch.autotuner.search.study import Study
from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.autotuner.space.space import (
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    build_space,
)
from autoconf_launch.autotuner.space.trial import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    ClusterSpec,
    Device,
    Failure,
    FailureKind,
    Grade,
    KnobValue,
    Layout,
    MemoryUse,
    ModelSpec,
    Node,
    Optimizer,
    Precision,
    Workload,
)

RANKS, GLOBAL_BATCH, MEMORY_BYTES = 8, 256, 16_000_000_000
STAGES: tuple[KnobValue, ...] = (0, 1, 2, 3)

MODEL = ModelSpec(
    grade=Grade.ARCHITECTURE,
    blocks=(
        BlockSpec(name="embedding", parameters=40_000_000, activation_bytes=10_000_000),
        BlockSpec(name="block", count=24, parameters=40_000_000, activation_bytes=100_000_000),
    ),
)


class ArithmeticBackend:
    """Answers trials at once: a launch cost for each micro-batch, ZeRO's traffic, full memory."""

    def run(self, trial: Trial) -> Outcome:
        """The result that a launch of this trial would report."""
        layout = trial.candidate.layout
        shards = layout.data_parallel
        state_bytes = 4e9 + (4e9 if layout.zero_stage < 2 else 4e9 / shards)
        state_bytes += 8e9 if layout.zero_stage == 0 else 8e9 / shards
        peak_bytes = int(state_bytes + 2.5e9 * layout.micro_batch)
        memory = MemoryUse(
            free_before_bytes=MEMORY_BYTES, peak_bytes=peak_bytes, limit_bytes=MEMORY_BYTES
        )
        if peak_bytes > MEMORY_BYTES:
            full = Failure(kind=FailureKind.OUT_OF_MEMORY, detail="the device is full")
            return FailedTrial(failure=full, memory=memory)
        traffic_s = (0.10, 0.11, 0.14, 0.20)[layout.zero_stage]
        step_s = traffic_s + layout.accumulation * (0.02 + 0.03 * layout.micro_batch)
        return Measurement(
            step_s=(0.99 * step_s, step_s, 1.01 * step_s),
            samples_per_step=layout.global_batch,
            world_size=shards,
            memory=memory,
        )


def tune() -> tuple[tuple[Record, ...], Summary]:
    """Space, predictions, then ask and tell until the study has seen enough."""
    baseline = Candidate(
        layout=Layout(data_parallel=RANKS, zero_stage=1, accumulation=GLOBAL_BATCH // RANKS)
    )
    choices = (
        KnobChoice("zero_stage", STAGES, ChoiceKind.FREE),
        KnobChoice("micro_batch", (1,), ChoiceKind.MINIMUM),
    )
    adam = Optimizer.from_name("adamw")
    workload = Workload(model=MODEL, optimizer=adam, precision=Precision.FP32)
    settings = AutotuningSettings()
    devices = (Device(name="imaginary", memory_bytes=MEMORY_BYTES),) * RANKS
    cluster = ClusterSpec(nodes=(Node(host="here", devices=devices),))
    space = build_space(baseline, choices, GlobalBatchRule(pinned=GLOBAL_BATCH), settings)
    predictions = estimate(space.table, workload, cluster)
    rules = (memory_rule(predictions, cluster),)
    study, backend = Study(space, predictions, settings, rules=rules), ArithmeticBackend()
    while study.stop_reason() is None:
        for trial in study.ask(free_slots=1, elapsed_s=0.0):
            study.tell(Record(trial=trial, outcome=backend.run(trial), wall_s=0.0))
    return study.records, summarise(study, duration_s=0.0, optimizer=adam)


def main() -> None:
    """Print each trial and the summary."""
    records, summary = tune()
    for record in records:
        value = f"{m.throughput_per_s:.1f} samples/s" if (m := record.measurement) else "failed"
        print(f"{record.trial.number:3} {record.trial.name:18} {value}")
    print(f"\n{'space':7} {'trials':>6} {'best':>8}  name")
    for row in summary.rows:
        best = "-" if row.best_metric_val is None else f"{row.best_metric_val:.1f}"
        print(
            f"{row.tuning_space:7} {row.num_experiments:6} {best:>8}  {row.best_exp_name or '-'}"
        )
    if speed_up := summary.decision.speed_up:
        print(f"\n{speed_up.ratio:.2f} times trial 0", end="; ")
    print(f"skipped: {dict(summary.rejected)}")
    print(f"stopped: {summary.stop.kind.value}" if summary.stop else "")


if __name__ == "__main__":
    main()
