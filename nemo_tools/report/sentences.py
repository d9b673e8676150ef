"""Sentences on a finished search: the ranking, the counts, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoconf_launch.autotuner.planner import spearman
from autoconf_launch.autotuner.search import StopKind, StopReason
from autoconf_launch.core import plural
from autoconf_launch.launcher.report import rows_text, stop_sentence

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
    round_figure,
)
from .serving import (
    RUNS,
    Columns,
    InferenceRun,
    nearest_run,
    order_runs,
    recommend_runs,
)

_TIGHT = 0.98
"""Share of memory above which a longer sequence or a fragmented allocator ends a training."""
_FEWEST_RANKED = 3
"""Points below which an order says nothing."""


def extrapolation(run: SearchRun) -> str:
    """``14 of 128 micro-batches`` if there was no time for a whole step; else ""."""
    if run.extrapolated_from is None:
        return ""
    return f"{run.extrapolated_from} of {run.whole_micro_batches or '?'} micro-batches"


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
    made = extrapolation(one.run)
    basis = f"extrapolated from {made}" if made else f"over {one.run.steps} steps"
    tie = "; as fast as the first within the noise" if one.is_tie else ""
    return (
        f"{one.run.name} with {_seconds(one.step_s)}{spread} per global step {basis} "
        f"({round_figure(one.model_tflops_per_gpu):g} model TFLOPS / GPU, "
        f"{round_figure(one.days):,g} days to train{cost}){tie}."
    )


def _seconds(step_s: float) -> str:
    return f"{step_s:.4f}s" if step_s >= 0.1 else f"{step_s:.4g}s"


def _remarks(outcome: SearchOutcome, ranked: tuple[Figures, ...]) -> Iterator[str]:
    price = " No price of a GPU hour is known, so there is no cost."
    if (usd := outcome.usd_per_gpu_hour) is not None:
        price = f" A GPU hour costs {usd:g} USD ({outcome.price or 'as given'})."
    if ranked:
        yield (
            f"Days are {outcome.tokens_b:g}B tokens at the measured speed on {outcome.nodes} x "
            f"{outcome.gpus_per_node} GPUs, for the steps only: failures, checkpoints and "
            f"evaluation add to them.{price}"
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


def _tightness(best: SearchRun, ranked: Sequence[SearchRun]) -> Iterator[str]:
    """A sentence if the best has no room left, with a run that has."""
    if best.memory_share <= _TIGHT:
        return
    layers = plural((best.point.recompute_layers or 0) + 1, "layer")
    safe = next((run for run in ranked if 0.0 < run.memory_share <= _TIGHT), None)
    other = f"take {safe.name} ({_seconds(safe.step_s or 0.0)}), or " if safe else ""
    share = f"{100 * best.memory_share:.0f} %"
    yield f"It uses {share} of memory and may run out: {other}recompute {layers} of it."


def first_rows(columns: Columns, rows: Sequence[Any], top: int) -> str:
    """A table of the first rows, and how many more there are; 0: all."""
    table = rows_text(columns, rows[: top or None], first=1)
    more = len(rows) - top if top else 0
    return f"{table}\n… and {more} more; --top 0 lists all." if more > 0 else table


def nothing_measured(
    outcome: SearchOutcome, started: Collection[str], stop: StopReason, folder: Path
) -> str:
    """Reason by the last run that was started, in the words of its table."""
    sentence = stop_sentence(stop)
    if stop.kind is not StopKind.NOTHING_FITS:
        last, why = [one for one in failed_runs(outcome) if one.run.name in started][-1]
        sentence = (
            f"No configuration could be measured; the last, {last.name}: {named_failure(why)}"
        )
    return f"{sentence.rstrip('.')}. See {folder}."


def serving_lines(runs: Sequence[InferenceRun], top: int, summary: Path) -> Iterator[str]:
    """Table and sentences on the runs of an inference search; its files are in ``summary``."""
    if measured := [run for run in order_runs(runs) if run.latency_s is not None]:
        yield first_rows(RUNS, measured, top)
    for best in recommend_runs(runs, 1):
        yield (
            f"Recommended: {best.point.name}, {best.throughput_per_gpu or 0.0:.4g} samples/s/GPU "
            f"at {1e3 * (best.latency_s or 0.0):.4g} ms"
        )
    if line := prediction_line(runs):
        yield line
    if failed := [run for run in runs if run.latency_s is None]:
        first, points = failed[0], plural(len(failed), "point")
        yield f"{points} not measured, such as {first.point.name}: {first.reason}"
    yield f"Results: {summary}"


def why_not_served(runs: Sequence[InferenceRun], summary: Path) -> str:
    """Reason why no point is recommended; empty if one is."""
    if any(run.satisfies for run in runs):
        return ""
    nearest = nearest_run(runs)
    if nearest is None:
        why = f"{runs[0].point.name}: {runs[0].reason}".rstrip(".")
        return f"No point could be measured. {why}; see {summary}."
    return (
        f"No point is within max_latency_ms = {1e3 * nearest.bound_s:g}; the nearest "
        f"is {nearest.point.name} with {1e3 * (nearest.latency_s or 0.0):.4g} ms. See "
        f"{summary}."
    )


def prediction_line(runs: Sequence[InferenceRun]) -> str:
    """Agreement of predicted and measured values; empty if there are too few."""
    both = [(run.point.predicted, run.latency_s, run.measured) for run in runs]
    pairs = [(p.latency_s, s) for p, s, _ in both if p is not None and s is not None]
    if len(pairs) < _FEWEST_RANKED:
        return ""
    order = spearman(*(np.array(column) for column in zip(*pairs, strict=True)))
    off = [
        abs(p.peak_bytes / m.memory.peak_bytes - 1.0)
        for p, _, m in both
        if p is not None and m is not None and m.memory is not None
    ]
    memory = f"; peak memory off by at most {100 * max(off):.0f} %" if off else ""
    return f"Predicted against measured latency: rank correlation {order:.2f}{memory}."
