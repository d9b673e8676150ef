"""Predictions compared with tables of measurements.

A table counts as one machine and its software, on which errors of the time model repeat: a
layer of the same kernels waits for the same host. Rows of a model are never used for that model,
nor rows of the same shape under another name. Repeats count once, by their median.
Shapes: R = rows that are predicted, M = measured settings.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
    DEFAULT_PHYSICS,
    LayoutColumns,
    Likeness,
    Physics,
    TimeAccuracy,
    Verdict,
    calibration_factors,
    kernel_traits,
    likeness,
    mape,
    time_accuracy,
    verdict,
)
from autoconf_launch.autotuner.space import Bools, Floats, Ints
from autoconf_launch.core import GIB, ConfigError
from autoconf_launch.tuning_spaces import usable_bytes

from ..asked import ValidateQuestion
from .measured_runs import (
    MeasuredRun,
    mixed_memory,
    mixed_step_s,
    peaks_bytes,
    predict,
    runs_of,
    trainer_of,
    with_recompute,
)
from .row import MeasurementFile, PublishedRow, read_measurements

BAD_ROW = "bad row"
_MILLI = 300.0
"""Errors of predictions are far below it, and 1,000 is above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measurements of each model to fit on, and the seed that draws them.

    Without ``fit`` they are excluded from the score and the factors stay 1.
    """

    count: int
    seed: int
    fit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Counts of failed and completed runs, and of runs that were predicted not to fit.

    Attributes:
        failed_rows_safe: failed runs that were predicted to fit; the others are marginal.
    """

    failed_rows: int
    failed_rows_flagged: int
    failed_rows_safe: int
    ran_rows: int
    ran_rows_flagged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRow:
    """A row and its prediction, without any correction."""

    row: PublishedRow
    step_s: float
    peak_bytes: float

    @property
    def time_error(self) -> float | None:
        measured_s = self.row.step_time_s
        return None if measured_s is None else self.step_s / measured_s - 1.0

    @property
    def memory_error(self) -> float | None:
        measured_gb = self.row.memory_gb
        return None if measured_gb is None else self.peak_bytes / (measured_gb * GIB) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Validation:
    """Scores of a table, or of several.

    Attributes:
        trainers: trainers of the predicted rows, with their numbers of rows.
        times: errors of settings; repeats are merged by their median.
    """

    rows: int
    predicted: int
    assumed: int
    skipped: tuple[tuple[str, int], ...]
    trainers: tuple[tuple[str, int], ...]
    times: TimeAccuracy
    timed: TimedSettings
    memory_R: tuple[Floats, Floats]
    fits: Fits
    each: tuple[PredictedRow, ...]

    @property
    def memory_mape(self) -> float | None:
        """Mean error of the peaks in percent."""
        return mape(*self.memory_R)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedSettings:
    """Predicted and measured seconds; ``group_R`` is what orders are compared inside of."""

    predicted_s_R: Floats
    measured_s_R: Floats
    group_R: tuple[tuple[object, ...], ...]

    @staticmethod
    def join(parts: Sequence[TimedSettings]) -> TimedSettings:
        return TimedSettings(
            predicted_s_R=np.concatenate([one.predicted_s_R for one in parts]),
            measured_s_R=np.concatenate([one.measured_s_R for one in parts]),
            group_R=tuple(group for one in parts for group in one.group_R),
        )


def calibration_of(asked: ValidateQuestion) -> Calibration | None:
    """A calibration on a number of measurements of each model; None without one."""
    if asked.calibrate is None:
        return None
    return Calibration(count=asked.calibrate, seed=asked.seed)


def score_files(
    paths: Sequence[Path],
    calibration: Calibration | None = None,
    trainer: str = AUTO_TRAINER,
) -> list[tuple[MeasurementFile, Validation]]:
    """Tables with their scores, in order.

    Args:
        paths: files.
        calibration: None: without one.
        trainer: of the rows whose own column names none; ``auto``: as ``trainer_of`` says.

    Raises:
        ConfigError: two have the same name, or one is not a table of measurements.
    """
    names = [path.name for path in paths]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"Two files are named {twice[0]}; give each file once.")
    files = [_with_trainer(read_measurements(path), trainer) for path in paths]
    return [(file, validate_table(file, calibration)) for file in files]


