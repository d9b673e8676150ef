from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import LayoutColumns, StageSends
from autoconf_launch.autotuner.cost.layout_columns import largest_share, stage_layers
from autoconf_launch.autotuner.cost.layout_rules import (
    LayerSeconds,
    in_flight,
    schedule_s,
    stage_times,
)
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.tuning_spaces import SCHEDULES

from ...builders import layouts

ZERO = np.zeros(1)


def step(layers: int, ends: float = 0.0, **layout: int) -> float:
    """Seconds of layers that take 1 s each."""
    return step_of(layouts(layout), layers, ends)


def step_of(
    columns: LayoutColumns, layers: int, ends: float, slowest: float = 1.0, send: float = 0.0
) -> float:
    sends = StageSends.alike(columns.pipeline_C, ZERO + send)
    stages = stage_times(
        columns,
        layers,
        layer=LayerSeconds(mean_s_C=np.ones(1), slowest_s_C=ZERO + slowest),
        first_s_C=ZERO + ends,
        last_s_C=ZERO + ends,
        sends=sends,
    )
    seconds: Floats = schedule_s(columns, stages, sends)[0]
    return float(seconds[0])


def test_a_pipeline_takes_its_micro_batches_and_a_bubble() -> None:
    assert step(24, accumulation=3) == 72.0
    assert step(24, pipeline_parallel=4, accumulation=8) == 6 * (8 + 3)
    seconds = step(24, pipeline_parallel=4, virtual_pipeline=3, accumulation=8)
    assert seconds == 6 * (8 + 3 / 3)
    assert step(8, 1.0, pipeline_parallel=2, accumulation=4) == 4 * 5 + 5
    # 12 layers of 1.5 s read, 12 of 0.5 s write
    columns = layouts("pp=4 acc=8")
    assert step_of(columns, 24, 0.0, slowest=1.5) > 9.0 * 8
    # 126 layers on 8 stages: 16 each, 15 on the first and the last one, which have an end too
    assert step(126, 1.0, pipeline_parallel=8, accumulation=1) == pytest.approx(128)
    # The first of 4 layers takes 1 s, the others 2 s, so that the last stage needs 4 s.
    columns = layouts("pp=2 acc=8")
    sends = StageSends.alike(columns.pipeline_C, ZERO)
    stages = stage_times(
        columns,
        4,
        layer=LayerSeconds(mean_s_C=ZERO + 1.75, after_s_C=ZERO + 2.0),
        first_s_C=ZERO,
        last_s_C=ZERO,
        sends=sends,
    )
    assert schedule_s(columns, stages, sends)[0] == 8 * 4 + 3


F = B = W = 2.0
"""Seconds of forward and of both halves of backward on a stage of the schedules below."""


@pytest.mark.parametrize(
    ("name", "bubble_s", "held"),
    [
        ("1f1b", 3 * (F + B + W), [4, 3, 2, 1]),
        ("zb-h1", 3 * (F + B - W), [4, 4, 4, 4]),
        ("zb-h2", 3 * (F + B - 2 * W), [7, 7, 7, 7]),
        ("zbv", 0.0, [4, 4, 4, 4]),
        ("dualpipe", (4 / 2 - 1) * ((F + B + W) + (B + W) - 3 * W), [5, 5, 5, 5]),
    ],
)
def test_a_schedule_has_the_bubble_and_the_micro_batches_of_its_paper(
    name: str, bubble_s: float, held: list[int]
) -> None:
    schedule, columns = SCHEDULES[name], layouts("pp=4 acc=8")
    sends = replace(StageSends.alike(columns.pipeline_C, ZERO), schedule=schedule)
    stages = stage_times(
        columns,
        24,
        layer=LayerSeconds(mean_s_C=np.ones(1)),
        first_s_C=ZERO,
        last_s_C=ZERO,
        sends=sends,
    )
    seconds, sent = schedule_s(columns, stages, sends)
    assert seconds[0] == pytest.approx(8 * (F + B + W) + bubble_s)
    assert sent[0] == pytest.approx(0.0, abs=1e-9)
    numbers = np.arange(4)[:, None]
    assert in_flight(numbers, columns, schedule)[:, 0].tolist() == held
    few = layouts("pp=4 acc=2")
    assert in_flight(numbers, few, schedule).max() == 2
    assert in_flight(numbers[:1], layouts("acc=8"), schedule).tolist() == [[1]]


def test_a_v_turns_without_a_send_and_has_both_ends_on_its_first_rank() -> None:
    columns = layouts("pp=4 acc=8")
    seconds = []
    for name in ("1f1b", "zbv"):
        sends = replace(StageSends.alike(columns.pipeline_C, ZERO + 0.5), schedule=SCHEDULES[name])
        stages = stage_times(
            columns,
            24,
            layer=LayerSeconds(mean_s_C=np.ones(1)),
            first_s_C=ZERO + 1.0,
            last_s_C=ZERO + 3.0,
            sends=sends,
        )
        seconds.append(
            (float(stages.slowest_s_C[0]), float(schedule_s(columns, stages, sends)[1][0]))
        )
    (plain_s, plain_sent_s), (folded_s, folded_sent_s) = seconds
    assert (plain_s, folded_s) == (6 + 3, 6 + 1 + 3)
    assert plain_sent_s < folded_sent_s < 2.5 * plain_sent_s


def test_stages_have_given_or_even_layers() -> None:
    columns = layouts("pp=4 split=2,9,10,3")
    assert [float(x[0]) for x in stage_layers(24, columns)] == [2, 10, 3]
    plain = {"pipeline_parallel": 2}
    columns = layouts(plain, plain | {"pipeline_split": (5, 3)})
    assert stage_layers(8, columns)[0].tolist() == [4, 5]
    columns = LayoutColumns.join([layouts(plain), layouts(plain | {"pipeline_split": (5, 3)})])
    assert stage_layers(8, columns)[2].tolist() == [4, 3]
    columns = layouts("pp=4 vpp=3")
    assert largest_share(25, columns)[0] == 9
    columns = layouts("pp=2 acc=4 split=5,3")
    assert step_of(columns, 8, ends=1.0) == 4 * 6 + 4


def test_stages_between_others_send_to_both_and_chunks_all_round() -> None:
    two, four = (layouts(f"pp={n} acc=8") for n in (2, 4))
    assert step_of(two, 4, 0.0, send=0.5) == 8 * 2 + 2 + (8 + 1) * 0.5
    assert step_of(four, 4, 0.0, send=0.5) == 8 * 1 + 3 + 8 * 2 * 0.5 + (2 * 3 - 2) * 0.5
    plain = {"pipeline_parallel": 4, "accumulation": 64}
    once, thrice = (
        step_of(layouts(plain | {"virtual_pipeline": v}), 24, 0.0, send=0.5)
        - step_of(layouts(plain | {"virtual_pipeline": v}), 24, 0.0)
        for v in (1, 3)
    )
    assert thrice == pytest.approx(3 * once, rel=0.05)
    # Only a hundredth of each ten-second send is exposed, but the cards send them all.
    columns = layouts("pp=4 vpp=2 acc=8")
    sends = replace(StageSends.alike(columns.pipeline_C, ZERO + 10.0), exposed=0.01)
    stages = stage_times(
        columns,
        8,
        layer=LayerSeconds(mean_s_C=np.ones(1)),
        first_s_C=ZERO,
        last_s_C=ZERO,
        sends=sends,
    )
    assert schedule_s(columns, stages, sends)[0] == 8 * 2 * 2 * 10.0
