from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from autoconf_launch.autotuner.mixed import MIXED_DEGREES, MixedQuestion, given_stages, mixed_plan
from autoconf_launch.autotuner.mixed.places import place_stages
from autoconf_launch.autotuner.mixed.times import decoder_share, seconds_of_makes
from autoconf_launch.core import Workload

from ..builders import layouts
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