def _with_trainer(file: MeasurementFile, name: str) -> MeasurementFile:
    if name == AUTO_TRAINER:
        return file
    rows = tuple(replace(one, trainer=one.trainer or name) for one in file.measurements)
    return replace(file, measurements=rows)


def validate_table(file: MeasurementFile, calibration: Calibration | None = None) -> Validation:
    """Score a table."""
    measurements = with_recompute(file.measurements)
    runs, reasons = runs_of(measurements)
    rows = [i for run in runs for i in run.rows]
    seconds = step_times_s(runs)
    timed = _timed_settings(measurements, rows, (seconds, runs), calibration)
    peaks, limits = peaks_bytes(measurements, rows), np.full(len(measurements), np.nan)
    limits[rows] = [usable_bytes(measurements[i].gpu) for i in rows]
    mixed_s = mixed_step_s(measurements)
    row_s = mixed_s.copy()
    row_s[rows] = seconds
    if mixed := np.flatnonzero(np.isfinite(mixed_s)).tolist():
        others = _timed_settings(measurements, mixed, (mixed_s[mixed], ()), None)
        timed = TimedSettings.join([timed, others])
        for i in mixed:
            peaks[i], limits[i] = mixed_memory(measurements[i])
            del reasons[i]
        rows += mixed
    counts = Counter(problem.text for problem in file.skipped)
    counts.update(reasons.values())
    if file.bad:
        counts[BAD_ROW] = len(file.bad)
    return Validation(
        rows=file.rows,
        predicted=len(rows),
        assumed=sum(bool(measurements[i].assumed) for i in rows),
        skipped=tuple(sorted(counts.items())),
        trainers=tuple(Counter(trainer_of(measurements[i]) for i in sorted(rows)).items()),
        times=time_accuracy(timed.predicted_s_R, timed.measured_s_R, timed.group_R),
        timed=timed,
        memory_R=_memory(measurements, peaks),
        fits=_fits(measurements, peaks, limits),
        each=tuple(
            PredictedRow(row=measurements[i], step_s=float(row_s[i]), peak_bytes=float(peaks[i]))
            for i in sorted(rows)
        ),
    )


def suspected_unit(name: str, over_predicted: Sequence[float]) -> Iterator[str]:
    """A warning if measured steps are hundreds of times the predicted seconds."""
    found = [ratio for ratio in over_predicted if math.isfinite(ratio)]
    if found and (ratio := statistics.median(found)) > _MILLI:
        yield (
            f"{name}: warning: steps take {ratio:,.0f} times the predicted seconds; are "
            "they milliseconds? step_time_s must be in seconds."
        )


def step_times_s(
    runs: Sequence[MeasuredRun],
    physics: Physics = DEFAULT_PHYSICS,
    calibration_R: Floats | None = None,
) -> Floats:
    """Seconds of each row, run after run."""
    seconds, first = [np.zeros(0)], 0
    for run in runs:
        last = first + len(run.rows)
        factors = None if calibration_R is None else calibration_R[first:last]
        seconds.append(predict(run, physics, factors).step_s_C)
        first = last
    return np.concatenate(seconds)


def together(validations: Sequence[Validation]) -> Validation:
    """All tables as if they were one."""
    counts, trainers = Counter[str](), Counter[str]()
    for one in validations:
        counts.update(dict(one.skipped))
        trainers.update(dict(one.trainers))
    timed = TimedSettings.join([one.timed for one in validations])
    names = [one.name for one in fields(Fits)]
    return Validation(
        rows=sum(one.rows for one in validations),
        predicted=sum(one.predicted for one in validations),
        assumed=sum(one.assumed for one in validations),
        skipped=tuple(sorted(counts.items())),
        trainers=tuple(trainers.items()),
        times=time_accuracy(timed.predicted_s_R, timed.measured_s_R, timed.group_R),
        timed=timed,
        memory_R=(
            np.concatenate([one.memory_R[0] for one in validations]),
            np.concatenate([one.memory_R[1] for one in validations]),
        ),
        fits=Fits(**{name: sum(getattr(one.fits, name) for one in validations) for name in names}),
        each=tuple(row for one in validations for row in one.each),
    )


