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
from .trainers import plan_only_rule

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


def run_bounds(asked: RealRuns) -> Bounds | None:
    """Limits of ``--verify`` or ``--verify-budget``; None without them."""
    runs, usd = asked.verify, asked.verify_budget_usd
    return None if runs is None and usd is None else Bounds(runs=runs, usd=usd)


def _verifying(
    training: Training,
    layouts: tuple[Planned, ...],
    bounds: Bounds,
    costs: RunCosts,
    scale: float,
) -> Verifying:
    """Choose the runs, and say how each is made.

    Args:
        training: the training with its measured runs, if any.
        layouts: the chosen layout, then its near rivals.
        bounds: limits of the runs to name.
        costs: of a run on GPUs.
        scale: of errors without runs.

    Raises:
        ConfigError: money bounds them, but no price is known.
    """
    if bounds.usd is not None and costs.usd_per_gpu_hour is None:
        raise ConfigError(
            "No price of this GPU is known, but --verify-budget needs one; give it with "
            "--usd-per-gpu-hour, or a number of runs with --verify."
        )
    if training.runs is None:
        training = replace(training, runs=OwnRuns.none(training.workload, scale))
    if training.machine.accelerator.is_cpu:
        costs = replace(costs, start_s=_CPU_START_S)
    found = verifying_runs(training, layouts, costs, bounds)
    return Verifying(
        found=found,
        named=tuple(name_run(training, one) for one in found.runs),
        bounds=bounds,
        start_s=costs.start_s,
    )


def log_band(training: Training, layout: Layout) -> float:
    """Logarithm that nine of ten steps of a layout are within, without measured runs."""
    gpu = training.machine.accelerator
    return math.log1p(time_band(training.workload, layout, gpu.name, assumed=gpu.assumed).error)


def verify_plan(question: Question, found: Plan, asked: RealRuns) -> Verifying | None:
    """The runs that narrow the first row of a plan; None if none are requested or nothing fits."""
    bounds = run_bounds(asked)
    if bounds is None or not found.best:
        return None
    training, best = question.training, found.best[0]
    is_several = question.world > training.machine.gpus_per_node
    return _verifying(
        training,
        (best, *near_rivals(found.best, planned_band(training, best).error)),
        bounds,
        RunCosts(
            start_s=Goodput().restart_s,
            usd_per_gpu_hour=question.usd_per_gpu_hour,
            memory_bytes=question.limits.memory_bytes,
        ),
        effect_scale(log_band(training, best.layout) / NINE_OF_TEN, over_nodes=is_several),
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
    return _verifying(
        task.training,
        (near[0], *near_rivals(near, found.band.fastest - 1.0)),
        bounds,
        RunCosts(
            start_s=start_s, usd_per_gpu_hour=usd_per_gpu_hour, memory_bytes=task.memory_bytes
        ),
        effect_scale(log_width(published) / NINE_OF_TEN, over_nodes=task.nodes > 1),
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
        states=workload.states,
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
