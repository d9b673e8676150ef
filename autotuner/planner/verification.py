"""Cheap real runs that narrow a prediction.

A run has fewer nodes, replicas, pipeline stages, layers or micro-batches than the training, and a
few steps. All else that a step's time depends on stays. The chosen layout and its near rivals take
turns: each gets the run whose error has most in common with its own, so that a rival may turn out
to be faster. Other runs are for the chosen layout.
Shapes: R = rows of the belief (layouts, then runs), P = runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture, Layout, Offload, divisors

from ..cost import LayoutColumns, estimate, rows_obeying
from ..space import Floats, Ints
from .calibration import ErrorBelief
from .own_runs import OwnRuns, cut_model
from .search import Planned, Training

RUN_STEPS = 20
"""Steps of a run, the first few of which warm up."""
_PARTS = (1, 2, 4)
"""Divisors of the layers of a stage and of the micro-batches."""
_MOST_RIVALS = 4
_LEAST_GAIN = 0.02
"""Share of a layout's variance that a run must remove."""
_ALIKE = 0.9
"""Share of the largest covariance from which on the cheaper run is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRun:
    """A run that could be made.

    Attributes:
        layers: that are left of the model; of an encoder-decoder the decoder's, which are all.
        nodes: paid for whole.
        step_s: predicted.
        seconds: of the whole run, its start included.
    """

    layout: Layout
    layers: int
    nodes: int
    step_s: float
    seconds: float


def smaller_runs(
    training: Training, layouts: Sequence[Layout], memory_bytes: float, start_s: float
) -> tuple[SmallerRun, ...]:
    """Every run of these layouts that fits, fewest node-seconds first."""
    model, each = training.workload.architecture, training.machine.gpus_per_node
    by_layers: dict[int, dict[Layout, None]] = {}
    for layout in layouts:
        for smaller, layers in _smaller_layouts(layout, model):
            if smaller.world_size <= each or smaller.world_size % each == 0:
                by_layers.setdefault(layers, {})[smaller] = None
    found = [
        run
        for layers, same in by_layers.items()
        for run in _fitting_runs(training, layers, list(same), memory_bytes, start_s)
    ]
    return tuple(sorted(found, key=lambda run: (run.nodes * run.seconds, run.layout.world_size)))


def _smaller_layouts(layout: Layout, model: Architecture) -> Iterator[tuple[Layout, int]]:
    """Layouts with the layers that each has; the layout itself is among them."""
    plain = replace(
        layout, offload=Offload.NONE, placement=None, pipeline_split=None, micro_batch_split=None
    )
    cuts = not model.encoder_layers
    for stages in divisors(layout.pipeline_parallel) if cuts else (layout.pipeline_parallel,):
        virtual = layout.virtual_pipeline if stages > 1 else 1
        whole = model.layers * stages // layout.pipeline_parallel if cuts else model.layers
        for layers in _parts(whole, stages * virtual) if cuts else (whole,):
            for data in divisors(layout.data_parallel):
                is_alone = data * layout.context_parallel == 1
                if is_alone and layout.zero_stage == 3:
                    continue
                for count in _parts(layout.accumulation, stages if virtual > 1 else 1):
                    yield (
                        replace(
                            plain,
                            data_parallel=data,
                            pipeline_parallel=stages,
                            virtual_pipeline=virtual,
                            zero_stage=0 if is_alone else layout.zero_stage,
                            accumulation=count,
                        ),
                        layers,
                    )


def _parts(whole: int, unit: int) -> Iterator[int]:
    """The whole, and shares of it that are multiples of a unit."""
    yield whole
    yield from (whole // part for part in _PARTS[1:] if whole % (part * unit) == 0)


def _fitting_runs(
    training: Training, layers: int, layouts: list[Layout], memory_bytes: float, start_s: float
) -> Iterator[SmallerRun]:
    workload, machine = training.workload, training.machine
    model = cut_model(workload.architecture, layers)
    columns = LayoutColumns.from_layouts(layouts)
    costs = estimate(columns, replace(workload, model=model), machine)
    step_s_C = costs.step_s_C
    if training.runs is not None:
        step_s_C = step_s_C * training.runs.factors(columns, workload, machine)
    fits_C = costs.peak_bytes_C <= memory_bytes
    kept_C = fits_C & rows_obeying(columns, model, workload.sequence_length)
    for row in np.flatnonzero(kept_C).tolist():
        step_s = float(step_s_C[row])
        yield SmallerRun(
            layout=layouts[row],
            layers=layers,
            nodes=-(-layouts[row].world_size // machine.gpus_per_node),
            step_s=step_s,
            seconds=start_s + RUN_STEPS * step_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bound of the runs: a number, or money; the other is None."""

    runs: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCosts:
    """Costs of a run besides its steps.

    Attributes:
        start_s: time from its start to its first step.
        usd_per_gpu_hour: whole nodes are paid; None if no price is known.
        memory_bytes: memory of a rank.
    """

    start_s: float
    usd_per_gpu_hour: float | None
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyingRun:
    """A run that narrows the prediction of the chosen layout.

    Attributes:
        usd: None if no price is known.
        narrowing: spread of the chosen layout's error expected after this run and those before
            it, over the spread without any run.
    """

    run: SmallerRun
    usd: float | None
    narrowing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The chosen runs, in order.

    Attributes:
        narrowing: as above, now.
        pool: different runs that could be made.
        cheapest_usd: of the cheapest of these; None if there is none, or no price.
    """

    narrowing: float
    runs: tuple[VerifyingRun, ...]
    pool: int
    cheapest_usd: float | None


def verifying_runs(
    training: Training, layouts: tuple[Planned, ...], costs: RunCosts, bounds: Bounds
) -> Verification:
    """The runs that tell most of the first layout and its rivals.

    Args:
        training: with the runs that are measured already, or :meth:`OwnRuns.none`.
        layouts: the chosen one, then its near rivals.
        costs: of a run.
        bounds: money only if there is a price.
    """
    assert training.runs is not None
    names = [one.layout for one in layouts]
    every = smaller_runs(training, names, costs.memory_bytes, costs.start_s)
    runs = _cheapest_alike(training, training.runs, every)
    hourly = costs.usd_per_gpu_hour or 1.0
    each = training.machine.gpus_per_node
    usd_P = np.array([hourly * each * run.nodes * run.seconds / 3600 for run in runs])
    belief = _belief(training, training.runs, [*names, *(run.layout for run in runs)])
    chosen = choose_runs(belief, usd_P, bounds)
    has_price = costs.usd_per_gpu_hour is not None
    return Verification(
        narrowing=layouts[0].narrowing,
        runs=tuple(
            VerifyingRun(
                run=runs[number],
                usd=float(usd_P[number]) if has_price else None,
                narrowing=layouts[0].narrowing * left,
            )
            for number, left in zip(chosen, _spreads_left(belief, chosen, len(runs)), strict=True)
        ),
        pool=len(runs),
        cheapest_usd=float(usd_P.min()) if has_price and len(runs) else None,
    )


def near_rivals(layouts: tuple[Planned, ...], error: float) -> tuple[Planned, ...]:
    """A few layouts after the first that its error band cannot separate from it."""
    slowest_s = layouts[0].step_s * (1.0 + error)
    return tuple(one for one in layouts[1:] if one.step_s <= slowest_s)[:_MOST_RIVALS]


def _cheapest_alike(
    training: Training, known: OwnRuns, runs: tuple[SmallerRun, ...]
) -> tuple[SmallerRun, ...]:
    """The first of the runs with equal effects."""
    if not runs:
        return ()
    columns = LayoutColumns.from_layouts([run.layout for run in runs])
    alike = known.likeness(columns, training.workload, training.machine)
    shared = np.column_stack([alike.levels_RL, alike.are_over_nodes_R, alike.places_RD])
    first = np.unique(shared[: len(runs)], axis=0, return_index=True)[1]
    return tuple(runs[number] for number in np.sort(first))


def _belief(training: Training, known: OwnRuns, layouts: list[Layout]) -> ErrorBelief:
    """Errors of layouts, without the rows of the runs that are measured already."""
    columns = LayoutColumns.from_layouts(layouts)
    belief = known.belief(columns, training.workload, training.machine)
    count = len(layouts)
    return ErrorBelief(
        mean_R=belief.mean_R[:count],
        covariance_RR=belief.covariance_RR[:count, :count],
        noise=belief.noise,
    )


def _spreads_left(belief: ErrorBelief, chosen: Ints, runs: int) -> list[float]:
    """Spread of the chosen layout's error after each run, over the spread now."""
    now = belief.spread(0)
    left: list[float] = []
    for row in (len(belief.mean_R) - runs + chosen).tolist():
        belief = belief.after(np.array([row]), belief.mean_R[[row]])
        left.append(belief.spread(0) / now)
    return left


