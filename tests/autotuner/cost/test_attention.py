"""Attention to an encoder's tokens, and of heads whose rows no vector load takes."""

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Roofline, distinct
from autoconf_launch.core import Architecture, Layout, Software, Workload
from autoconf_launch.tuning_spaces import build_architecture, machine, named_model

from ..builders import layouts

T5 = Workload(
    model=named_model("fasop-t5"),
    sequence_length=512,
    software=Software(flash_attention=False),
)


def layer_s(workload: Workload, layout: Layout) -> float:
    inner, _ = distinct(layouts(layout))
    nodes = machine("A100-SXM-40GB", gpus_per_node=8)
    return float(Roofline(workload=workload, machine=nodes).inner_times(inner).layer_s_U[0])


@pytest.mark.parametrize("layout", [Layout(), Layout(micro_batch=32), Layout(tensor_parallel=4)])
def test_a_decoder_of_equal_length_pays_for_it_as_one_of_nearly_equal_length(
    layout: Layout,
) -> None:
    near = layer_s(replace(T5, decoder_sequence_length=511), layout)
    assert layer_s(T5, layout) == pytest.approx(near, rel=0.02)


@pytest.mark.parametrize("layout", [Layout(), Layout(micro_batch=32), Layout(tensor_parallel=4)])
def test_it_is_slower_than_as_many_layers_without(layout: Layout) -> None:
    alone = replace(T5.architecture, encoder_layers=0, layers=48)
    assert layer_s(T5, layout) > 1.15 * layer_s(replace(T5, model=alone), layout)


def heads_of(width: int) -> Architecture:
    shapes = {"layers": 2, "hidden": 1600, "heads": 16, "head": width, "vocabulary": 512}
    return build_architecture("model", shapes)


def aligned_s(width: int) -> float:
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
    aligned = aligned_s(8 * (width // 8)) * width / (8 * (width // 8))
    assert aligned_s(width) > slower * aligned * 0.9
    if slower == 1.0:
        assert aligned_s(width) < 1.1 * aligned
