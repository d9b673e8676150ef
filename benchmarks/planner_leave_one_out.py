"""The planner's constants fitted without the model that is scored, one model after the other.

    python benchmarks/planner_leave_one_out.py [--refit] [--write]

The constants of ``autotuner/cost/hardware.py`` are the most probable ones: least absolute
errors of the logarithms on the tables in ``WEIGHTS``, and a normal prior on the logarithm of each
constant around what is known of it elsewhere (``PRIORS``). Leaving a model out starts there and
takes Gauss-Newton steps without its rows. ``--refit`` prints the constants of all rows.
"others" corrects what they predict by the errors on the other models of the table, measured on the
same machines (``launcher/measurements/validation.py``); a table of one model has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from other_models import PhysicsOf, factors_of_others

from autoconf_launch.autotuner.cost.hardware import DEFAULT_PHYSICS, Physics
from autoconf_launch.autotuner.planner.calibration import TimeAccuracy, time_accuracy
from autoconf_launch.autotuner.space.table import Bools, Floats
from autoconf_launch.launcher.measurements.measured_runs import MeasuredRun, predicted_s, runs_of
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

FOLDER = Path(__file__).parent / "ground_truth"
RESULT = Path(__file__).parent / "results" / "planner_leave_one_out.md"
WEIGHTS = {
    "vtrain_single_node": 3.0,
    "vtrain_multi_node": 4.0,
    "bigscience_a100": 0.8,
    "llmfoundry_fsdp_a100": 2.0,
    "megatron_sc21": 1.0,
    "torchtitan": 1.5,
    "nemo_24_07_h100": 1.5,
    "amp_homogeneous_t4": 1.0,
}
PRIORS = {
    "sustained": (0.9, 0.08),
    "memory_efficiency": (0.85, 0.08),
    "kernel_s": (4e-6, 0.4),
    "split_efficiency": (0.8, 0.15),
    "depth_half": (150.0, 0.6),
    "flash_backward": (0.75, 0.15),
    "engine_attention": (1.4, 0.2),
    "score_passes": (6.5, 0.4),
    "small_passes": (1.0, 0.4),
    "unfused_attention": (0.5, 0.4),
    "misaligned_attention": (0.1, 0.8),
    "fp8_passes": (4.0, 0.4),
    "fp8_engine": (0.2, 0.8),
    "fp8_rowwise": (3.0, 0.5),
    "compiled_traffic": (0.5, 0.4),
    "layer_forward_s": (0.9e-3, 0.5),
    "layer_backward_s": (1.3e-3, 0.5),
    "layer_compiled": (0.35, 0.3),
    "unfused_softmax_s": (0.35e-3, 0.5),
    "collective_launch_s": (30e-6, 0.7),
    "straggler_s": (10e-6, 0.5),
    "host_sharpness": (4.0, 0.4),
    "micro_batch_s": (3e-3, 0.6),
    "step_s": (5e-3, 0.7),
    "network_fraction": (0.9, 0.04),
    "crossed_rails": (0.65, 0.2),
    "network_latency_s": (15e-6, 0.25),
    "hop_s": (8e-6, 0.5),
    "shard_overlap": (0.85, 0.1),
    "tensor_overlap": (0.1, 0.5),
    "async_tensor_overlap": (0.7, 0.2),
    "point_to_point_overlap": (0.5, 0.3),
    "contention": (0.2, 0.5),
    "optimizer_bytes": (30.0, 0.2),
}
"""Centre, and spread of the logarithm."""
_PRIOR_WEIGHT = 0.002
_ROBUST = 0.06
_STEP = 0.03
_ROUNDS = 3
_NAMES = tuple(PRIORS)
_CENTRES = np.log([centre for centre, _ in PRIORS.values()])
_SPREADS = np.array([spread for _, spread in PRIORS.values()])


PREAMBLE = """# Constants fitted without the model that is scored

