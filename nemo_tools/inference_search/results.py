"""Results of an inference search: rows, their order, and the recommendation.

Every point has a row, even if it failed or was not run. NVIDIA's headings come first;
our own columns follow them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.autotuner.cost import spearman
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import DECODE, GIB, PREFILL, Failure, FailureKind, pareto_front
from autoconf_launch.launcher.report import csv_text

from ..report import NOT_STARTED, named_failure, round_figure
from .points import PreparedInference, SearchPoint

_NEMO = ("TP", "PP", "BS", "Latency [ms]", "Throughput per GPU [samples/sec/gpu]")
_OURS = (
    *("TTFT [ms]", "Time per Token [ms]", "p50 [ms]", "p90 [ms]", "p99 [ms]", "Tokens/s"),
    *("Peak Memory [GiB]", "Predicted Latency [ms]", "Predicted Memory [GiB]"),
    *("Satisfies", "Reason", "Name"),
)
_FEWEST_RANKED = 3
"""Points below which an order says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRun:
    """A point with its outcome; ``bound_s`` is the recommendation's latency bound."""

    point: SearchPoint
    outcome: Outcome
    bound_s: float = math.inf

    @property
    def measured(self) -> Measurement | None:
        """None if it failed."""
        return self.outcome if isinstance(self.outcome, Measurement) else None

    @property
    def latency_s(self) -> float | None:
        """Mean seconds of a batch from its prompt to its last token."""
        return self.measured.mean_step_s if self.measured else None

    @property
    def throughput_per_gpu(self) -> float:
        """Samples per second and GPU; 0 if nothing was measured."""
        if self.latency_s is None:
            return 0.0
        return self.point.layout.micro_batch / self.latency_s / self.point.gpus

    @property
    def token_s(self) -> float | None:
        """Seconds of each later token; None if it is unknown."""
        decode_s, later = self._phase(DECODE), self.point.task.output_len - 1
        return decode_s / later if decode_s is not None and later else None

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token; None if it is unknown."""
        return self._phase(PREFILL)

    @property
    def satisfies(self) -> bool:
        return self.latency_s is not None and self.latency_s <= self.bound_s

    @property
    def reason(self) -> str:
        """Reason why there is no measurement, or why it is not recommended; empty if it can be."""
        if isinstance(self.outcome, FailedTrial):
            return named_failure(self.outcome.failure)
        if not self.satisfies:
            return f"latency above max_latency_ms = {1e3 * self.bound_s:g}"
        return ""

    def percentile_s(self, percent: float) -> float | None:
        """Seconds that this percentage of its batches stay within."""
        times = self.measured.step_s if self.measured else ()
        return float(np.percentile(times, percent)) if times else None

    def _phase(self, name: str) -> float | None:
        return dict(self.measured.phases).get(name) if self.measured else None


def run_of_outcome(
    prepared: PreparedInference, point: SearchPoint, outcome: Outcome
) -> InferenceRun:
    """A point with its outcome; a time that no such GPU can reach is a failure."""
    run = InferenceRun(point=point, outcome=outcome, bound_s=prepared.bound_s)
    peak = prepared.gpu_peak_flops_per_s
    if run.latency_s is None or peak is None:
        return run
    made = prepared.least_flops(point) / run.latency_s / point.gpus
    if made <= peak:
        return run
    detail = (
        f"Batches of {1e3 * run.latency_s:.4g} ms would be {made / 1e12:,.0f} TFLOP/s per GPU, "
        f"above the peak of {peak / 1e12:,.0f}: not a measurement of this point; check model, "
        "batch and lengths of the run"
    )
    return not_run(point, prepared.bound_s, Failure(kind=FailureKind.NO_STEPS, detail=detail))


def not_run(point: SearchPoint, bound_s: float, failure: Failure | None = None) -> InferenceRun:
    """A point that was not started; without a failure, for its own reason."""
    why = failure or Failure(
        kind=FailureKind.BAD_CONFIG, detail=f"{NOT_STARTED}: {point.why_not}".rstrip(".")
    )
    return InferenceRun(point=point, outcome=FailedTrial(failure=why), bound_s=bound_s)


def order_runs(runs: Sequence[InferenceRun]) -> tuple[InferenceRun, ...]:
    """Within the bound by throughput per GPU, then the others by latency, then failures."""

    def key(run: InferenceRun) -> tuple[int, float]:
        if run.satisfies:
            return 0, -run.throughput_per_gpu
        return (1, run.latency_s) if run.latency_s is not None else (2, 0.0)

    return tuple(sorted(runs, key=key))


def recommend_runs(runs: Sequence[InferenceRun], top_n: int) -> tuple[InferenceRun, ...]:
    """The first of those within the bound."""
    return tuple(run for run in order_runs(runs) if run.satisfies)[:top_n]


def nearest_run(runs: Sequence[InferenceRun]) -> InferenceRun | None:
    """The quickest run, for a search without a run within the bound; None if none was measured."""
    measured = [run for run in runs if run.latency_s is not None]
    return min(measured, key=lambda run: run.latency_s or math.inf, default=None)


def front_runs(runs: Sequence[InferenceRun]) -> tuple[InferenceRun, ...]:
    """Measured runs that no other run beats in both latency and throughput per GPU."""
    measured = [run for run in runs if run.latency_s is not None]
    front = pareto_front(measured, lambda run: (run.latency_s or 0.0, -run.throughput_per_gpu))
    return tuple(front)


def final_csv(runs: Sequence[InferenceRun]) -> str:
    """``final_output.csv``: every run, the best first."""
    lines: list[Sequence[object]] = [(*_NEMO, *_OURS)]
    lines += [tuple(_cells(run).values()) for run in order_runs(runs)]
    return csv_text(lines)


def configs_csv(points: Sequence[SearchPoint]) -> str:
    """``inference_sweep_configs.csv``: the points to run, in order."""
    rows = [
        (p.layout.tensor_parallel, p.layout.pipeline_parallel, p.layout.micro_batch)
        for p in points
    ]
    return csv_text([_NEMO[:3], *rows])


def pareto_csv(runs: Sequence[InferenceRun]) -> str:
    """``pareto.csv``: latency and throughput, in samples of a batch and tokens of a user."""
    heads = (*_NEMO, "Tokens/s per User", "Tokens/s per GPU", "Name")
    lines: list[Sequence[object]] = [heads]
    for run in front_runs(runs):
        assert run.latency_s is not None
        cells, written = _cells(run), run.point.task.output_len
        each = digits_of(written / run.latency_s)
        gpu = digits_of(written * run.throughput_per_gpu)
        lines.append((*(cells[name] for name in _NEMO), each, gpu, run.point.name))
    return csv_text(lines)


def _cells(run: InferenceRun) -> Mapping[str, object]:
    layout, predicted = run.point.layout, run.point.predicted
    memory = run.measured.memory if run.measured else None
    tokens = run.throughput_per_gpu * run.point.gpus * run.point.task.output_len
    return {
        "TP": layout.tensor_parallel,
        "PP": layout.pipeline_parallel,
        "BS": layout.micro_batch,
        "Latency [ms]": _ms(run.latency_s),
        _NEMO[-1]: digits_of(run.throughput_per_gpu) if run.measured else "",
        "TTFT [ms]": _ms(run.ttft_s),
        "Time per Token [ms]": _ms(run.token_s),
        **{f"p{percent} [ms]": _ms(run.percentile_s(percent)) for percent in (50, 90, 99)},
        "Tokens/s": digits_of(tokens) if run.measured else "",
        "Peak Memory [GiB]": digits_of(memory.peak_bytes / GIB) if memory else "",
        "Predicted Latency [ms]": _ms(predicted.latency_s if predicted else None),
        "Predicted Memory [GiB]": digits_of(predicted.peak_bytes / GIB) if predicted else "",
        "Satisfies": "yes" if run.satisfies else "no",
        "Reason": run.reason,
        "Name": run.point.name,
    }


def run_entry(run: InferenceRun) -> dict[str, object]:
    """A run for programs, in seconds and bytes."""
    layout, predicted = run.point.layout, run.point.predicted
    memory = run.measured.memory if run.measured else None
    return {
        "name": run.point.name,
        "tensor_parallel": layout.tensor_parallel,
        "pipeline_parallel": layout.pipeline_parallel,
        "batch": layout.micro_batch,
        "input_len": run.point.task.input_len,
        "output_len": run.point.task.output_len,
        "latency_s": run.latency_s,
        "throughput_per_gpu_per_s": run.throughput_per_gpu or None,
        "ttft_s": run.ttft_s,
        "token_s": run.token_s,
        "peak_bytes": memory.peak_bytes if memory else None,
        "predicted_latency_s": predicted.latency_s if predicted else None,
        "predicted_peak_bytes": predicted.peak_bytes if predicted else None,
        "satisfies": run.satisfies,
        "reason": run.reason,
    }


def analysis_log(runs: Sequence[InferenceRun], top_n: int) -> str:
    """``analysis_summary.log``: the recommended points with the fields of BigNLP's tool."""
    return "\n".join(_analysis_lines(recommend_runs(runs, top_n), runs)) + "\n"


