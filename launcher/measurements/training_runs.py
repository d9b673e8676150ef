"""Real runs of one training, by a table with the columns of ``validate``.

Runs may have fewer GPUs, layers and samples. All else must be the training's: its model, GPU,
precision, sequence length, and its training code, which a table is not asked for.
Shapes: M = runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import (
    NINE_OF_TEN,
    NOISE,
    SURPRISE,
    effect_scale,
)
from autoconf_launch.autotuner.planner import OwnRuns, Training, predicted_steps_s
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import Architecture, ConfigError
from autoconf_launch.tuning_spaces import known_accelerator

from .measured_runs import row_columns
from .row import Problem, PublishedRow, Row, read_measurements

_LEAST_REPEATS = 3
"""Fewer repeats would take a single wrong one for the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A run beside what was predicted of it.

    Attributes:
        surprise: by how many spreads it is off what the other runs let expect.
    """

    row: PublishedRow
    measured_s: float
    predicted_s: float
    surprise: float

    @property
    def is_surprising(self) -> bool:
        """Whether it contradicts the others, so that the band is wider."""
        return abs(self.surprise) > SURPRISE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRuns:
    """Runs of a file that correct a prediction, and lines that do not serve."""

    file: str
    own: OwnRuns
    runs: tuple[TrainingRun, ...]
    skipped: tuple[Problem, ...]


def read_training_runs(path: Path, training: Training, band: float, nodes: int) -> TrainingRuns:
    """Runs of a training.

    Args:
        path: a table.
        training: whose steps the runs correct.
        band: logarithm that nine of ten predictions are within without these runs.
        nodes: of the training.

    Raises:
        ConfigError: the file cannot be read, or no row of it serves.
    """
    file = read_measurements(path)
    whys = {one.line: _why_not(one, training) for one in file.measurements}
    rows = [one for one in file.measurements if whys[one.line] is None]
    skipped = [Problem(line=line, text=why) for line, why in whys.items() if why]
    skipped = sorted([*skipped, *file.bad, *file.skipped], key=lambda one: one.line)
    if not rows:
        first = skipped[0] if skipped else Problem(line=1, text="it has no rows")
        raise ConfigError(
            f"{path}:{first.line}: {first.text}; no row of it is a run of "
            f"{training.workload.architecture.name}, so it corrects nothing."
        )
    own = _own_runs(rows, training, effect_scale(band / NINE_OF_TEN, over_nodes=nodes > 1))
    surprises_M = own.surprises(training.workload, training.machine)
    seconds = zip(
        rows,
        own.measured_s_M.tolist(),
        own.predicted_s_M.tolist(),
        surprises_M.tolist(),
        strict=True,
    )
    return TrainingRuns(
        file=path.name,
        own=own.without_contradicting(surprises_M),
        runs=tuple(
            TrainingRun(row=row, measured_s=measured, predicted_s=predicted, surprise=surprise)
            for row, measured, predicted, surprise in seconds
        ),
        skipped=tuple(skipped),
    )


def _own_runs(rows: Sequence[PublishedRow], training: Training, scale: float) -> OwnRuns:
    workload, layouts = training.workload, row_columns(rows)
    models = [cut_model(workload.architecture, one.shape.layers) for one in rows]
    measured_s_M = np.array([one.step_time_s for one in rows], np.float64)
    return OwnRuns(
        layouts=layouts,
        model=workload.architecture,
        sequence_length=workload.sequence_length,
        predicted_s_M=predicted_steps_s(layouts, models, workload, training.machine),
        measured_s_M=measured_s_M,
        scale=scale,
        noise=_noise(rows, measured_s_M),
    )


def cut_model(model: Architecture, layers: int) -> Architecture:
    """A model with fewer layers of the same kind."""
    experts = model.experts
    if experts is not None and experts.first_dense > layers:
        experts = replace(experts, first_dense=layers)
    return replace(model, layers=layers, experts=experts)


def _noise(rows: Sequence[PublishedRow], measured_s_M: Floats) -> float:
    """Spread of repeats, where a file has some and they differ more than published ones."""
    repeats: dict[tuple[object, ...], list[float]] = {}
    for one, seconds in zip(rows, measured_s_M.tolist(), strict=True):
        repeats.setdefault(one.settings, []).append(float(np.log(seconds)))
    squares = sum(len(same) * float(np.var(same)) for same in repeats.values())
    free = len(rows) - len(repeats)
    return max(NOISE, float(np.sqrt(squares / free))) if free >= _LEAST_REPEATS else NOISE


def _why_not(row: PublishedRow, training: Training) -> str | None:
    """Why a row is not a run of the training; None where it is."""
    if row.step_time_s is None:
        return "its step_time_s is empty"
    return next(_differences(row, training), None)


def _differences(row: Row, training: Training) -> Iterator[str]:
    workload, machine = training.workload, training.machine
    model, shape = workload.architecture, row.shape
    given = {
        "hidden": (shape.hidden, model.hidden),
        "heads": (shape.heads, model.heads),
        "kv_heads": (shape.kv_heads, model.kv_heads),
        "ffn_hidden": (shape.ffn, model.ffn),
        "vocab": (shape.vocabulary, model.vocabulary),
        "seq": (shape.seq, workload.sequence_length),
        "experts": (
            shape.experts.count if shape.experts else None,
            model.experts.count if model.experts else None,
        ),
        "precision": (row.precision.value, workload.precision.value),
        "gpu": (known_accelerator(row.gpu) or row.gpu, machine.accelerator.name),
        "gpus_per_node": (
            min(row.gpus_per_node or machine.gpus_per_node, row.gpus),
            min(machine.gpus_per_node, row.gpus),
        ),
    }
    for name, (found, wanted) in given.items():
        if found != wanted:
            yield f"{name} is {found}, but {model.name} is planned with {wanted}"
    if shape.layers is not None and (
        shape.layers > model.layers or (model.encoder_layers and shape.layers != model.layers)
    ):
        yield f"layers is {shape.layers}, but {model.name} has {model.layers}"