def _timed_settings(
    measurements: Sequence[PublishedRow],
    rows: Sequence[int],
    predicted: tuple[Floats, Sequence[MeasuredRun]],
    calibration: Calibration | None,
) -> TimedSettings:
    """Settings with a time, repeats merged; with calibration those that were not fitted on."""
    repeats: dict[tuple[object, ...], list[int]] = {}
    for position, i in enumerate(rows):
        if measurements[i].step_time_s is not None:
            repeats.setdefault(repeat_key(measurements[i]), []).append(position)
    first = [same[0] for same in repeats.values()]
    measured = np.array(
        [
            np.median([measurements[rows[position]].step_time_s or np.nan for position in same])
            for same in repeats.values()
        ],
        np.float64,
    )
    kept = [measurements[rows[position]] for position in first]
    seconds, scored = predicted[0][first], np.ones(len(first), np.bool_)
    if calibration is not None and first:
        of_settings = (seconds, likeness_of(predicted[1]).rows(np.array(first)))
        factors_R = np.ones(len(rows))
        factors_R[first], scored = _calibrate(kept, of_settings, measured, calibration)
        seconds = step_times_s(predicted[1], calibration_R=factors_R)[first]
    return TimedSettings(
        predicted_s_R=seconds[scored],
        measured_s_R=measured[scored],
        group_R=tuple(_group(one) for one, use in zip(kept, scored, strict=True) if use),
    )


def likeness_of(runs: Sequence[MeasuredRun]) -> Likeness:
    """Likeness of rows, over all runs in order; at least one run is needed."""
    sizes = [len(run.rows) for run in runs]
    models = [run.workload.architecture for run in runs]
    shapes = [(run.workload.architecture.hidden, run.workload.sequence_length) for run in runs]
    return likeness(
        LayoutColumns.join([run.layouts for run in runs]),
        np.repeat(_number_values([software_of(run) for run in runs]), sizes),
        np.repeat(_number_values(models), sizes),
        np.repeat(np.array(shapes, np.float64), sizes, axis=0),
        np.repeat([run.machine.gpus_per_node for run in runs], sizes),
    )


def software_of(run: MeasuredRun) -> tuple[object, ...]:
    """Everything of a run that its model and its network do not say."""
    adapters_alone = run.workload.trains_adapters  # their share follows from the model
    return run.machine.accelerator.name, adapters_alone, *kernel_traits(run.workload)


def _number_values(values: Sequence[object]) -> Ints:
    """Equal values get equal numbers."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def _group(one: PublishedRow) -> tuple[object, ...]:
    return one.shape.name, one.gpu, one.gpus, one.global_batch


def _calibrate(
    kept: Sequence[PublishedRow],
    predicted: tuple[Floats, Likeness],
    measured: Floats,
    calibration: Calibration,
) -> tuple[Floats, Bools]:
    """Each setting's factor by those drawn of every model, and which were not drawn."""
    seconds, alike = predicted
    generator = np.random.default_rng(calibration.seed)
    models: dict[str, list[int]] = {}
    for i, one in enumerate(kept):
        models.setdefault(one.shape.name, []).append(i)
    drawn = np.concatenate(
        [generator.permutation(mine)[: calibration.count] for mine in models.values()]
    )
    scored = np.ones(len(kept), np.bool_)
    scored[drawn] = False
    used = drawn if calibration.fit else drawn[:0]
    return calibration_factors(seconds, alike, used, measured[used]), scored


def _memory(measurements: Sequence[PublishedRow], peaks: Floats) -> tuple[Floats, Floats]:
    measured_gb = np.array([one.memory_gb or np.nan for one in measurements], np.float64)
    known = ~np.isnan(measured_gb) & ~np.isnan(peaks)
    return peaks[known] / GIB, measured_gb[known]


def _fits(measurements: Sequence[PublishedRow], peaks: Floats, limits: Floats) -> Fits:
    verdicts: dict[bool, list[Verdict]] = {True: [], False: []}
    for one, peak, limit in zip(measurements, peaks, limits, strict=True):
        if not np.isnan(peak):
            verdicts[one.out_of_memory].append(verdict(peak, limit))
    failed, ran = verdicts[True], verdicts[False]
    return Fits(
        failed_rows=len(failed),
        failed_rows_flagged=failed.count(Verdict.NO),
        failed_rows_safe=failed.count(Verdict.YES),
        ran_rows=len(ran),
        ran_rows_flagged=ran.count(Verdict.NO),
    )


def repeat_key(one: PublishedRow) -> tuple[object, ...]:
    """Equal for repeats: the same settings under the same training code."""
    return one.settings, trainer_of(one)
