"""Real runs that would narrow an answer, with their commands and rows to fill."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import NINE_OF_TEN, effect_scale
from autoconf_launch.autotuner.planner import (
    RUN_STEPS,
    Bounds,
    OwnRuns,
    Plan,
    Planned,
    Question,
    RunCosts,
    Training,
    Verification,
    VerifyingRun,
    cut_model,
    near_rivals,
    planned_band,
    time_band,
    verifying_runs,
)
from autoconf_launch.autotuner.sizing import (
    Goodput,
    Outlook,
    SpeedBand,
    Task,
    log_width,
    near_layouts,
)
from autoconf_launch.core import ALL_LAYERS, Candidate, ConfigError, Layout

from ..asked import RealRuns
from ..export import Optimum, RunCommand, run_command
from ..machine import THREADS, usable_cores
from ..measurements import row_to_fill
from .runnable import plan_only_rule

_CPU_START_S = 15.0
"""From a launch of CPU ranks to their first step; a guess, as for GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRun:
    """A run with its layout for exports, and its row to fill.

    ``command`` is None if neither our runtime nor Megatron-LM runs it as predicted.
    """

    verifying: VerifyingRun
    optimum: Optimum
    command: RunCommand | None
    row: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """The runs that narrow an answer.

    Attributes:
        bounds: of them, as asked.
        start_s: of each run, assumed.
    """

    found: Verification
    named: tuple[NamedRun, ...]
    bounds: Bounds
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyQuestion:
    """An answer to narrow.

    Attributes:
        training: the training with its measured runs, if any.
        layouts: the chosen layout, then its near rivals.
        nodes: of the training.
        band: logarithm within which nine of ten predictions are without runs.
        bounds: limits of the runs to name.
        usd_per_gpu_hour: None if no price is known.
        memory_bytes: of a rank.
        start_s: of a run on GPUs.
    """

    training: Training
    layouts: tuple[Planned, ...]
    nodes: int
    band: float
    bounds: Bounds
    usd_per_gpu_hour: float | None
    memory_bytes: float
    start_s: float


def run_bounds(asked: RealRuns) -> Bounds | None:
    """Limits of ``--verify`` or ``--verify-budget``; None without them."""
    runs, usd = asked.verify, asked.verify_budget_usd
    return None if runs is None and usd is None else Bounds(runs=runs, usd=usd)


def verifying(question: VerifyQuestion) -> Verifying:
    """Choose the runs, and say how each is made.

    Raises:
        ConfigError: money bounds them, but no price is known.
    """
    if question.bounds.usd is not None and question.usd_per_gpu_hour is None:
        raise ConfigError(
            "No price of this GPU is known, but --verify-budget needs one; give it with "
            "--usd-per-gpu-hour, or a number of runs with --verify."
        )
    training = question.training
    if training.runs is None:
        scale = effect_scale(question.band / NINE_OF_TEN, over_nodes=question.nodes > 1)
        training = replace(training, runs=OwnRuns.none(training.workload, scale))
    costs = RunCosts(
        start_s=_CPU_START_S if training.machine.accelerator.is_cpu else question.start_s,
        usd_per_gpu_hour=question.usd_per_gpu_hour,
        memory_bytes=question.memory_bytes,
    )
    found = verifying_runs(training, question.layouts, costs, question.bounds)
    return Verifying(
        found=found,
        named=tuple(name_run(training, one) for one in found.runs),
        bounds=question.bounds,
        start_s=costs.start_s,
    )


def log_band(training: Training, layout: Layout) -> float:
    """Logarithm that nine of ten steps of a layout are within, without measured runs."""
    return math.log1p(
        time_band(training.workload, layout, training.machine.accelerator.name).error
    )


def verify_plan(question: Question, found: Plan, asked: RealRuns) -> Verifying | None:
    """The runs that narrow the first row of a plan; None if none are requested or nothing fits."""
    bounds = run_bounds(asked)
    if bounds is None or not found.best:
        return None
    training, best = question.training, found.best[0]
    error = planned_band(training, best).error
    gpus_per_node = training.machine.gpus_per_node
    return verifying(
        VerifyQuestion(
            training=training,
            layouts=(best, *near_rivals(found.best, error)),
            nodes=-(-question.world // gpus_per_node),
            band=log_band(training, best.layout),
            bounds=bounds,
            usd_per_gpu_hour=question.usd_per_gpu_hour,
            memory_bytes=question.limits.memory_bytes,
            start_s=Goodput().restart_s,
        )
    )


def verify_outlook(
    task: Task,
    found: Outlook,
    published: SpeedBand,
    bounds: Bounds,
    usd_per_gpu_hour: float | None,
    start_s: float,
) -> Verifying:
    """Runs that narrow the days of a recommendation; ``published`` is its band without runs."""
    near = near_layouts(task, found.achieved)
    return verifying(
        VerifyQuestion(
            training=task.training,
            layouts=(near[0], *near_rivals(near, found.band.fastest - 1.0)),
            nodes=task.nodes,
            band=log_width(published),
            bounds=bounds,
            usd_per_gpu_hour=usd_per_gpu_hour,
            memory_bytes=task.memory_bytes,
            start_s=start_s,
        )
    )


def name_run(training: Training, verifying: VerifyingRun) -> NamedRun:
    """A run with its command, and the row for its time."""
    run, whole = verifying.run, training.workload
    layout, machine = run.layout, training.machine
    model = cut_model(whole.architecture, run.layers)
    workload = replace(whole, model=model, global_batch=layout.global_batch)
    optimum = Optimum(
        name="run",
        candidate=Candidate(layout=layout),
        nodes=run.nodes,
        precision=workload.precision,
        sequence_length=workload.sequence_length,
        optimizer=workload.optimizer.name,
        plan_only=plan_only_rule(layout, ALL_LAYERS, workload),
    )
    command = run_command(optimum, workload, RUN_STEPS)
    if command is not None and machine.accelerator.is_cpu:
        # as many as a rank of the whole training has
        threads = max(1, usable_cores() // machine.gpus_per_node)
        command = replace(command, start=f"{THREADS}={threads} {command.start}")
    return NamedRun(
        verifying=verifying,
        optimum=optimum,
        command=command,
        row=row_to_fill(workload, machine.accelerator.name, layout),
    )
