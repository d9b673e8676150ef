"""Results of an inference search: points, their runs in order, and the files of them.

Every point has a row, even if it failed or was not run. NVIDIA's headings come first;
our own columns follow them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.autotuner.inference import InferencePoint
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import (
    DECODE,
    GIB,
    PREFILL,
    Candidate,
    Failure,
    FailureKind,
    GenerationTask,
    Layout,
    pareto_front,
)
from autoconf_launch.launcher.report import (
    Column,
    csv_rows,
    csv_text,
    each,
    rows_documents,
)

from .outcome import NOT_STARTED, digits_of, named_failure

Columns: TypeAlias = tuple[Column, ...]
_SIZES: Columns = (
    each("TP", "point.layout.tensor_parallel"),
    each("PP", "point.layout.pipeline_parallel"),
    each("BS", "point.layout.micro_batch"),
)
_NAME = each("Name", "point.name")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """A run that the search could make.

    Attributes:
        name: of its folder.
        predicted: None without a prediction.
        why_not: the reason for not running it, as a sentence; empty if it runs.
    """

    name: str
    task: GenerationTask
    predicted: InferencePoint | None = None
    why_not: str = ""

    @property
    def layout(self) -> Layout:
        """Tensor and pipeline ranks; its micro-batch is the batch."""
        return self.task.layout

    @property
    def candidate(self) -> Candidate:
        """The point as studies and journals know it."""
        return self.task.candidate

    @property
    def space(self) -> str:
        return "inference"

    @property
    def gpus(self) -> int:
        return self.layout.world_size


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
    def throughput_per_gpu(self) -> float | None:
        """Samples per second and GPU."""
        if self.latency_s is None:
            return None
        return self.point.layout.micro_batch / self.latency_s / self.point.gpus

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that all its GPUs write in a second."""
        speed = self.throughput_per_gpu
        return None if speed is None else speed * self.point.gpus * self.point.task.output_len

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
            return 0, -(run.throughput_per_gpu or 0.0)
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
    return tuple(
        pareto_front(
            measured, lambda run: (run.latency_s or 0.0, -(run.throughput_per_gpu or 0.0))
        )
    )


def columns_csv(columns: Columns, rows: Sequence[Any], answer: Any = None) -> str:
    """Rows under the names of their columns."""
    return csv_text(csv_rows(columns, rows, answer))


def four_digits(value: float) -> str:
    """A figure of a table in the terminal."""
    return f"{value:.4g}"


def _ms_text(seconds: float) -> str:
    return four_digits(1e3 * seconds)


def _gib_text(size: float) -> str:
    return four_digits(size / GIB)


POINTS: Columns = (
    each("", "layout.tensor_parallel", "tp"),
    each("", "layout.pipeline_parallel", "pp"),
    each("", "layout.micro_batch", "bs"),
    each("", "predicted.latency_s", "latency ms", _ms_text),
    each("", "predicted.samples_per_s_per_gpu", "samples/s/GPU", four_digits),
    each("", "predicted.ttft_s", "TTFT ms", _ms_text),
    each("", "predicted.peak_bytes", "GiB", _gib_text),
    each("", lambda answer, one: one.why_not or one.name, "name or reason", is_left=True),
)
"""Rows are points before their runs."""
RUNS: Columns = (
    each("name", "point.name"),
    each("tensor_parallel", "point.layout.tensor_parallel", "tp"),
    each("pipeline_parallel", "point.layout.pipeline_parallel", "pp"),
    each("batch", "point.layout.micro_batch", "bs"),
    each("input_len", "point.task.input_len"),
    each("output_len", "point.task.output_len"),
    each("latency_s", "", "latency ms", _ms_text),
    each("throughput_per_gpu_per_s", "throughput_per_gpu", "samples/s/GPU", four_digits),
    each("ttft_s", "", "TTFT ms", _ms_text),
    each("token_s", "", "ms/token", _ms_text),
    each("peak_bytes", "measured.memory.peak_bytes", "GiB", _gib_text),
    each("predicted_latency_s", "point.predicted.latency_s", "predicted ms", _ms_text),
    each("predicted_peak_bytes", "point.predicted.peak_bytes"),
    each("satisfies"),
    each("reason"),
)
"""Rows are runs, in seconds and bytes."""


