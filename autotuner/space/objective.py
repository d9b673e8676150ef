"""What is optimised: a metric with its direction and unit, written here once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .settings import MetricName
from .trial import Measurement, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric of a measurement.

    Attributes:
        name: as in the user's settings.
        unit: for people.
        value: the metric as it is shown; None where the measurement lacks it.
        rank: what orders trials; None where the measurement lacks the metric.
        higher_is_better: its direction.
        per_sample: compares work done, so that a larger global batch may take longer.
    """

    name: MetricName
    unit: str
    value: Callable[[Measurement], float | None]
    rank: Callable[[Measurement], float | None]
    higher_is_better: bool
    per_sample: bool

    def better(self, a: float, b: float) -> bool:
        """Whether ``a`` is strictly better than ``b``."""
        return a > b if self.higher_is_better else a < b

    def of(self, record: Record) -> float | None:
        """What orders a record among others; None where the trial failed."""
        return None if record.measurement is None else self.rank(record.measurement)

    def metric_of(self, record: Record) -> float | None:
        """The metric of a record; None where the trial failed."""
        return None if record.measurement is None else self.value(record.measurement)

    def cost_s(self, step_s: float, samples: int) -> float:
        """Seconds to compare by, less is better: of a step, or of a sample."""
        return step_s / samples if self.per_sample else step_s


def _samples_per_s(measured: Measurement) -> float | None:
    """Samples per second and rank, if operations were counted.

    A sample needs the same operations in every configuration of a model, so a count that is wrong
    for one of them (recomputed operations, steps of fewer samples) cannot make it win.
    """
    if measured.flops_per_step is None:
        return None
    return measured.throughput_per_s / measured.world_size


OBJECTIVES: dict[MetricName, Objective] = {
    "throughput": Objective(
        name="throughput",
        unit="samples/s",
        value=lambda m: m.throughput_per_s,
        rank=lambda m: m.throughput_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
    "latency": Objective(
        name="latency",
        unit="ms",
        value=lambda m: m.latency_ms,
        rank=lambda m: m.latency_ms,
        higher_is_better=False,
        per_sample=False,
    ),
    "FLOPS": Objective(
        name="FLOPS",
        unit="FLOP/s per rank",
        value=lambda m: m.flops_per_gpu_per_s,
        rank=_samples_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
}
