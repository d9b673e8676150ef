"""Answers of ``validate``, and real runs that correct or narrow a prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TextIO

from autoconf_launch.autotuner.planner import RUN_STEPS
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import GIB, Candidate, encode, plural

from ..estimates import NamedRun, Verifying
from ..export import NATIVE
from ..measurements import (
    Calibration,
    Fits,
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
    three_digits,
    trainers_text,
    write_csv,
)
from .plan_reasons import name_of
from .tables import Column, each, rows_documents, rows_header, rows_lines, rows_text

_SCHEMA_VERSION = 1
_ORDER = (
    "Layouts are in the order of the step plus one spread of what the runs leave unknown, so one "
    "unlike those that ran is first only where it is clearly faster."
)
_FRAMEWORKS = {NATIVE: "our runtime", "megatron": "Megatron-LM"}


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
    """Problems of the tables, line by line."""
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
    rows = [_Scored(file.name.removesuffix(".csv"), one) for file, one in scored]
    whole = [_Scored("all", everything)] if len(rows) > 1 else []
    yield rows_text(SCORE_COLUMNS, [*rows, *whole])
    for name, one in rows:
        for reason, count in one.skipped:
            yield f"{name}: {count} skipped: {reason}"


class _Scored(NamedTuple):
    name: str
    one: Validation


def _digits(count: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{count}f}"


def _figure(name: str, header: str, digits: int = 1) -> Column:
    return each(name, f"one.times.{name}", header, _digits(digits), group="step_time")


def _share(header: str, of: str, whole: str) -> Column:
    def text(answer: Any, row: _Scored) -> str:
        return f"{getattr(row.one.fits, of)}/{getattr(row.one.fits, whole)}"

    return each("", text, header)


SCORE_COLUMNS = (
    each("", "name", "table", is_left=True),
    each("rows", "one.rows", "rows"),
    each("predicted", "one.predicted", "predicted"),
    each("assumed", "one.assumed", "assumed"),
    each("trainers", lambda a, row: dict(row.one.trainers)),
    each("skipped", lambda a, row: dict(row.one.skipped)),
    _figure("mape", "MAPE %"),
    _figure("median_ape", "median %"),
    _figure("spearman", "Spearman", 2),
    _figure("top1_regret_mean", "regret %"),
    _figure("top1_regret_max", "worst %"),
    each("groups", "one.times.groups", group="step_time"),
    each("rows", lambda a, row: len(row.one.memory_R[0]), group="memory"),
    each("mape", "one.memory_mape", "memory %", _digits(1), group="memory"),
    *(each(field.name, f"one.fits.{field.name}", group="fits") for field in fields(Fits)),
    _share("flagged OOM", "failed_rows_flagged", "failed_rows"),
    _share("called safe", "failed_rows_safe", "failed_rows"),
    _share("false alarms", "ran_rows_flagged", "ran_rows"),
)


def _scores(one: Validation) -> dict[str, Any]:
    return rows_documents(SCORE_COLUMNS, [_Scored("", one)])[0]


def unit_warnings(scored: Sequence[tuple[MeasurementFile, Validation]]) -> Iterator[str]:
    """Tables whose steps take a thousand times as long as they can."""
    for file, one in scored:
        pairs = [(row.row.step_time_s, row.step_s) for row in one.each]
        yield from suspected_unit(file.name, [x / y for x, y in pairs if x])


def _six(value: float) -> str:
    return f"{value:.6g}"


def _with_sign(percents: float) -> str:
    return f"{percents:+.1f}"


def _percents(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _measured_text(answer: Any, one: PredictedRow) -> str:
    measured_s = one.row.step_time_s
    return "OOM" if one.row.out_of_memory else "-" if measured_s is None else f"{measured_s:.3f}"


ROW_COLUMNS = (
    each("table", lambda table, one: table),
    each("line", "row.line", "line"),
    each("model", "row.shape.name", "model", is_left=True),
    each("gpu", "row.gpu", "gpu", is_left=True),
    each("n_gpus", "row.gpus", "n_gpus"),
    each(
        *("layout", lambda a, one: candidate_name(Candidate(layout=one.row.layout)), "layout"),
        is_left=True,
    ),
    each("gbs", "row.global_batch", "gbs"),
    each("precision", "row.precision.value", "precision", is_left=True),
    each("predicted_s", "step_s", "s", _digits(3), data=_six),
    each("measured_s", "row.step_time_s", data=_six),
    each("", _measured_text, "measured s"),
    each(
        *("time_error_percent", lambda a, one: _percents(one.time_error), "error %", _with_sign),
        data=_six,
    ),
    each("predicted_gib", lambda a, one: one.peak_bytes / GIB, "GiB", _digits(1), data=_six),
    each("measured_gib", "row.memory_gb", "measured GiB", _digits(1), data=_six),
    each(
        *("memory_error_percent", lambda a, one: _percents(one.memory_error), "memory error %"),
        shown=_with_sign,
        data=_six,
    ),
    each("assumed", lambda a, one: [*one.row.assumed], "assumed", ", ".join, is_left=True),
)
"""Predicted rows; seconds and GiB each next to the measured value. The answer is their table."""


def row_lines(scored: Sequence[tuple[MeasurementFile, Validation]]) -> Iterator[str]:
    """A table with a line for each predicted row of each file."""
    for file, one in scored:
        yield f"\n{file.name}:\n{rows_text(ROW_COLUMNS, one.each)}"


def rows_csv(scored: Sequence[tuple[MeasurementFile, Validation]], file: TextIO) -> None:
    """Write a header and a line for each predicted row; a value that was not measured is empty."""
    write_csv(file, [rows_header(ROW_COLUMNS)])
    for table, one in scored:
        write_csv(file, rows_lines(ROW_COLUMNS, one.each, table.name))


def _problems(file: MeasurementFile) -> list[dict[str, object]]:
    kinds = (("bad", file.bad), ("skipped", file.skipped), ("warning", file.warnings))
    return [
        {"line": problem.line, "kind": kind, "text": problem.text}
        for kind, problems in kinds
        for problem in problems
    ]


def _count_text(count: int) -> str:
    return f"{count:,}"


RUN_COLUMNS = (
    each("line", "row.line", "line"),
    each("n_gpus", "row.gpus", "GPUs", _count_text),
    each("layers", "row.shape.layers", "layers"),
    each("", lambda a, run: name_of(run.row.layout), "layout", is_left=True),
    each("measured_s", "", "measured", step_time_text),
    each("predicted_s", "", "predicted", step_time_text),
    each(
        *("", lambda a, run: run.measured_s / run.predicted_s - 1.0, "slower"),
        shown=lambda share: percent(share, "+"),
    ),
    each("spreads_off", "surprise"),
    each("spreads_off_prediction", "spreads_off"),
)


def training_runs_text(found: TrainingRuns) -> str:
    """Runs that corrected an answer, with their predictions."""
    head = f"Corrected by {plural(len(found.runs), 'run')} of {found.file}:"
    table = rows_text(RUN_COLUMNS, found.runs)
    return "\n".join([head, table, _ORDER, *_doubtful_runs(found)])


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
            f"{found.file}, line{'s' * (len(far) > 1)} {lines}: up to {off:.1f} spreads off the "
            "prediction, but consistent with the other runs, so the answer is corrected and the "
            "band is wider; check that this model and software ran there."
        )
    yield from (f"{found.file}:{one.line} is skipped: {one.sentence}" for one in found.skipped)


def training_runs_document(found: TrainingRuns) -> dict[str, Any]:
    """The same as values; beyond 3 spreads off the band is wider."""
    return {
        "file": found.file,
        "runs": rows_documents(RUN_COLUMNS, found.runs),
        "skipped": [{"line": one.line, "why": one.text} for one in found.skipped],
    }


def _layers_text(answer: Any, one: NamedRun) -> str:
    return f"{one.verifying.run.layers} of {answer[0]}"


def _band_text(answer: Any, one: NamedRun) -> str:
    _, band, now = answer
    text: str = band(one.verifying.narrowing / now)
    return text


VERIFYING_COLUMNS = (
    each("n_gpus", "verifying.run.layout.world_size", "GPUs", _count_text),
    each("nodes", "verifying.run.nodes"),
    each("layers", "verifying.run.layers"),
    each("", _layers_text, "layers"),
    each("layout", lambda a, one: encode(one.verifying.run.layout)),
    each("", lambda a, one: name_of(one.verifying.run.layout), "layout", is_left=True),
    each("step_s", "verifying.run.step_s", "step", step_time_text),
    each("seconds", "verifying.run.seconds", "time", duration_text),
    each("usd", "verifying.usd", "USD", three_digits),
    each("narrowing", "verifying.narrowing"),
    each("", _band_text, "band then", is_left=True),
    each("framework", lambda a, one: one.command and one.command.framework),
    each("command", lambda a, one: one.command and one.command.text),
    each("row"),
)
"""For the text the answer is the model's layers, the band in words, and its narrowing now."""


