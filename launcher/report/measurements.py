"""What ``validate`` prints: a table of tables, or one JSON document."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TextIO

from autoconf_launch.autotuner.planner import RUN_STEPS
from autoconf_launch.autotuner.search import REGRET_AT, WITHIN, Score
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import GIB, Candidate, encode, plural

from ..estimates import Verifying
from ..export import NATIVE
from ..measurements import (
    Calibration,
    MeasurementFile,
    PredictedRow,
    TrainingRuns,
    Validation,
    suspected_unit,
)
from .cells import (
    csv_text,
    duration_text,
    number_text,
    percent,
    step_time_text,
    table_of,
    trainers_text,
    write_csv,
)
from .plan_reasons import name_of

REPLAY_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """A group's score for each seed."""

    name: str
    configs: int
    scores: tuple[Score, ...]


def _percent(share: float) -> float:
    return 100.0 * share


_METRICS: dict[str, Callable[[Score], float]] = {
    **{
        f"trials_to_{round(100 * share)}pct": lambda one, i=i: one.trials_to[i]  # type: ignore[misc]
        for i, share in enumerate(WITHIN)
    },
    **{
        f"regret_at_{count}": lambda one, i=i: _percent(one.regret_at[i])  # type: ignore[misc]
        for i, count in enumerate(REGRET_AT)
    },
    "out_of_memory_trials": lambda one: one.out_of_memory_trials,
    "stopped_at": lambda one: one.stopped_at,
    "final_regret": lambda one: _percent(one.final_regret),
}


def replay_document(scored: Sequence[GroupScores], notes: Sequence[str]) -> dict[str, object]:
    """The JSON document; a regret is null where nothing had run yet."""
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    return {
        "schema_version": REPLAY_SCHEMA_VERSION,
        "groups": {group.name: _summary(group.configs, group.scores) for group in scored},
        "all": {"groups": len(scored), **_summary(configs, everything)},
        "left_out": list(notes),
    }


def replay_lines(scored: Sequence[GroupScores]) -> Iterator[str]:
    """A table with a row for each group, means over seeds, and the worst of all."""
    header: tuple[str, ...]
    header = ("group", "configs", "to 2 %", "to 5 %", "regret at 4", "stopped at", "final %")
    header += ("out of memory", "certificate")
    rows = [_replay_text_cells(group.name, group.configs, group.scores) for group in scored]
    everything = tuple(one for group in scored for one in group.scores)
    configs = sum(group.configs for group in scored)
    rows.append(_replay_text_cells(f"all {len(scored)} groups", configs, everything))
    yield table_of(rows, header, ("left", *["right"] * (len(header) - 1)))
    worst = max(_METRICS["trials_to_2pct"](one) for one in everything)
    yield f"Trials until within 2 % of the best: at worst {worst:.0f}."


def _replay_text_cells(name: str, configs: int, scores: Sequence[Score]) -> tuple[str, ...]:
    shown = ("trials_to_2pct", "trials_to_5pct", "regret_at_4", "stopped_at", "final_regret")
    means = (_mean(scores, metric) for metric in (*shown, "out_of_memory_trials"))
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    told = "-" if not truths else "true" if all(truths) else f"{truths.count(False)} false"
    return name, str(configs), *(f"{mean:.1f}" for mean in means), told


def _mean(scores: Sequence[Score], metric: str) -> float:
    return sum(map(_METRICS[metric], scores)) / len(scores)


