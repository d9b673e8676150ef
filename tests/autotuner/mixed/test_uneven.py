from itertools import product

import numpy as np
import pytest

from autoconf_launch.autotuner.mixed.one_layout import share_samples

from ...rows import some


@pytest.mark.parametrize("seed", range(20))
def test_no_other_shares_end_earlier(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = np.cumsum(rng.uniform(0.1, 2.0, (3, 6)), axis=1)
    most, total = rng.integers(2, 7, 3), 8
    if most.sum() < total:
        assert share_samples(seconds, most, total) is None
        return
    found = some(share_samples(seconds, most, total))
    assert found.sum() == total
    assert (found <= most).all()
    every = [
        max(seconds[d, b - 1] for d, b in enumerate(samples))
        for samples in product(*(range(1, size + 1) for size in most))
        if sum(samples) == total
    ]
    assert max(seconds[d, b - 1] for d, b in enumerate(found)) == pytest.approx(min(every))


def test_each_replica_has_a_sample() -> None:
    assert share_samples(np.ones((4, 3)), np.full(4, 3), 3) is None
    found = some(share_samples(np.array([[1.0, 2, 3], [9.0, 18, 27]]), np.full(2, 3), 3))
    assert found.tolist() == [2, 1]
