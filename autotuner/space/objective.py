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
        value: the metric; None where the measurement lacks it.
        higher_is_better: its direction.
        per_sample: compares work done, so that a larger global batch may take longer.
    """

    name: MetricName
    unit: str
    value: Callable[[Measurement], float | None]
    higher_is_better: bool
    per_sample: bool

    def better(self, a: float, b: float) -> bool:
        """Whether ``a`` is strictly better than ``b``."""
        return a > b if self.higher_is_better else a < b

    def of(self, record: Record) -> float | None:
        """The metric of a record; None where the trial failed."""
        return None if record.measurement is None else self.value(record.measurement)

    def cost_s(self, step_s: float, samples: int) -> float:
        """Seconds to compare by, less is better: of a step, or of a sample."""
        return step_s / samples if self.per_sample else step_s


OBJECTIVES: dict[MetricName, Objective] = {
    "throughput": Objective(
        name="throughput",
        unit="samples/s",
        value=lambda m: m.throughput_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
    "latency": Objective(
        name="latency",
        unit="ms",
        value=lambda m: m.latency_ms,
        higher_is_better=False,
        per_sample=False,
    ),
    "FLOPS": Objective(
        name="FLOPS",
        unit="FLOP/s per rank",
        value=lambda m: m.flops_per_gpu_per_s,
        higher_is_better=True,
        per_sample=True,
    ),
}
