from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.space import is_out_of_memory
from autoconf_launch.core import Layout

from ..autotuner.builders import layout_of, prediction_table, table
from .conftest import import_benchmark

walk = import_benchmark("tuner_walk")
Landscape, merge_repeats, stage_groups = walk.Landscape, walk.merge_repeats, walk.stage_groups

FULL = float("nan")


def landscape(*rows: tuple[Layout, float]) -> Any:
    steps_s = np.array([step_s for _, step_s in rows])
    predictions = prediction_table(steps_s, [1.0] * len(rows), band=0.1)
    candidates = table(*(layout for layout, _ in rows))
    return Landscape(name="one", table=candidates, step_s_C=steps_s, predictions=predictions)


def micro(size: int, accumulation: int = 1) -> Layout:
    return layout_of(f"micro={size} acc={accumulation}")


def test_records_and_regret_are_of_the_time_of_a_sample() -> None:
    found = landscape((micro(1), 1.0), (micro(2), 1.0), (micro(4), FULL))
    assert found.regret_C.tolist() == [1.0, 0.0, np.inf]
    assert is_out_of_memory(landscape((micro(1), FULL)).record(0, number=3))
    record = landscape((micro(1), 2.0)).record(0, number=3)
    assert record.trial.number == 3
    assert record.measurement is not None
    assert record.measurement.mean_step_s == 2.0
    assert record.prediction is not None
    assert record.prediction.step_s == 2.0


def test_repeats_become_one_with_their_median_unless_most_failed() -> None:
    found = landscape((micro(2), 1.0), (micro(1), 5.0), (micro(2), 4.0), (micro(2), 2.0))
    one = merge_repeats(found, [2, 1, 2, 2])
    assert one.table["micro_batch"].tolist() == [1, 2]
    assert one.step_s_C.tolist() == [5.0, 2.0]
    found = landscape((micro(1), 3.0), (micro(1), FULL), (micro(1), 1.0))
    assert merge_repeats(found, [1, 1, 1]).step_s_C.tolist() == [2.0]
    assert np.isnan(
        merge_repeats(landscape((micro(1), 3.0), (micro(1), FULL)), [1, 1]).step_s_C
    ).all()
    rows = [(micro(m), float(m)) for m in (4, 1, 2)]
    first, second = (
        merge_repeats(landscape(*rows), [4, 1, 2]),
        merge_repeats(landscape(*rows[::-1]), [2, 1, 4]),
    )
    assert first.table["micro_batch"].tolist() == second.table["micro_batch"].tolist()
    one = merge_repeats(landscape((micro(4, accumulation=2), 6.0)), [6])
    assert one.step_s_C.tolist() == [8.0]
    assert one.predictions is not None
    assert one.predictions.step_s_C.tolist() == [8.0]


def test_families_come_with_the_fewest_kinds_of_parallelism_first() -> None:
    rows = [
        layout_of("tp=2 pp=2"),
        layout_of("dp=4 zero=1"),
        Layout(tensor_parallel=4),
        Layout(data_parallel=4),
        Layout(pipeline_parallel=4),
    ]
    names = [name for name, _ in stage_groups(landscape(*((row, 1.0) for row in rows)))]
    assert names == ["z0", "z1", "z0_pp", "z0_tp", "z0_tp_pp"]


@pytest.mark.parametrize("count", [1, 3])
def test_every_row_is_of_one_family(count: int) -> None:
    found = landscape(*((Layout(tensor_parallel=2**i), 1.0) for i in range(count)))
    assert np.sum([rows for _, rows in stage_groups(found)], axis=0).tolist() == [1] * count