def _summary(configs: int, scores: Sequence[Score]) -> dict[str, object]:
    truths = [one.certificate_true for one in scores if one.certificate_true is not None]
    return {
        "configs": configs,
        **{
            metric: {
                "mean": _finite(_mean(scores, metric)),
                "worst": _finite(max(map(of, scores))),
            }
            for metric, of in _METRICS.items()
        },
        "certificates": {"given": len(truths), "true": sum(truths)},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_SCHEMA_VERSION = 1


def validation_document(
    scored: Sequence[tuple[MeasurementFile, Validation]],
    everything: Validation,
    calibration: Calibration | None,
) -> dict[str, object]:
    """The JSON document."""
    fitted: dict[str, object] = {}
    if calibration is not None:
        fitted["calibration"] = {"rows_per_model": calibration.count, "seed": calibration.seed}
    return {
        "schema_version": _SCHEMA_VERSION,
        **fitted,
        "files": {
            file.name: {**_scores(one), "problems": _problems(file)} for file, one in scored
        },
        "all": _scores(everything),
    }


def problem_lines(files: Sequence[MeasurementFile]) -> Iterator[str]:
    """What is wrong in the tables, line by line."""
    for file in files:
        for problem in file.bad:
            yield f"{file.name}:{problem.line}: skipped: {problem.sentence}"
        for problem in file.warnings:
            yield f"{file.name}:{problem.line}: warning: {problem.sentence}"


def validation_lines(
    scored: Sequence[tuple[MeasurementFile, Validation]], everything: Validation
) -> Iterator[str]:
    """The trainers, and a table with a row for each file."""
    if everything.trainers:
        yield trainers_text(everything.trainers)
    rows = [(file.name.removesuffix(".csv"), one) for file, one in scored]
    if len(rows) > 1:
        rows.append(("all", everything))
    header: tuple[str, ...]
    header = ("table", "rows", "predicted", "assumed", "MAPE %", "median %", "Spearman")
    header += ("regret %", "worst %", "memory %", "flagged OOM", "called safe", "false alarms")
    align = ("left", *["right"] * (len(header) - 1))
    yield table_of([_cells(name, one) for name, one in rows], header, align)
    for name, one in rows[: len(scored)]:
        for reason, count in one.skipped:
            yield f"{name}: {count} skipped: {reason}"


def unit_warnings(scored: Sequence[tuple[MeasurementFile, Validation]]) -> Iterator[str]:
    """Tables whose steps take a thousand times as long as they can."""
    for file, one in scored:
        pairs = [(row.row.step_time_s, row.step_s) for row in one.each]
        yield from suspected_unit(file.name, [x / y for x, y in pairs if x])


_ROW_COLUMNS = ("line", "model", "gpu", "n_gpus", "layout", "gbs", "precision")
_ROW_NUMBERS = ("predicted_s", "measured_s", "time_error_percent")
_ROW_MEMORY = ("predicted_gib", "measured_gib", "memory_error_percent")


def row_lines(scored: Sequence[tuple[MeasurementFile, Validation]]) -> Iterator[str]:
    """A table with a line for each predicted row of each file."""
    header = (*_ROW_COLUMNS, "s", "measured", "error %", "GiB", "measured", "error %", "assumed")
    align = ("right", *["left"] * 2, "right", "left", "right", "left", *["right"] * 6, "left")
    for file, one in scored:
        yield f"\n{file.name}:"
        rows = [
            (*_what_ran(row), *_row_texts(row), ", ".join(row.row.assumed)) for row in one.each
        ]
        yield table_of(rows, header, align)


def rows_csv(scored: Sequence[tuple[MeasurementFile, Validation]], file: TextIO) -> None:
    """Write a header and a line for each predicted row; what was not measured is empty."""
    header = ("table", *_ROW_COLUMNS, *_ROW_NUMBERS, *_ROW_MEMORY, "assumed")
    write_csv(file, [header])
    for table, one in scored:
        for row in one.each:
            numbers = ("" if x is None else f"{x:.6g}" for x in _row_numbers(row))
            assumed = " ".join(row.row.assumed)
            write_csv(file, [(table.name, *_what_ran(row), *numbers, assumed)])


def _what_ran(one: PredictedRow) -> tuple[str, ...]:
    row = one.row
    layout = candidate_name(Candidate(layout=row.layout))
    return (
        *(str(row.line), row.shape.name, row.gpu, str(row.gpus), layout),
        *(str(row.global_batch), row.precision.value),
    )


def _row_numbers(one: PredictedRow) -> tuple[float | None, ...]:
    """Seconds and GiB, predicted and measured, each with its error in percent."""
    time, memory = one.time_error, one.memory_error
    return (
        *(one.step_s, one.row.step_time_s, None if time is None else 100 * time),
        *(one.peak_bytes / GIB, one.row.memory_gb, None if memory is None else 100 * memory),
    )


def _row_texts(one: PredictedRow) -> tuple[str, ...]:
    time_s, measured_s, time, memory_gib, measured_gib, memory = _row_numbers(one)
    seconds = "OOM" if one.row.out_of_memory else _number(measured_s, 3)
    return (
        *(_number(time_s, 3), seconds, _with_sign(time)),
        *(_number(memory_gib), _number(measured_gib), _with_sign(memory)),
    )


def _with_sign(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:+.1f}"


def _cells(name: str, one: Validation) -> tuple[str, ...]:
    times, fits = one.times, one.fits
    return (
        name,
        str(one.rows),
        str(one.predicted),
        str(one.assumed),
        _number(times.mape),
        _number(times.median_ape),
        _number(times.spearman, 2),
        _number(times.top1_regret_mean),
        _number(times.top1_regret_max),
        _number(one.memory_mape),
        f"{fits.failed_rows_flagged}/{fits.failed_rows}",
        f"{fits.failed_rows_safe}/{fits.failed_rows}",
        f"{fits.ran_rows_flagged}/{fits.ran_rows}",
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _scores(one: Validation) -> dict[str, object]:
    times, fits = one.times, one.fits
    return {
        "rows": one.rows,
        "predicted": one.predicted,
        "assumed": one.assumed,
        "trainers": dict(one.trainers),
        "skipped": dict(one.skipped),
        "step_time": {
            "mape": times.mape,
            "median_ape": times.median_ape,
            "spearman": times.spearman,
            "top1_regret_mean": times.top1_regret_mean,
            "top1_regret_max": times.top1_regret_max,
            "groups": times.groups,
        },
        "memory": {"rows": len(one.memory_R[0]), "mape": one.memory_mape},
        "fits": {
            "failed_rows": fits.failed_rows,
            "failed_rows_flagged": fits.failed_rows_flagged,
            "failed_rows_safe": fits.failed_rows_safe,
            "ran_rows": fits.ran_rows,
            "ran_rows_flagged": fits.ran_rows_flagged,
        },
    }


def _problems(file: MeasurementFile) -> list[dict[str, object]]:
    kinds = (("bad", file.bad), ("skipped", file.skipped), ("warning", file.warnings))
    return [
        {"line": problem.line, "kind": kind, "text": problem.text}
        for kind, problems in kinds
        for problem in problems
    ]


_ORDER = (
    "Layouts are in the order of the step plus one spread of what the runs leave unknown, so one "
    "unlike those that ran is first only where it is clearly faster."
)


def training_runs_text(found: TrainingRuns) -> str:
    """Runs that corrected an answer, beside what was predicted of them."""
    rows = [
        [
            str(one.row.line),
            f"{one.row.gpus:,}",
            str(one.row.shape.layers),
            name_of(one.row.layout),
            step_time_text(one.measured_s),
            step_time_text(one.predicted_s),
            percent(one.measured_s / one.predicted_s - 1.0, "+"),
        ]
        for one in found.runs
    ]
    headers = ["line", "GPUs", "layers", "layout", "measured", "predicted", "slower"]
    align = ["right", "right", "right", "left", "right", "right", "right"]
    lines = [f"Corrected by {plural(len(rows), 'run')} of {found.file}:"]
    lines += [table_of(rows, headers, align), _ORDER, *_doubtful_runs(found)]
    return "\n".join(lines)


def _doubtful_runs(found: TrainingRuns) -> Iterator[str]:
    others = "the other runs let expect" if len(found.runs) > 1 else "was predicted"
    is_alone = all(one.is_surprising for one in found.runs)
    result = "the band is wider" if is_alone else "it corrects nothing and the band is wider"
    for one in found.runs:
        if one.is_surprising:
            yield (
                f"{found.file}:{one.row.line} is {abs(one.surprise):.1f} spreads off what "
                f"{others}, so {result}; measure it again."
            )
    if far := [one for one in found.runs if one.is_unforeseen]:
        lines = ", ".join(str(one.row.line) for one in far)
        off = max(abs(one.spreads_off) for one in far)
        yield (
            f"Lines {lines} of {found.file} are up to {off:.1f} spreads off what was predicted, "
            "but agree with each other, so they correct the answer and the band is wider; check "
            "that they ran this model with this software."
        )
    yield from (f"{found.file}:{one.line} is skipped: {one.sentence}" for one in found.skipped)


def training_runs_document(found: TrainingRuns) -> dict[str, Any]:
    """The same as values; beyond 3 spreads off the band is wider."""
    return {
        "file": found.file,
        "runs": [
            {
                "line": one.row.line,
                "n_gpus": one.row.gpus,
                "layers": one.row.shape.layers,
                "measured_s": one.measured_s,
                "predicted_s": one.predicted_s,
                "spreads_off": one.surprise,
                "spreads_off_prediction": one.spreads_off,
            }
            for one in found.runs
        ],
        "skipped": [{"line": one.line, "why": one.text} for one in found.skipped],
    }


_FRAMEWORKS = {NATIVE: "our runtime", "megatron": "Megatron-LM"}


def verifying_text(found: Verifying, layers: int, band: Callable[[float], str]) -> str:
    """The runs that narrow an answer, what each takes, its command, and the rows to fill.

    Args:
        found: the runs.
        layers: of the whole model.
        band: the answer's band in words, by the share of its spread that runs leave.
    """
    now = found.found.narrowing
    if not found.named:
        return _no_run(found)
    rows = [
        [
            str(number),
            f"{one.verifying.run.layout.world_size:,}",
            f"{one.verifying.run.layers} of {layers}",
            name_of(one.verifying.run.layout),
            step_time_text(one.verifying.run.step_s),
            duration_text(one.verifying.run.seconds),
            "-" if one.verifying.usd is None else number_text(one.verifying.usd, 3),
            band(one.verifying.narrowing / now),
        ]
        for number, one in enumerate(found.named, start=1)
    ]
    headers = ["run", "GPUs", "layers", "layout", "step", "time", "USD", "band then"]
    align = ["right", "right", "right", "left", "right", "right", "right", "left"]
    lines = [
        f"Runs that narrow the band, now {band(1.0)} ({RUN_STEPS} steps each, "
        f"{duration_text(found.start_s)} to start assumed{_total(found)}):",
        table_of(rows, headers, align),
        *_further(found),
        *_commands(found),
        "Put the seconds of a step into step_time_s, and give the file with --measured:",
        csv_text(
            [tuple(found.named[0].row), *(tuple(one.row.values()) for one in found.named)]
        ).rstrip(),
    ]
    return "\n".join(lines)


def _total(found: Verifying) -> str:
    usd = [one.verifying.usd for one in found.named]
    return "" if None in usd else f"; {number_text(sum(x or 0.0 for x in usd), 3)} USD in all"


_SAME_BAND = 0.99
"""Share of a band above which it counts as the same."""


def _further(found: Verifying) -> Iterator[str]:
    """What the table does not say of its runs, and why there are no more."""
    ends = [found.found.narrowing, *(one.verifying.narrowing for one in found.named)]
    steady = [
        str(number)
        for number, (before, after) in enumerate(pairwise(ends), start=1)
        if after > _SAME_BAND * before
    ]
    if steady:
        yield (
            f"{'Runs' if len(steady) > 1 else 'Run'} {', '.join(steady)}: for the choice, not for "
            "the band; another layout may be faster than the chosen one."
        )
    if found.bounds.runs is not None and len(found.named) < found.bounds.runs:
        yield "Further runs would narrow it by less than 1 % each."


def _commands(found: Verifying) -> Iterator[str]:
    """Each run's command; arguments that several of Megatron-LM's share are said once."""
    shared = _shared_flags([one.command.flags for one in found.named if one.command is not None])
    if shared:
        yield f"common=({' '.join(shared)})"
    for number, one in enumerate(found.named, start=1):
        if one.command is None:
            yield (
                f"run {number}: neither our runtime nor Megatron-LM with mock data runs it as "
                "predicted; plan --export FRAMEWORK -o DIR writes its layout."
            )
            continue
        text = one.command.text
        if shared and one.command.flags:
            rest = (flag for flag in one.command.flags if flag not in shared)
            text = " ".join((one.command.start, *rest, '"${common[@]}"'))
        nodes, framework = one.verifying.run.nodes, one.command.framework
        where = f" on each of {nodes} nodes" if nodes > 1 and framework != NATIVE else ""
        yield f"run {number}, {_FRAMEWORKS[framework]}{where}: {text}"


def _shared_flags(each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Those of all commands that have flags, if these are several."""
    first, *others = [flags for flags in each if flags] or [()]
    return tuple(flag for flag in first if others and all(flag in other for other in others))


def _no_run(found: Verifying) -> str:
    cheapest, budget = found.found.cheapest_usd, found.bounds.usd
    if not found.found.pool:
        return "No verifying run: no smaller run of this training fits in memory."
    if budget is not None and cheapest is not None and cheapest > budget:
        return (
            f"No verifying run for {number_text(budget)} USD: the cheapest costs "
            f"{number_text(cheapest, 3)} USD."
        )
    return "No verifying run: none would narrow the band noticeably beyond what was measured."


def verifying_document(found: Verifying) -> dict[str, Any]:
    """The same as values; ``narrowing`` is the spread of the error over that without runs."""
    return {
        "narrowing": found.found.narrowing,
        "why_none": None if found.named else _no_run(found),
        "runs": [
            {
                "n_gpus": one.verifying.run.layout.world_size,
                "nodes": one.verifying.run.nodes,
                "layers": one.verifying.run.layers,
                "layout": encode(one.verifying.run.layout),
                "step_s": one.verifying.run.step_s,
                "seconds": one.verifying.run.seconds,
                "usd": one.verifying.usd,
                "narrowing": one.verifying.narrowing,
                "framework": one.command and one.command.framework,
                "command": one.command and one.command.text,
                "row": one.row,
            }
            for one in found.named
        ],
    }
