"""Real runs of one training, by a table with the columns of ``validate``.

Runs may have fewer GPUs, layers and samples. All else must be the training's: its model, GPU,
precision, sequence length, and its training code, which a table is not asked for.
Shapes: M = runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import (
    NINE_OF_TEN,
    NOISE,
    SURPRISE,
    effect_scale,
)
from autoconf_launch.autotuner.planner import (
    OwnRuns,
    Training,
    cut_model,
    is_same_model,
    predicted_steps_s,
)
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import Architecture, ConfigError, Layout, Workload
from autoconf_launch.tuning_spaces import known_accelerator, known_model

from .measured_runs import TOO_FAST, is_impossible, row_columns
from .row import Problem, PublishedRow, read_measurements

_LEAST_REPEATS = 3
"""Fewer repeats would take a single wrong one for the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A run and its prediction.

    Attributes:
        surprise: deviation from the expectation by the other runs, in spreads.
        spreads_off: deviation from its prediction, in spreads.
    """

    row: PublishedRow
    measured_s: float
    predicted_s: float
    surprise: float
    spreads_off: float

    @property
    def is_surprising(self) -> bool:
        return abs(self.surprise) > SURPRISE

    @property
    def is_unforeseen(self) -> bool:
        return not self.is_surprising and abs(self.spreads_off) > SURPRISE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRuns:
    """Runs of a file that correct a prediction, and lines that do not serve."""

    file: str
    own: OwnRuns
    runs: tuple[TrainingRun, ...]
    skipped: tuple[Problem, ...]


def read_training_runs(
    path: str | Path, training: Training, band: float, nodes: int
) -> TrainingRuns:
    """Runs of a training.

    Args:
        path: a table.
        training: whose steps the runs correct.
        band: logarithm that nine of ten predictions are within without these runs.
        nodes: of the training.

    Raises:
        ConfigError: the file cannot be read, or no row of it serves.
    """
    file = read_measurements(Path(path))
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
    off_M = own.spreads_off(training.workload, training.machine)
    seconds = zip(
        rows,
        own.measured_s_M.tolist(),
        own.predicted_s_M.tolist(),
        surprises_M.tolist(),
        off_M.tolist(),
        strict=True,
    )
    return TrainingRuns(
        file=Path(path).name,
        own=own.without_contradicting(surprises_M, off_M),
        runs=tuple(
            TrainingRun(
                row=row,
                measured_s=measured,
                predicted_s=predicted,
                surprise=surprise,
                spreads_off=off,
            )
            for row, measured, predicted, surprise, off in seconds
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


def row_to_fill(workload: Workload, gpu: str, layout: Layout) -> dict[str, str]:
    """A run as a row of a table that :func:`read_training_runs` takes once its time is filled in.

    Args:
        workload: of the run, its model with the layers that it has.
        gpu: its name.
        layout: of the run.
    """
    model = workload.architecture
    known = known_model(model.name)
    is_named = known is not None and is_same_model(known, model)
    cells: dict[str, object] = {"model": model.name, "layers": model.layers}
    if not (is_named and known is not None and known.vocabulary == model.vocabulary):
        cells |= _shape_cells(model)
    cells |= {
        "seq": workload.sequence_length,
        "gpu": gpu,
        "n_gpus": layout.world_size,
        "tp": layout.tensor_parallel,
        "pp": layout.pipeline_parallel,
        "vpp": layout.virtual_pipeline,
        "cp": layout.context_parallel,
        "ep": layout.expert_parallel,
        "dp": layout.data_parallel,
        "mbs": layout.micro_batch,
        "gbs": layout.global_batch,
        "precision": workload.precision.value,
        "recompute": layout.recompute.value,
        "sequence_parallel": int(layout.sequence_parallel),
        "zero_dist_opt": layout.zero_stage,
        **_recipe_cells(workload),
        "step_time_s": "",
    }
    return {name: str(value) for name, value in cells.items()}


def _recipe_cells(workload: Workload) -> dict[str, object]:
    """Cells on states, loss and adapters that differ from a trainer's defaults."""
    asked: dict[str, object] = {
        "states": workload.states and workload.states.value,
        "gradients": workload.gradients and workload.gradients.value,
        "loss": workload.loss and workload.loss.value,
        "lora_rank": workload.lora_rank,
        "weights": workload.weight_format and workload.weight_format.value,
        "update_in_backward": 1 if workload.updates_in_backward else None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _shape_cells(model: Architecture) -> dict[str, object]:
    cells: dict[str, object] = {
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn_hidden": model.ffn,
        "vocab": model.vocabulary,
    }
    if (experts := model.experts) is not None:
        cells |= {
            "experts": experts.count,
            "experts_per_token": experts.per_token,
            "expert_ffn": experts.ffn,
            "shared_experts": experts.shared,
        }
    return cells


def _noise(rows: Sequence[PublishedRow], measured_s_M: Floats) -> float:
    """Spread of a file's repeats, at least the spread of published repeats."""
    repeats: dict[tuple[object, ...], list[float]] = {}
    for one, seconds in zip(rows, measured_s_M.tolist(), strict=True):
        repeats.setdefault(one.settings, []).append(float(np.log(seconds)))
    squares = sum(len(same) * float(np.var(same)) for same in repeats.values())
    free = len(rows) - len(repeats)
    return max(NOISE, float(np.sqrt(squares / free))) if free >= _LEAST_REPEATS else NOISE


def _why_not(row: PublishedRow, training: Training) -> str | None:
    if row.step_time_s is None:
        return "its step_time_s is empty"
    if why := next(_differences(row, training), None):
        return why
    model = cut_model(training.workload.architecture, row.shape.layers)
    is_wrong = is_impossible(row, model, training.machine.accelerator)
    return f"its step of {row.step_time_s:g} s is {TOO_FAST}" if is_wrong else None


def _differences(row: PublishedRow, training: Training) -> Iterator[str]:
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
