"""Results of a search for a training configuration, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from autoconf_launch.autotuner.sizing import (
    SECONDS_PER_DAY,
    SampleShape,
    least_step_flops,
    step_flops,
)
from autoconf_launch.core import Failure, FailureKind, Layout, RawConfig

from ..candidate_grids import NemoCandidate

_TIE_SPREADS = 2.0
_NODES = ("trainer", "num_nodes")
NOT_STARTED = "not started"
"""Beginning of the detail of a run that was never started, as far as its files show."""
_SILENT = Failure(kind=FailureKind.NO_STEPS, detail="The run ended without a step time.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRun:
    """A candidate that was started, with a measurement or a failure.

    Attributes:
        name: of its folder and file: one for each candidate of a search.
        point: its degrees, micro-batch and checkpointed layers, in NVIDIA's terms; of a run made
            elsewhere its layout has no data-parallel ranks.
        config: of a whole training with its layout, which the best one's file repeats.
        knobs: other settings besides ``point``, such as ``("zero_stage", 1)``.
        steps: optimizer steps that ``step_s`` is of; warm-up is not among them.
        extrapolated_from: micro-batches of a rank if there was no time for a step of
            ``whole_micro_batches``; ``steps`` then counts the estimated steps.
        step_s: mean duration of a step, in seconds; None without a measurement.
        step_spread_s: standard deviation of the steps; None below two of them.
        peak_bytes: of the fullest rank, of which it may have ``memory_bytes``; None: not logged.
        loss: of the last step.
        failure: reason for a missing measurement; None if there is one.
    """

    name: str
    point: NemoCandidate
    global_batch: int
    config: RawConfig
    knobs: tuple[tuple[str, int | float | str | bool], ...] = ()
    steps: int = 0
    extrapolated_from: int | None = None
    whole_micro_batches: int | None = None
    step_s: float | None = None
    step_spread_s: float | None = None
    peak_bytes: int | None = None
    memory_bytes: int | None = None
    loss: float | None = None
    failure: Failure | None = None

    @property
    def layout(self) -> Layout:
        return self.point.layout

    @property
    def whole_steps(self) -> int:
        """Steps that were made in full."""
        return self.steps if self.extrapolated_from is None else 0

    @property
    def memory_share(self) -> float:
        """Used share of the fullest rank's memory; 0 if it was not logged."""
        return (self.peak_bytes or 0) / (self.memory_bytes or math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """All that a search started, in the order in which it did.

    Attributes:
        nodes, gpus_per_node: size of each run's cluster.
        tokens_b: of the whole training, in billions, for days and money.
        base: the configuration that the candidates differ from.
        usd_per_gpu_hour: None if no price is known; ``price`` states its source.
        gpu_peak_flops_per_s: the most that one GPU can do; None if the GPU is not known.
        notes: sentences for the user, such as why candidates were not started.
    """

    size_b: float
    nodes: int
    gpus_per_node: int
    tokens_b: float
    shape: SampleShape
    base: RawConfig
    runs: tuple[SearchRun, ...] = ()
    usd_per_gpu_hour: float | None = None
    price: str = ""
    gpu_peak_flops_per_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def stacks(self) -> int:
        """Stacks of layers, of which ``shape`` counts one."""
        return 2 if self.shape.family.is_encoder_decoder else 1


def without_impossible(outcome: SearchOutcome) -> SearchOutcome:
    """The outcome with a failure in place of each step time that no such GPU can reach."""
    runs = tuple(
        replace(run, step_s=None, failure=why) if (why := _why_impossible(outcome, run)) else run
        for run in outcome.runs
    )
    return replace(outcome, runs=runs)


def _why_impossible(outcome: SearchOutcome, run: SearchRun) -> Failure | None:
    """The reason why a step time is not a measurement of this training; None if it may be one.

    Causal kernels compute half of the attention that a speed counts.
    """
    peak = outcome.gpu_peak_flops_per_s
    if peak is None or not run.step_s or run.failure is not None:
        return None
    made = least_step_flops(outcome.shape, run.global_batch) / run.step_s / outcome.gpus
    if made <= peak:
        return None
    return Failure(
        kind=FailureKind.NO_STEPS,
        detail=(
            f"Steps of {run.step_s:.4g} s would be {made / 1e12:,.0f} TFLOP/s per GPU, above the "
            f"peak of {peak / 1e12:,.0f}: not a measurement of {outcome.shape.family.name} "
            f"{outcome.size_b:.10g}B with a global batch of {run.global_batch} on {outcome.gpus} "
            "GPUs; check model, batch and GPUs of the run."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A measured run's figures for the whole training.

    Attributes:
        model_tflops: of all GPUs, as NVIDIA's tool counts operations.
        days: duration of the steps at the measured speed, on as many GPUs as were measured.
        usd: cost of these days; None if no price is known.
        is_tie: as fast as the fastest run within twice the error of both means.
    """

    run: SearchRun
    step_s: float
    samples_per_s: float
    model_tflops: float
    model_tflops_per_gpu: float
    days: float
    usd: float | None
    is_tie: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptimum:
    """The configuration to train with.

    Attributes:
        config: for the whole training, on its own nodes if the run's layout divides them.
        note: why it is not the fastest run's, or not for the training's nodes; "" elsewhere.
    """

    run: SearchRun
    config: RawConfig
    note: str = ""


def optimum(outcome: SearchOutcome) -> SearchOptimum | None:
    """The fastest run that also divides the training's own nodes; None if none was measured.

    A search may have run on fewer nodes than the training has.
    """
    ranked = [one.run for one in fastest_first(outcome)]
    if not ranked:
        return None
    fastest, nodes = ranked[0], outcome.base.get(_NODES) or outcome.nodes
    found = next((run for run in ranked if _divides(run, nodes * outcome.gpus_per_node)), None)
    if found is None:
        config = fastest.config.with_value(_NODES, outcome.nodes)
        note = f"No measured layout divides {nodes} nodes: it is for the {outcome.nodes} measured."
        return SearchOptimum(run=fastest, config=config, note=note)
    why = (
        "" if found is fastest else f"{fastest.name} is faster but does not divide {nodes} nodes."
    )
    return SearchOptimum(run=found, config=found.config, note=why)


def _divides(run: SearchRun, gpus: int) -> bool:
    layout = run.point.layout
    tensor, pipeline, context, _ = layout.mesh
    data, rest = divmod(gpus, tensor * pipeline * context)
    return not rest and data > 0 and run.global_batch % (data * layout.micro_batch) == 0


def fastest_first(outcome: SearchOutcome) -> tuple[Figures, ...]:
    """Measured runs by the time of a sample, which ranks equal batches by their step.

    Equal ones stay in the order in which they ran.
    """
    measured = [run for run in outcome.runs if run.step_s and run.failure is None]
    ranked = sorted(measured, key=_sample_s)
    return tuple(_figures(outcome, run, ranked[0]) for run in ranked)


class FailedRun(NamedTuple):
    """A run without a measurement, with its reason."""

    run: SearchRun
    failure: Failure


def failed_runs(outcome: SearchOutcome) -> tuple[FailedRun, ...]:
    """Runs without a measurement, in the order in which they ran."""
    found = [run for run in outcome.runs if run.failure is not None or not run.step_s]
    return tuple(FailedRun(run, run.failure or _SILENT) for run in found)


def is_not_started(failure: Failure) -> bool:
    """True if the run has left nothing, so that no kind of failure is known."""
    return failure.kind is FailureKind.NO_STEPS and failure.detail.startswith(NOT_STARTED)


def failure_kind(failure: Failure) -> str:
    """The kind of a failure in tables."""
    return NOT_STARTED if is_not_started(failure) else failure.kind.value


def named_failure(failure: Failure) -> str:
    """``out_of_memory: CUDA out of memory``, on one line."""
    detail = " ".join(failure.detail.split())
    return detail if is_not_started(failure) else f"{failure.kind.value}: {detail}"


def _figures(outcome: SearchOutcome, run: SearchRun, best: SearchRun) -> Figures:
    assert run.step_s
    samples_per_s = run.global_batch / run.step_s
    tokens_per_s = samples_per_s * outcome.shape.sequence
    flops = step_flops(outcome.shape, run.global_batch) / run.step_s
    days = outcome.tokens_b * 1e9 / tokens_per_s / SECONDS_PER_DAY
    hourly = outcome.usd_per_gpu_hour
    return Figures(
        run=run,
        step_s=run.step_s,
        samples_per_s=samples_per_s,
        model_tflops=flops / 1e12,
        model_tflops_per_gpu=flops / 1e12 / outcome.gpus,
        days=days,
        usd=None if hourly is None else days * 24 * outcome.gpus * hourly,
        is_tie=run is not best and _are_tied(run, best),
    )


def _are_tied(*runs: SearchRun) -> bool:
    error_2 = sum(
        (run.step_spread_s or 0.0) ** 2 / run.steps / run.global_batch**2
        for run in runs
        if run.steps
    )
    one_s, other_s = map(_sample_s, runs)
    return abs(one_s - other_s) <= _TIE_SPREADS * math.sqrt(error_2)


def _sample_s(run: SearchRun) -> float:
    assert run.step_s
    return run.step_s / run.global_batch


def round_figure(value: float, decimals: int = 2) -> float:
    """Round to ``decimals``, or to four digits if the value is small: 3 ms is not 0.0."""
    if not value or not math.isfinite(value):
        return value
    return round(value, max(decimals, 3 - math.floor(math.log10(abs(value)))))


def digits_of(value: float) -> float:
    """Three decimals, or four digits if the value is small."""
    return round_figure(value, 3)
