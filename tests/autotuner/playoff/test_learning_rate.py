import math

import pytest

from autoconf_launch.autotuner.playoff.summary import learning_rate_advice
from autoconf_launch.core import (
    Optimizer,
)


@pytest.mark.parametrize(
    ("optimizer", "factor"), [("AdamW", math.sqrt(2)), (None, math.sqrt(2)), ("SGD", 2.0)]
)
def test_the_rate_follows_the_root_of_the_batch_or_for_sgd_the_batch(
    optimizer: str | None, factor: float
) -> None:
    found = learning_rate_advice(16, 32, Optimizer.named(optimizer))
    assert found is not None
    assert found.factor == pytest.approx(factor)
    assert (found.before, found.after, found.linear) == (16, 32, optimizer == "SGD")


def test_an_unchanged_batch_needs_no_advice() -> None:
    assert learning_rate_advice(16, 16, Optimizer()) is None