Made by `python benchmarks/planner_leave_one_out.py --write`. The first of three columns is with
the constants as shipped, "left out" with constants fitted without the rows of the model that is
scored, "others" is left out and corrected by the errors on the other models of the table, measured
on the same machines (`launcher/measurements`). It helps where a table has many settings
of models that are alike, and costs where each model has a setting or two.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """All timed settings of all tables, repeats merged."""

    measurements: tuple[PublishedRow, ...]
    tables: tuple[str, ...]
    runs: tuple[MeasuredRun, ...]
    measured_s: Floats
    weights: Floats

    def errors(self, physics: Physics) -> Floats:
        """Logarithm of predicted over measured."""
        seconds = predicted_s(self.runs, len(self.measurements), physics)
        return np.asarray(np.log(seconds / self.measured_s))


def main() -> None:
    """Print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--refit", action="store_true", help="print constants fitted on all rows")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    flags = parser.parse_args()
    rows = all_rows()
    if flags.refit:
        for name, value in zip(_NAMES, fit_constants(rows, rows.weights), strict=True):
            print(f"{name}: {np.exp(value):.3g}")
        return
    text = left_out_table(rows)
    print(text)
    if flags.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(f"{PREAMBLE}\n{text}\n", encoding="utf-8")


def all_rows(names: Sequence[str] = tuple(WEIGHTS)) -> Rows:
    """Settings of the tables named; of megatron_sc21 only table 1."""
    kept: list[PublishedRow] = []
    seconds: list[float] = []
    tables: list[str] = []
    for table in names:
        repeats: dict[tuple[object, ...], list[PublishedRow]] = {}
        for one in read_measurements(FOLDER / f"{table}.csv").measurements:
            second_table = table == "megatron_sc21" and "vpp" in one.assumed
            if one.step_time_s is not None and not second_table:
                repeats.setdefault(one.settings, []).append(one)
        for same in repeats.values():
            kept.append(same[0])
            seconds.append(float(np.median([one.step_time_s or np.nan for one in same])))
            tables.append(table)
    runs, _ = runs_of(kept)
    return Rows(
        measurements=tuple(kept),
        tables=tuple(tables),
        runs=runs,
        measured_s=np.array(seconds),
        weights=_row_weights(kept, tables),
    )


def _row_weights(kept: Sequence[PublishedRow], tables: Sequence[str]) -> Floats:
    """Models of a table weigh by the root of their rows, tables as ``WEIGHTS`` says or nothing."""
    models = [(table, one.shape.name) for table, one in zip(tables, kept, strict=True)]
    weights = np.array([1.0 / np.sqrt(models.count(model)) for model in models])
    for table in dict.fromkeys(tables):
        mine = np.array([name == table for name in tables])
        weights[mine] *= WEIGHTS.get(table, 0.0) / weights[mine].sum()
    return weights


def physics_without_each(rows: Rows) -> Iterator[tuple[str, str, Physics]]:
    """Each table and model, with constants that were fitted without the rows of that model."""
    pairs = zip(rows.tables, rows.measurements, strict=True)
    models = sorted(
        {(table, one.shape.name) for table, one in pairs},
        key=lambda model: (rows.tables.index(model[0]), model[1]),
    )
    without = physics_without(rows, [_is_model(rows, *model) for model in models])
    for model, physics in zip(models, without, strict=True):
        yield *model, physics


def physics_without(rows: Rows, left_out: Sequence[Bools]) -> Iterator[Physics]:
    """Constants for each mask, fitted without its rows."""
    start = np.log([getattr(DEFAULT_PHYSICS, name) for name in _NAMES])
    slopes, errors = _slopes(rows, start), rows.errors(_physics(start))
    for out in left_out:
        moved = start.copy()
        for _ in range(_ROUNDS):
            now = errors + slopes @ (moved - start)
            moved += _move(now, slopes, moved, np.where(out, 0.0, rows.weights))
        yield _physics(moved)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """Seconds of each row that were predicted without any row of its model.

    Attributes:
        constants_s: by only the constants.
        others_s: corrected by the other models of the table besides.
    """

    constants_s: Floats
    others_s: Floats


def left_out(rows: Rows) -> LeftOut:
    """Each model of each table predicted without its own rows."""
    constants_s = np.full(len(rows.measurements), np.nan)
    factors = np.ones(len(rows.measurements))
    physics = {(table, name): found for table, name, found in physics_without_each(rows)}
    for (table, name), found in physics.items():
        out = _is_model(rows, table, name)
        constants_s[out] = (rows.measured_s * np.exp(rows.errors(found)))[out]
    for table in WEIGHTS:
        mine = np.flatnonzero([name == table for name in rows.tables])
        timed = [
            replace(rows.measurements[i], step_time_s=float(rows.measured_s[i])) for i in mine
        ]
        factors[mine] = factors_of_others(timed, _physics_of(physics, table))
    return LeftOut(constants_s=constants_s, others_s=constants_s * factors)


def _physics_of(physics: dict[tuple[str, str], Physics], table: str) -> PhysicsOf:
    return lambda model: physics[table, model]


def left_out_table(rows: Rows) -> str:
    """Accuracy of each table when each of its models is predicted without its own rows."""
    plain_s = rows.measured_s * np.exp(rows.errors(DEFAULT_PHYSICS))
    found = left_out(rows)
    lines = ["| table | rows | MAPE % | left out | others | Spearman | left out | others "]
    lines[0] += "| regret % | left out | others |"
    lines.append("|" + "---|" * 11)
    for table in WEIGHTS:
        mine = np.array([name == table for name in rows.tables])
        three = [score(rows, x, mine) for x in (plain_s, found.constants_s, found.others_s)]
        cells = [table, str(int(mine.sum()))]
        cells += [_cell(one.mape, 1) for one in three]
        cells += [_cell(one.spearman, 2) for one in three]
        cells += [_cell(one.top1_regret_mean, 1) for one in three]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fit_constants(rows: Rows, weights: Floats) -> Floats:
    """Logarithms of the most probable constants."""
    at = np.log([getattr(DEFAULT_PHYSICS, name) for name in _NAMES])
    for _ in range(_ROUNDS):
        at = at + _move(rows.errors(_physics(at)), _slopes(rows, at), at, weights)
    return np.asarray(at)


def _is_model(rows: Rows, table: str, name: str) -> Bools:
    pairs = zip(rows.measurements, rows.tables, strict=True)
    return np.array([one.shape.name == name and mine == table for one, mine in pairs])


def _physics(logarithms: Floats) -> Physics:
    values = dict(zip(_NAMES, np.exp(logarithms).tolist(), strict=True))
    return replace(DEFAULT_PHYSICS, **values)


def _slopes(rows: Rows, at: Floats) -> Floats:
    base = rows.errors(_physics(at))
    columns = []
    for i in range(len(at)):
        moved = at.copy()
        moved[i] += _STEP
        columns.append((rows.errors(_physics(moved)) - base) / _STEP)
    return np.column_stack(columns)


def _move(errors: Floats, slopes: Floats, at: Floats, weights: Floats) -> Floats:
    """A reweighted Gauss-Newton step towards least absolute errors and the priors."""
    robust = weights / np.maximum(np.abs(errors), _ROBUST)
    pull = 2 * _PRIOR_WEIGHT / _SPREADS**2
    system = slopes.T @ (robust[:, None] * slopes) + np.diag(pull)
    gradient = slopes.T @ (robust * errors) + pull * (at - _CENTRES)
    return np.asarray(np.clip(-np.linalg.solve(system, gradient), -0.3, 0.3))


def score(rows: Rows, predicted: Floats, mine: Bools) -> TimeAccuracy:
    """Accuracy of the rows of a mask."""
    groups = [
        (one.shape.name, one.gpu, one.gpus, one.global_batch)
        for one, use in zip(rows.measurements, mine, strict=True)
        if use
    ]
    return time_accuracy(predicted[mine], rows.measured_s[mine], groups)


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
