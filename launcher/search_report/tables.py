"""The CSV tables of a search, with the columns of NeMo 1.0 and 2.0. Not: where they are written.

Columns are written from names, so that a value cannot stand below another's. NVIDIA's own
headings hold, spelled correctly; what only we know stands behind them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from autoconf_launch.core import Failure

from ..views.trials_csv import csv_text
from .figures import Figures, failed, fastest_first
from .outcome import SearchOutcome, SearchRun

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
    return _csv(columns, (_measured(outcome, one) for one in fastest_first(outcome)))


def failed_csv(outcome: SearchOutcome, columns: Columns) -> str:
    """Runs that failed, each with its reason."""
    rows = ({**_asked(outcome, run), _REASON: _reason(why)} for run, why in failed(outcome))
    return _csv(columns, rows)


def config_name(run: SearchRun) -> str:
    """``tp2_pp1_cp1_ep1_mbs4_act_0_num_mbs_act_None_act_per_pipe_None`` and further knobs."""
    point = run.point
    start = (
        f"tp{point.tensor}_pp{point.pipeline}_cp{point.context}_ep{point.expert}"
        f"_mbs{point.micro_batch}_act_{point.recompute_layers}"
        f"_num_mbs_act_{point.recompute_micro_batches}"
        f"_act_per_pipe_{point.recompute_layers_per_pipeline}"
    )
    return "_".join((start, *(f"{name}_{value}" for name, value in run.knobs)))


def extrapolation(run: SearchRun) -> str:
    """``14 of 128 micro-batches`` where there was no time for a whole step; else ""."""
    if run.extrapolated_from is None:
        return ""
    return f"{run.extrapolated_from} of {run.whole_micro_batches or '?'} micro-batches"


def rounded(value: float) -> float:
    """Two decimals, or four digits where the value is small: a step of 3 ms is not 0.0."""
    if not value or not math.isfinite(value):
        return value
    return round(value, max(2, 3 - math.floor(math.log10(abs(value)))))


def _csv(columns: Columns, rows: Iterable[Mapping[str, object]]) -> str:
    lines: list[Sequence[object]] = [columns.value]
    lines += [[row[column] for column in columns.value] for row in rows]
    return csv_text(lines)


def _asked(outcome: SearchOutcome, run: SearchRun) -> dict[str, object]:
    shape, point = outcome.shape, run.point
    stacks = 2 if outcome.family.is_encoder_decoder else 1
    return {
        "Model Name": outcome.family.name,
        "Model Size": f"{outcome.size_b:.10g}",
        "Seq Length": shape.sequence,
        "TP": point.tensor,
        "PP": point.pipeline,
        "CP": point.context,
        "EP": point.expert,
        "MBS": point.micro_batch,
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


def _measured(outcome: SearchOutcome, one: Figures) -> dict[str, object]:
    run = one.run
    return {
        **_asked(outcome, run),
        "Time per Step": _step_time(one.step_s),
        "Samples per Second": rounded(one.samples_per_s),
        "Model TFLOPS / GPU": rounded(one.model_tflops_per_gpu),
        "Model TFLOPS Aggregate": rounded(one.model_tflops),
        _NAME: config_name(run),
        "Days to Train": rounded(one.days),
        "Cost [USD]": None if one.usd is None else rounded(one.usd),
        "Steps": run.steps if run.extrapolated_from is None else 0,
        "Extrapolated from": extrapolation(run) or None,
        "Step Time Spread": None if run.step_spread_s is None else _step_time(run.step_spread_s),
        "Peak Memory [GiB]": None if run.peak_bytes is None else rounded(run.peak_bytes / 2**30),
        "Loss": None if run.loss is None else rounded(run.loss),
    }


def _step_time(seconds: float) -> float:
    """Four decimals as NVIDIA's tool, and more where the first four digits need them."""
    if not seconds:
        return seconds
    return round(seconds, max(4, 3 - math.floor(math.log10(seconds))))


def _reason(failure: Failure) -> str:
    return f"{failure.kind.value}: {' '.join(failure.detail.split())}"
