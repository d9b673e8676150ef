"""Attention of heads whose rows no vector load takes."""

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Roofline, distinct
from autoconf_launch.core import Architecture, Software, Workload
from autoconf_launch.tuning_spaces import build_architecture, machine

from ..builders import layouts


def heads_of(width: int) -> Architecture:
    shapes = {"layers": 2, "hidden": 1600, "heads": 16, "head": width, "vocabulary": 512}
    return build_architecture("model", shapes)


def layer_s(width: int) -> float:
    workload = Workload(
        model=heads_of(width),
        sequence_length=1024,
        software=Software(flash_attention=False),
    )
    inner, _ = distinct(layouts("micro=8"))
    times = Roofline(workload=workload, machine=machine("A10G-24GB")).inner_times(inner)
    return float(np.asarray(times.busy_s_U)[0])


@pytest.mark.parametrize(("width", "slower"), [(100, 1.0), (102, 2.0), (150, 2.0)])
def test_rows_of_four_numbers_are_loaded_at_once_and_narrower_ones_slowly(
    width: int, slower: float
) -> None:
    aligned = layer_s(8 * (width // 8)) * width / (8 * (width // 8))
    assert layer_s(width) > slower * aligned * 0.9
    if slower == 1.0:
        assert layer_s(width) < 1.1 * aligned
