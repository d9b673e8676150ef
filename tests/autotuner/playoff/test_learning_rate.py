import math
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.playoff.summary import learning_rate_advice, learning_rate_of
from autoconf_launch.autotuner.space import Record, Trial
from autoconf_launch.core import AppliedStrategy, Optimizer, Precision

from ..conftest import candidate, record, steps_of


@pytest.mark.parametrize(
    ("optimizer", "factor"), [("AdamW", math.sqrt(2)), (None, math.sqrt(2)), ("SGD", 2.0)]
)
def test_the_rate_follows_the_root_of_the_batch_or_for_sgd_the_batch(
    optimizer: str | None, factor: float
) -> None:
    found = learning_rate_advice(16, 32, Optimizer.from_name(optimizer))
    assert found is not None
    assert found.factor == pytest.approx(factor)
    assert (found.before, found.after, found.linear) == (16, 32, optimizer == "SGD")


def test_an_unchanged_batch_needs_no_advice() -> None:
    assert learning_rate_advice(16, 16, Optimizer()) is None


def at(number: int, micro_batch: int, rate: float | None, optimizer: str | None = None) -> Record:
    """A trial whose script was seen to have this optimizer and rate."""
    one = candidate(micro=micro_batch)
    trial = Trial(number=number, name=str(number), candidate=one, space="z0")
    applied = AppliedStrategy(
        zero_stage=0,
        data_parallel=1,
        micro_batch=micro_batch,
        accumulation=1,
        precision=Precision.FP32,
        recompute=None,
        learning_rate=rate,
        optimizer=optimizer,
    )
    return record(trial, replace(steps_of(trial, 0.1), applied=applied))


def test_the_optimizer_of_a_script_that_makes_its_own_decides_the_law() -> None:
    found = learning_rate_of(at(0, 4, 0.1, "SGD"), at(1, 16, 0.1, "SGD"), Optimizer())
    assert found is not None
    assert (found.factor, found.linear) == (4.0, True)
