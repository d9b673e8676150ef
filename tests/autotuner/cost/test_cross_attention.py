"""Decoders that attend to an encoder's tokens."""

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import Roofline, distinct
from autoconf_launch.core import Layout, Software, Workload
from autoconf_launch.tuning_spaces import machine, named_model

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