def _analysis_lines(best: Sequence[InferenceRun], runs: Sequence[InferenceRun]) -> Iterator[str]:
    yield f"Top {len(best)} of {len(runs)} points, by throughput per GPU:"
    for number, run in enumerate(best, 1):
        yield f"\n#{number}"
        for name, value in _analysis_fields(run):
            yield f"  {name}: {value}"
    failed = [run for run in order_runs(runs) if not run.satisfies]
    if failed:
        yield "\nNot recommended:"
    for run in failed:
        yield f"  {run.point.name}: {run.reason}"


def _analysis_fields(run: InferenceRun) -> Iterator[tuple[str, object]]:
    layout = run.point.layout
    throughput = run.throughput_per_gpu * run.point.gpus
    yield "model_name", run.point.name
    yield "batch_size", layout.micro_batch
    yield "concurrency", 1
    yield "model_config_path", run.point.name
    yield (
        "backend_parameters",
        f"tensor_para_size={layout.tensor_parallel} pipeline_para_size={layout.pipeline_parallel}",
    )
    yield "dynamic_batch_sizes", "-"
    yield "satisfies_constraints", "Yes" if run.satisfies else "No"
    yield "perf_throughput", digits_of(throughput)
    yield "perf_throughput_normalized", digits_of(run.throughput_per_gpu)
    for percent in (50, 90, 95, 99):
        yield f"perf_latency_p{percent}", f"{_ms(run.percentile_s(percent))} ms"


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


def digits_of(value: float) -> float:
    """Three decimals, or four digits if the value is small."""
    return round_figure(value, 3)


def _ms(seconds: float | None) -> float | str:
    return "" if seconds is None else digits_of(1e3 * seconds)
