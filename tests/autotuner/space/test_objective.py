import pytest

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.autotuner.space import OBJECTIVES
from autoconf_launch.autotuner.space.settings import MetricName
from autoconf_launch.core import FailureKind

from ..conftest import candidate, failure_of, record, steps_of

TRIAL = baseline_trial(candidate(micro=2, accumulation=4))  # 16 samples on 2 ranks


@pytest.mark.parametrize(
    ("name", "value"), [("throughput", 8.0), ("latency", 2000.0), ("FLOPS", 25.0)]
)
def test_each_metric_has_its_value(name: MetricName, value: float) -> None:
    found = OBJECTIVES[name].value(steps_of(TRIAL, 2.0, flops_per_step=100.0))
    assert found == pytest.approx(value)


@pytest.mark.parametrize(("name", "expected"), [("throughput", True), ("latency", False)])
def test_each_metric_has_its_direction(name: MetricName, expected: bool) -> None:
    assert OBJECTIVES[name].better(2.0, 1.0) is expected


@pytest.mark.parametrize("name", ["throughput", "latency", "FLOPS"])
def test_equal_values_are_not_better(name: MetricName) -> None:
    assert not OBJECTIVES[name].better(1.0, 1.0)


def test_flops_are_shown_as_counted_and_ranked_by_samples() -> None:
    objective, measured = OBJECTIVES["FLOPS"], steps_of(TRIAL, 2.0)
    assert objective.value(measured) is objective.rank(measured) is None
    assert OBJECTIVES["throughput"].of(record(TRIAL, failure_of(FailureKind.NAN))) is None
    objective = OBJECTIVES["FLOPS"]
    slow, fast = (
        record(TRIAL, steps_of(TRIAL, step_s, flops_per_step=flops))
        for step_s, flops in ((2.0, 1e18), (1.0, 1e12))
    )
    assert (objective.metric_of(slow) or 0) > (objective.metric_of(fast) or 0)
    assert objective.better(objective.of(fast) or 0, objective.of(slow) or 0)


@pytest.mark.parametrize(("name", "cost_s"), [("throughput", 0.5), ("latency", 2.0)])
def test_costs_compare_work_where_the_metric_does(name: MetricName, cost_s: float) -> None:
    assert OBJECTIVES[name].cost_s(2.0, 4) == cost_s