def verifying_text(found: Verifying, layers: int, band: Callable[[float], str]) -> str:
    """The runs that narrow an answer, the cost and command of each, and the rows to fill."""
    if not found.named:
        return _no_run(found)
    table = rows_text(
        VERIFYING_COLUMNS, found.named, (layers, band, found.found.narrowing), first=1
    )
    rows = [tuple(found.named[0].row), *(tuple(one.row.values()) for one in found.named)]
    lines = [
        f"Runs that narrow the band, now {band(1.0)} ({RUN_STEPS} steps each, "
        f"{duration_text(found.start_s)} to start assumed{_total(found)}):",
        table,
        *_commands(found),
        "Put the seconds of a step into step_time_s, and give the file with --measured:",
        csv_text(rows).rstrip(),
    ]
    return "\n".join(lines)


def _total(found: Verifying) -> str:
    usd = [one.verifying.usd for one in found.named]
    return "" if None in usd else f"; {number_text(sum(x or 0.0 for x in usd), 3)} USD in all"


def _commands(found: Verifying) -> Iterator[str]:
    if found.bounds.runs is not None and len(found.named) < found.bounds.runs:
        yield "Further runs would narrow it by less than 1 % each."
    for number, one in enumerate(found.named, start=1):
        if one.command is None:
            yield (
                f"run {number}: neither our runtime nor Megatron-LM with mock data runs it as "
                "predicted; plan --export FRAMEWORK -o DIR writes its layout."
            )
            continue
        nodes, framework = one.verifying.run.nodes, one.command.framework
        where = f" on each of {nodes} nodes" if nodes > 1 and framework != NATIVE else ""
        yield f"run {number}, {_FRAMEWORKS[framework]}{where}: {one.command.text}"


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
        "runs": rows_documents(VERIFYING_COLUMNS, found.named),
    }