def serving_documents(runs: Sequence[InferenceRun]) -> list[dict[str, Any]]:
    """Runs as JSON objects."""
    return rows_documents(RUNS, runs)


def _ms(seconds: float) -> float:
    return digits_of(1e3 * seconds)


def _gib(size: float) -> float:
    return digits_of(size / GIB)


def _percentile(percent: int) -> Column:
    return each(f"p{percent} [ms]", lambda answer, run: run.percentile_s(percent), data=_ms)


_NEMO: Columns = (
    *_SIZES,
    each("Latency [ms]", "latency_s", data=_ms),
    each("Throughput per GPU [samples/sec/gpu]", "throughput_per_gpu", data=digits_of),
)
_FINAL: Columns = (
    *_NEMO,
    each("TTFT [ms]", "ttft_s", data=_ms),
    each("Time per Token [ms]", "token_s", data=_ms),
    *map(_percentile, (50, 90, 99)),
    each("Tokens/s", "tokens_per_s", data=digits_of),
    each("Peak Memory [GiB]", "measured.memory.peak_bytes", data=_gib),
    each("Predicted Latency [ms]", "point.predicted.latency_s", data=_ms),
    each("Predicted Memory [GiB]", "point.predicted.peak_bytes", data=_gib),
    each("Satisfies", "satisfies", data=lambda satisfies: "yes" if satisfies else "no"),
    each("Reason", "reason"),
    _NAME,
)
_FRONT: Columns = (
    *_NEMO,
    each("Tokens/s per User", lambda a, run: digits_of(run.point.task.output_len / run.latency_s)),
    each("Tokens/s per GPU", lambda a, run: digits_of(run.tokens_per_s / run.point.gpus)),
    _NAME,
)


def configs_csv(points: Sequence[SearchPoint]) -> str:
    """``inference_sweep_configs.csv``: the points to run, in order."""
    return columns_csv(_SIZES, [not_run(one, math.inf) for one in points])


def final_csv(runs: Sequence[InferenceRun]) -> str:
    """``final_output.csv``: every run, the best first."""
    return columns_csv(_FINAL, order_runs(runs))


def pareto_csv(runs: Sequence[InferenceRun]) -> str:
    """``pareto.csv``: latency and throughput, in samples of a batch and tokens of a user."""
    return columns_csv(_FRONT, front_runs(runs))


def analysis_log(runs: Sequence[InferenceRun], top_n: int) -> str:
    """``analysis_summary.log``: the recommended points with the fields of BigNLP's tool."""
    return "\n".join(_analysis_lines(recommend_runs(runs, top_n), runs)) + "\n"


def _analysis_lines(best: Sequence[InferenceRun], runs: Sequence[InferenceRun]) -> Iterator[str]:
    yield f"Top {len(best)} of {len(runs)} points, by throughput per GPU:"
    for number, run in enumerate(best, 1):
        yield f"\n#{number}"
        yield from (f"  {name}: {value}" for name, value in _analysis_fields(run))
    failed = [run for run in order_runs(runs) if not run.satisfies]
    if failed:
        yield "\nNot recommended:"
        yield from (f"  {run.point.name}: {run.reason}" for run in failed)


def _analysis_fields(run: InferenceRun) -> Iterator[tuple[str, object]]:
    layout, speed = run.point.layout, run.throughput_per_gpu or 0.0
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
    yield "perf_throughput", digits_of(speed * run.point.gpus)
    yield "perf_throughput_normalized", digits_of(speed)
    for percent in (50, 90, 95, 99):
        yield f"perf_latency_p{percent}", f"{_ms(run.percentile_s(percent) or 0.0)} ms"
