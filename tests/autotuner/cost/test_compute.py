import math
import random
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import profiled_step_parts
from autoconf_launch.autotuner.cost.kernel_times import Line, fit_line, least_profiled_step_s
from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.core import (
    BlockSpec,
    Grade,
    MicroBatchTiming,
    ModelSpec,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)

from ..builders import table

ADAM = Workload(optimizer=Optimizer.from_name("AdamW"), precision=Precision.FP32)


def time_it(*seconds: tuple[int, float]) -> tuple[MicroBatchTiming, ...]:
    return tuple(
        MicroBatchTiming(micro_batch=n, forward_backward_s=s, activation_bytes=0)
        for n, s in seconds
    )


# A floor of 1 s and 0.5 s for each sample.
MODEL = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(BlockSpec(name="model", parameters=100),),
    timings=time_it((1, 1.5), (2, 2.0)),
    optimizer_step_s=0.8,
)


def step_s(spec: ModelSpec = MODEL, **layout: Any) -> float:
    return float(profiled_step_parts(table(layout), replace(ADAM, model=spec), None).step_s_C[0])


def test_a_step_is_its_micro_batches_recomputed_and_one_update_of_shards() -> None:
    assert step_s(micro_batch=4, accumulation=3) == pytest.approx(3 * (1 + 4 * 0.5) + 0.8)
    assert step_s(zero_stage=1, data_parallel=4) == pytest.approx(1.5 + 0.2)
    assert step_s(recompute=Recompute.FULL) == pytest.approx(1.5 * 4 / 3 + 0.8)


def test_without_timings_or_a_formula_nothing_is_said() -> None:
    assert np.isnan(step_s(replace(MODEL, timings=())))
    assert np.isnan(step_s(replace(MODEL, timings=time_it((1, 0.0), (2, 0.0)))))
    assert np.isnan(step_s(tensor_parallel=2))
    # Only the user's own configuration is left of some spaces.
    nothing = table("").take([])
    assert profiled_step_parts(nothing, replace(ADAM, model=MODEL), None).step_s_C.shape == (0,)


def test_the_parts_add_up_to_the_step() -> None:
    rows = table("micro=4 acc=3 recompute=full")
    found = profiled_step_parts(rows, replace(ADAM, model=MODEL), None)
    parts_s = [float(part[0]) for _, part in found.profiled_parts()]
    assert sum(parts_s) == pytest.approx(found.step_s_C[0])


def least_s(*timings: MicroBatchTiming, **layout: Any) -> float:
    return float(least_profiled_step_s(table(layout), replace(MODEL, timings=timings))[0])


def test_the_least_time_is_of_samples_and_recomputation_alone() -> None:
    assert 0.8 * 4 * 0.5 < least_s(*MODEL.timings, micro_batch=4) < 4 * 0.5
    one = least_s(*MODEL.timings)
    many = least_s(*MODEL.timings, micro_batch=4, accumulation=3, recompute=Recompute.FULL)
    assert many == pytest.approx(one * 12 * 4 / 3)
    small, large = MODEL.timings
    ratio = least_s(small, replace(large, fastest_s=1.8)) / least_s(small, large)
    assert ratio == pytest.approx(0.3 / 0.5)
    assert least_s(*time_it((1, 2.0), (2, 2.0))) == 0.0


def profile(each_s: float, floor_s: float, chance: random.Random) -> list[MicroBatchTiming]:
    """By a launch that is as noisy as launches are before anything is known of a machine."""
    launch = math.exp(chance.gauss(0.0, PRIOR.between))
    found = []
    for size in (1, 2):
        true_s = launch * (floor_s + size * each_s)
        taken = [true_s * math.exp(chance.gauss(0.0, PRIOR.within)) for _ in range(5)]
        timing = MicroBatchTiming(
            micro_batch=size,
            forward_backward_s=statistics.median(taken),
            activation_bytes=0,
            fastest_s=min(taken),
        )
        found.append(timing)
    return found


def comes_below(each_s: float, floor_s: float, seed: int) -> bool:
    """True if a trial of one large micro-batch is faster than the profile says is possible."""
    chance = random.Random(seed)
    bound_s = least_s(*profile(each_s, floor_s, chance), micro_batch=16)
    return (floor_s + 16 * each_s) * math.exp(chance.gauss(0.0, PRIOR.between)) < bound_s


@pytest.mark.parametrize("floor_s", [0.0, 0.2, 2.0])
def test_a_trial_hardly_ever_comes_below_the_least_time(floor_s: float) -> None:
    assert sum(comes_below(1.0, floor_s, seed) for seed in range(200)) <= 6


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([(1, 3.0), (2, 5.0)], Line(1.0, 2.0)),
        ([(4, 8.0)], Line(0.0, 2.0)),
        ([(1, 5.0), (2, 3.0)], Line(4.0, 0.0)),
        ([(1, 1.0), (2, 3.0)], Line(0.0, 1.4)),
    ],
)
def test_a_line_keeps_both_of_its_parts_from_below_zero(
    points: list[tuple[int, float]], line: Line
) -> None:
    found = fit_line(points)
    assert (found.fixed, found.each) == pytest.approx((line.fixed, line.each))
