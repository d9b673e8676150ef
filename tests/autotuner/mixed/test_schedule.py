"""The formula of 1F1B against an event simulation, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autoconf_launch.autotuner.mixed.times import pipeline_s


def simulate_1f1b(forward_s: Sequence[float], backward_s: Sequence[float], count: int) -> float:
    """End of the last pass of ``count`` micro-batches; sends take no time.

    Each stage does its passes in the order of 1F1B: as many forward ones as there are stages
    behind it, then forward and backward by turns, then the backward ones that are left.
    """
    stages = len(forward_s)
    orders = [_order(stages - 1 - stage, count) for stage in range(stages)]
    done: dict[tuple[int, str, int], float] = {}
    free_s, place = [0.0] * stages, [0] * stages
    left = 2 * stages * count
    while left:
        for stage in range(stages):
            while place[stage] < len(orders[stage]):
                kind, number = orders[stage][place[stage]]
                needs = _needs(stage, kind, number, stages)
                if any(one not in done for one in needs):
                    break
                start = max([free_s[stage], *(done[one] for one in needs)])
                seconds = forward_s[stage] if kind == "forward" else backward_s[stage]
                free_s[stage] = done[stage, kind, number] = start + seconds
                place[stage] += 1
                left -= 1
    return max(free_s)


def _order(behind: int, count: int) -> list[tuple[str, int]]:
    warm_up = min(behind, count)
    passes = [("forward", number) for number in range(warm_up)]
    for number in range(count - warm_up):
        passes += [("forward", warm_up + number), ("backward", number)]
    return passes + [("backward", number) for number in range(count - warm_up, count)]


def _needs(stage: int, kind: str, number: int, stages: int) -> list[tuple[int, str, int]]:
    if kind == "forward":
        return [(stage - 1, "forward", number)] if stage else []
    own = (stage, "forward", number)
    return [own] if stage == stages - 1 else [own, (stage + 1, "backward", number)]


def test_equal_stages_have_the_bubble_of_stages_less_one() -> None:
    ones = np.ones((1, 4))
    assert pipeline_s(ones, 2 * ones, np.array([8]))[0] == pytest.approx(3 * (8 + 3))
    assert pipeline_s(np.array([[1.0]]), np.array([[2.0]]), np.array([5]))[0] == 15.0


def errors(cases: int) -> np.ndarray:
    """Relative errors of random pipelines whose stages differ by up to four times."""
    rng, found = np.random.default_rng(0), []
    for _ in range(cases):
        stages, count = int(rng.integers(2, 9)), int(rng.integers(1, 33))
        forward = rng.uniform(0.5, 2.0, stages)
        backward = forward * rng.uniform(1.5, 3.0)
        simulated = simulate_1f1b(forward.tolist(), backward.tolist(), count)
        found.append(pipeline_s(forward[None], backward[None], np.array([count]))[0] / simulated)
    return np.array(found) - 1


def test_the_formula_is_within_a_percent_of_the_simulation_and_never_above_it() -> None:
    found = errors(400)
    assert found.max() < 1e-9
    assert found.min() > -0.05
    assert np.mean(found > -0.01) > 0.95
