from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Roofline, distinct
from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    MeasuredLayers,
    MixedQuestion,
    given_stages,
    mixed_plan,
)
from autoconf_launch.autotuner.mixed.kinds import with_measured
from autoconf_launch.autotuner.mixed.places import place_stages
from autoconf_launch.autotuner.mixed.times import decoder_share, seconds_of_makes
from autoconf_launch.core import Layout, Software, Workload
from autoconf_launch.tuning_spaces import machine, named_model

from ..builders import layout_of, layouts
from .conftest import WORKLOAD, kind, rows_at_first


@pytest.fixture
def translation() -> Workload:
    """Six layers that read, six that write and attend to them."""
    model = replace(WORKLOAD.architecture, layers=6, encoder_layers=6)
    return replace(WORKLOAD, model=model)


def test_a_stage_may_have_layers_of_both(translation: Workload) -> None:
    shares = decoder_share(translation.architecture, np.array([[4, 4, 1, 3]]))
    assert shares.tolist() == [[0.0, 0.5, 1.0, 1.0]]


def test_a_layer_that_attends_to_an_encoder_takes_longer(translation: Workload) -> None:
    nodes = kind("A10G-24GB")
    columns = layouts("dp=2 pp=2")
    places = place_stages(np.array([[0]]), [nodes], stages=2, stage_ranks=2)
    rows = rows_at_first(columns, places, translation, [nodes])
    times = seconds_of_makes(rows, np.array([[0.0, 1.0]]))
    assert times.layer_s_RS[0, 1] > 1.1 * times.layer_s_RS[0, 0]


def test_the_pipeline_is_cut_between_encoder_and_decoder(translation: Workload) -> None:
    kinds = (kind("A100-40GB"), kind("T4-16GB"))
    degrees = replace(MIXED_DEGREES, pipeline_parallel=(2, 4), zero_stage=(0,))
    question = MixedQuestion(
        workload=translation, kinds=kinds, degrees=degrees, parts=((1, 1),), most=20
    )
    for row in mixed_plan(question).best:
        layers = [stage.layers for stage in row.stages]
        assert 6 in accumulate(layers)
        columns = layouts(replace(row.layout, pipeline_split=None))
        given = given_stages(columns, translation, kinds, row.order, layers)
        assert given.step_s == pytest.approx(row.step_s)


LAYOUTS = [
    *(Layout(micro_batch=micro) for micro in (1, 4, 64)),
    *(layout_of(f"micro={micro} tp=2") for micro in (1, 64)),
    layout_of("micro=64 recompute=full"),
]


def layer_s(forward_s: float | None, model: str, gpu: str = "A100-SXM-40GB") -> list[float]:
    """A layer of each layout, predicted if nothing was measured."""
    inner, which = distinct(layouts(*LAYOUTS))
    workload = Workload(
        model=named_model(model), sequence_length=512, software=Software(flash_attention=False)
    )
    roofline = Roofline(workload=workload, machine=machine(gpu, gpus_per_node=4))
    times = roofline.inner_times(inner)
    if forward_s is not None:
        same = (forward_s, forward_s)
        measured = MeasuredLayers(tensor=(1, 2), layer_s=same, first_s=same, last_s=same)
        times = with_measured(times, inner, roofline, measured)
        assert times.first_s_U[which][0] == pytest.approx(3 * forward_s)
        assert times.last_s_U[which][0] == pytest.approx(3 * forward_s)
    return [float(one) for one in times.layer_s_U[which]]


@pytest.mark.parametrize("forward_s", [0.0003, 0.001, 0.003])
@pytest.mark.parametrize("model", ["bert-large", "gpt3-6.7b"])
def test_one_sample_takes_what_was_measured(forward_s: float, model: str) -> None:
    found = layer_s(forward_s, model)
    assert found[0] == pytest.approx(3 * forward_s)
    assert found[3] == pytest.approx(3 * forward_s)


def test_what_a_slow_host_takes_is_shared_by_larger_micro_batches() -> None:
    """BERT's layer on an A100 is far shorter than its launches."""
    found, predicted = layer_s(0.00144, "bert-large"), layer_s(None, "bert-large")
    assert found[1] == pytest.approx(found[0])
    assert found[2] == pytest.approx(predicted[2], rel=0.02)
    assert found[5] == pytest.approx(predicted[5], rel=0.02)


def test_a_busy_device_is_slower_or_faster_as_a_whole() -> None:
    predicted = layer_s(None, "gpt3-6.7b", "T4-16GB")
    found = layer_s(predicted[0] / 3 * 1.3, "gpt3-6.7b", "T4-16GB")
    assert found[2] / predicted[2] == pytest.approx(1.3)
    assert found[5] / predicted[5] == pytest.approx(1.3)


def test_what_was_not_measured_stays_predicted() -> None:
    inner, _ = distinct(layouts(*LAYOUTS[:1]))
    workload = Workload(model=named_model("gpt2"), sequence_length=512)
    roofline = Roofline(workload=workload, machine=machine("A10G-24GB"))
    times = roofline.inner_times(inner)
    nothing = (float("nan"),)
    measured = MeasuredLayers(tensor=(1,), layer_s=(0.001,), first_s=nothing, last_s=nothing)
    found = with_measured(times, inner, roofline, measured)
    assert np.array_equal(found.last_s_U, times.last_s_U)
