"""The CSV tables of a search, with the columns of NeMo 1.0 and 2.0.

Columns are written by name, so that a value cannot get under another heading. NVIDIA's headings
are spelled correctly; our own columns follow them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

import yaml

from autoconf_launch.core import GIB, plural
from autoconf_launch.launcher.report import csv_text
from autoconf_launch.launcher.results import ResultsPaths

from .outcome import (
    Figures,
    SearchOptimum,
    SearchOutcome,
    SearchRun,
    failed_runs,
    failure_kind,
    fastest_first,
    named_failure,
    optimum,
)

_MODEL = ("Model Name", "Model Size", "Seq Length", "TP", "PP", "CP", "EP", "MBS")
_RECOMPUTE = ("Act Ckpt Layers", "Act Ckpt Micro Batches", "Act Ckpt Layers per Pipeline")
_SHAPE = ("Num Layers", "Hidden Size", "FFN Hidden Size", "GBS", "Nodes", "GPUs per Node")
_SPEED = ("Time per Step", "Samples per Second", "Model TFLOPS / GPU", "Model TFLOPS Aggregate")
_OURS = (
    "Days to Train",
    "Cost [USD]",
    "Steps",
    "Extrapolated from",
    "Step Time Spread",
    "Peak Memory [GiB]",
    "Loss",
)
_NAME = "Config Name"
_REASON = "Error Message"


class Columns(Enum):
    """Headings of each table."""

    NEMO1_SUMMARY = (*_MODEL, *_RECOMPUTE, *_SHAPE, *_SPEED, _NAME, *_OURS)
    NEMO1_FAILED = (*_MODEL, *_RECOMPUTE, *_SHAPE, _REASON)
    NEMO2_SUMMARY = (*_MODEL, "VP", *_SHAPE, *_SPEED, _RECOMPUTE[0])
    NEMO2_FAILED = (*_MODEL, "VP", *_SHAPE, _REASON, _RECOMPUTE[0])


def summary_csv(outcome: SearchOutcome, columns: Columns) -> str:
    """Measured runs, the fastest first."""
    return _csv(columns, (_measured_cells(outcome, one) for one in fastest_first(outcome)))


def failed_csv(outcome: SearchOutcome, columns: Columns) -> str:
    """Runs that failed, each with its reason."""
    rows = (
        {**_configuration_cells(outcome, run), _REASON: named_failure(why)}
        for run, why in failed_runs(outcome)
    )
    return _csv(columns, rows)


def config_name(run: SearchRun) -> str:
    """``tp2_pp1_cp1_ep1_mbs4_act_0_num_mbs_act_None_act_per_pipe_None`` and other knobs."""
    point = run.point
    tensor, pipeline, context, expert = point.layout.mesh
    start = (
        f"tp{tensor}_pp{pipeline}_cp{context}_ep{expert}"
        f"_mbs{point.layout.micro_batch}_act_{point.recompute_layers}"
        f"_num_mbs_act_{point.recompute_micro_batches}"
        f"_act_per_pipe_{point.recompute_layers_per_pipeline}"
    )
    return "_".join((start, *(f"{name}_{value}" for name, value in run.knobs)))


def extrapolation(run: SearchRun) -> str:
    """``14 of 128 micro-batches`` if there was no time for a whole step; else ""."""
    if run.extrapolated_from is None:
        return ""
    return f"{run.extrapolated_from} of {run.whole_micro_batches or '?'} micro-batches"


def round_figure(value: float, decimals: int = 2) -> float:
    """Round to ``decimals``, or to four digits if the value is small: 3 ms is not 0.0."""
    if not value or not math.isfinite(value):
        return value
    return round(value, max(decimals, 3 - math.floor(math.log10(abs(value)))))


def _csv(columns: Columns, rows: Iterable[Mapping[str, object]]) -> str:
    lines: list[Sequence[object]] = [columns.value]
    lines += [[row[column] for column in columns.value] for row in rows]
    return csv_text(lines)


def _configuration_cells(outcome: SearchOutcome, run: SearchRun) -> dict[str, object]:
    shape, point = outcome.shape, run.point
    stacks = 2 if shape.family.is_encoder_decoder else 1
    return {
        "Model Name": shape.family.name,
        "Model Size": f"{outcome.size_b:.10g}",
        "Seq Length": shape.sequence,
        "TP": point.layout.tensor_parallel,
        "PP": point.layout.pipeline_parallel,
        "CP": point.layout.context_parallel,
        "EP": point.layout.expert_parallel,
        "MBS": point.layout.micro_batch,
        "VP": point.virtual,
        "Act Ckpt Layers": point.recompute_layers,
        "Act Ckpt Micro Batches": point.recompute_micro_batches,
        "Act Ckpt Layers per Pipeline": point.recompute_layers_per_pipeline,
        "Num Layers": stacks * shape.layers,
        "Hidden Size": shape.hidden,
        "FFN Hidden Size": shape.ffn,
        "GBS": run.global_batch,
        "Nodes": outcome.nodes,
        "GPUs per Node": outcome.gpus_per_node,
    }


def _measured_cells(outcome: SearchOutcome, one: Figures) -> dict[str, object]:
    run = one.run
    return {
        **_configuration_cells(outcome, run),
        "Time per Step": round_figure(one.step_s, 4),
        "Samples per Second": round_figure(one.samples_per_s),
        "Model TFLOPS / GPU": round_figure(one.model_tflops_per_gpu),
        "Model TFLOPS Aggregate": round_figure(one.model_tflops),
        _NAME: config_name(run),
        "Days to Train": round_figure(one.days),
        "Cost [USD]": one.usd and round_figure(one.usd),
        "Steps": run.steps if run.extrapolated_from is None else 0,
        "Extrapolated from": extrapolation(run) or None,
        "Step Time Spread": None
        if run.step_spread_s is None
        else round_figure(run.step_spread_s, 4),
        "Peak Memory [GiB]": None
        if run.peak_bytes is None
        else round_figure(run.peak_bytes / GIB),
        "Loss": None if run.loss is None else round_figure(run.loss),
    }


def top_text(outcome: SearchOutcome, most: int) -> str:
    """The fastest configurations, at most ``most``, each on its line.

    Args:
        outcome: with any number of successes, none too.
        most: how many are listed; 0 lists all.
    """
    ranked, best = fastest_first(outcome), optimum(outcome)
    return "\n".join((*_ranking(ranked, best, most), *_remarks(outcome, ranked))) + "\n"


def _ranking(ranked: tuple[Figures, ...], best: SearchOptimum | None, most: int) -> Iterator[str]:
    if best is None:
        yield "No configuration was measured, so there is no best one."
        return
    shown = ranked[:most] if most else ranked
    yield f"Top {len(shown)} configs sorted from fastest to slowest:"
    for number, one in enumerate(shown, start=1):
        yield f"Config #{number}: {_line(one)}"
    yield f"Optimal config: {best.run.name}"
    if best.note:
        yield best.note


def _line(one: Figures) -> str:
    spread = "" if one.run.step_spread_s is None else f" +- {one.run.step_spread_s:.3g}s"
    cost = "" if one.usd is None else f", {one.usd:,.0f} USD"
    tie = "; as fast as the first within the noise" if one.is_tie else ""
    return (
        f"{one.run.name} with {_seconds(one.step_s)}{spread} per global step {_basis(one.run)} "
        f"({round_figure(one.model_tflops_per_gpu):g} model TFLOPS / GPU, "
        f"{round_figure(one.days):,g} days to train{cost}){tie}."
    )


def _basis(run: SearchRun) -> str:
    made = extrapolation(run)
    return f"extrapolated from {made}" if made else f"over {run.steps} steps"


def _seconds(step_s: float) -> str:
    return f"{step_s:.4f}s" if step_s >= 0.1 else f"{step_s:.4g}s"


def _remarks(outcome: SearchOutcome, ranked: tuple[Figures, ...]) -> Iterator[str]:
    if ranked:
        yield (
            f"Days are {outcome.tokens_b:g}B tokens at the measured speed on {outcome.nodes} x "
            f"{outcome.gpus_per_node} GPUs, for the steps only: failures, checkpoints and "
            f"evaluation add to them.{_price(outcome)}"
        )
    if any(extrapolation(one.run) for one in ranked):
        yield (
            "A run without time for a whole step is extrapolated from its micro-batches: their "
            "mean for all but the last, which includes the gradient all-reduce and the optimizer "
            "step. A larger max_minutes_per_run measures more of them."
        )
    kinds = Counter(failure_kind(failure) for _, failure in failed_runs(outcome))
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        yield f"{kinds.total()} without a measurement ({counts}); failed_jobs has each reason."
    yield from outcome.notes


def summary_lines(outcome: SearchOutcome, candidates: Collection[str]) -> Iterator[str]:
    """Outcomes of the candidates, and the fastest one's gain over the slowest."""
    ranked = fastest_first(outcome)
    failed = sum(run.name in candidates for run, _ in failed_runs(outcome))
    left = len(candidates) - len(ranked) - failed
    yield (
        f"{plural(len(candidates), 'candidate')}: {len(ranked)} measured, {failed} failed, "
        f"{left} not run."
    )
    if best := optimum(outcome):
        found = next(one for one in ranked if one.run is best.run)
        gain = found.samples_per_s / ranked[-1].samples_per_s
        over = f", {gain:.2f}x faster than the slowest" if len(ranked) > 1 else ""
        yield f"Best: {best.run.name}, {_seconds(found.step_s)} per global step{over}."
        yield from _tightness(best.run, [one.run for one in ranked])


