import math

import pytest

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.learning_rate import learning_rate_advice


@pytest.mark.parametrize(
    ("optimizer", "factor"), [("AdamW", math.sqrt(2)), (None, math.sqrt(2)), ("SGD", 2.0)]
)
def test_the_rate_follows_the_root_of_the_batch_or_for_sgd_the_batch(
    optimizer: str | None, factor: float
) -> None:
    found = learning_rate_advice(16, 32, TrainingFacts(optimizer=optimizer))
    assert found is not None
    assert found.factor == pytest.approx(factor)


def test_an_unchanged_batch_needs_no_advice() -> None:
    assert learning_rate_advice(16, 16, TrainingFacts()) is None


def test_the_advice_names_both_batches_and_the_factor() -> None:
    found = learning_rate_advice(16, 64, TrainingFacts())
    assert found is not None
    assert found.sentence == (
        "The global batch goes from 16 to 64 (4x): unless the script scales the learning rate "
        "with its batch itself, multiply it by 2 (by its square root)."
    )