def choose_runs(belief: ErrorBelief, usd_P: Floats, bounds: Bounds) -> Ints:
    """Numbers of the runs to make, in order.

    Args:
        belief: of the layouts, then of the runs.
        usd_P: price of each run.
        bounds: number of runs, or money.
    """
    first, chosen = len(belief.mean_R) - len(usd_P), list[int]()
    most = len(usd_P) if bounds.runs is None else bounds.runs
    left_usd = np.inf if bounds.usd is None else bounds.usd + 1e-9
    turns = list(range(first))
    while turns and len(chosen) < most:
        layout = turns.pop(0)
        spread_P = np.sqrt(np.diag(belief.covariance_RR)[first:] + belief.noise**2)
        shared_P = np.abs(belief.covariance_RR[layout, first:]) / spread_P
        shared_P = np.where(usd_P <= left_usd, shared_P, 0.0)
        shared_P[chosen] = 0.0
        top = float(shared_P.max(initial=0.0))
        if top**2 < _LEAST_GAIN * belief.spread(layout) ** 2:
            continue  # no run tells more of this layout
        run = int(np.where(shared_P >= _ALIKE * top, usd_P, np.inf).argmin())
        chosen.append(run)
        turns += [0] if layout == 0 else []
        left_usd -= usd_P[run]
        belief = belief.after(np.array([first + run]), belief.mean_R[[first + run]])
    return np.array(chosen, np.int64)