_TIGHT = 0.98
"""Share of memory above which a longer sequence or a fragmented allocator ends a training."""


def _tightness(best: SearchRun, ranked: Sequence[SearchRun]) -> Iterator[str]:
    """A sentence if the best has no room left, with a run that has."""
    if best.memory_share <= _TIGHT:
        return
    layers = plural((best.point.recompute_layers or 0) + 1, "layer")
    safe = next((run for run in ranked if 0.0 < run.memory_share <= _TIGHT), None)
    other = f"take {safe.name} ({_seconds(safe.step_s or 0.0)}), or " if safe else ""
    share = f"{100 * best.memory_share:.0f} %"
    yield f"It uses {share} of memory and may run out: {other}recompute {layers} of it."


def _price(outcome: SearchOutcome) -> str:
    if outcome.usd_per_gpu_hour is None:
        return " No price of a GPU hour is known, so there is no cost."
    return f" A GPU hour costs {outcome.usd_per_gpu_hour:g} USD ({outcome.price or 'as given'})."


FINAL_RESULTS = "final_results"
NEMO2 = "nemo2"
"""Folder inside for the tables of NeMo 2.0, with the same names as in 1.0."""
_TOP = 10


def write_final_results(
    logs: Path, outcome: SearchOutcome, *, top: int = _TOP
) -> tuple[Path, ...]:
    """Write every table, the best configuration and the ranking below ``logs/final_results``.

    Each file is written whole or not at all. Without a measurement there is no optimal
    configuration, and an earlier search's is removed.

    Args:
        logs: folder of the search, made if it is not there.
        outcome: with any number of successes and failures.
        top: how many configurations the ranking lists; 0 lists all.

    Returns:
        The files, the best configuration first if there is one.
    """
    folder = logs / FINAL_RESULTS
    name = f"optimal_config_{outcome.size_b:.10g}b_{outcome.nodes}nodes.yaml"
    path, best, texts = folder / name, optimum(outcome), dict[Path, str]()
    if best is not None:
        texts[path] = yaml.safe_dump(best.config.to_dict(), sort_keys=False, width=99)
    texts |= _tables(folder, outcome, (Columns.NEMO1_SUMMARY, Columns.NEMO1_FAILED))
    texts[folder / f"top_{top or 'all'}.log"] = top_text(outcome, top)
    texts |= _tables(folder / NEMO2, outcome, (Columns.NEMO2_SUMMARY, Columns.NEMO2_FAILED))
    _write(logs, texts, absent=() if best else (path,))
    return tuple(texts)


def write_nemo2_tables(folder: Path, outcome: SearchOutcome) -> tuple[Path, Path]:
    """Write the two tables of NeMo 2.0 into a folder: measured runs, failed ones."""
    texts = _tables(folder, outcome, (Columns.NEMO2_SUMMARY, Columns.NEMO2_FAILED))
    _write(folder, texts)
    summary, failed = texts
    return summary, failed


def _tables(
    folder: Path, outcome: SearchOutcome, columns: tuple[Columns, Columns]
) -> dict[Path, str]:
    end = f"{outcome.nodes}nodes.csv"
    return {
        folder / f"final_summary_{end}": summary_csv(outcome, columns[0]),
        folder / f"failed_jobs_{end}": failed_csv(outcome, columns[1]),
    }


def _write(root: Path, texts: Mapping[Path, str], absent: tuple[Path, ...] = ()) -> None:
    paths = ResultsPaths(results=root, exps=root, chosen_by="base_results_dir")
    for path in absent:
        paths.make_below(path.parent)
        path.unlink(missing_ok=True)
    for path, text in texts.items():
        paths.write(path, text)
