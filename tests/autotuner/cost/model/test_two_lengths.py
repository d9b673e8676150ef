"""An encoder-decoder whose decoder writes another number of tokens than its encoder reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import Machine, StepParts
from autoconf_launch.autotuner.cost.kernel_times import least_step_s
from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.autotuner.sizing import Family, SampleShape, step_flops
from autoconf_launch.core import Software, Workload

from ...builders import architecture, layouts
from .conftest import MACHINE, WORKLOAD

T5_3B = architecture(
    "t5",
    layers=24,
    encoder_layers=24,
    hidden=2048,
    heads=32,
    ffn=5120,
    vocabulary=29_000,
    gated=True,
)
READ = 512


T5 = replace(
    WORKLOAD,
    model=T5_3B,
    sequence_length=READ,
    software=Software(flash_attention=False),
    decoder_sequence_length=128,
)


def parts(workload: Workload, machine: Machine) -> StepParts:
    return step_parts(layouts("micro=8"), workload, machine)


def test_operations_are_those_that_nvidia_counts() -> None:
    """NVIDIA's count has no causal mask, ours has; scores are a small part."""
    shape = SampleShape(
        family=Family("t5"),
        layers=24,
        hidden=2048,
        ffn=5120,
        vocabulary=29_000,
        sequence=READ,
        decoder_sequence=128,
    )
    ideal_s = parts(T5, MACHINE).ideal_s_C[0]
    assert ideal_s == pytest.approx(step_flops(shape, 8) / 100e12, rel=0.01)


def test_a_shorter_decoder_makes_a_faster_step_and_none_beats_its_bound() -> None:
    times = [
        parts(replace(T5, decoder_sequence_length=written), MACHINE).step_s_C[0]
        for written in (32, 128, 256)
    ]
    assert times == sorted(times)
    assert times[0] < times[-1]
    equal, unset = (
        parts(replace(T5, decoder_sequence_length=written), MACHINE).step_s_C[0]
        for written in (READ, None)
    )
    assert equal == unset
    columns = layouts("micro=8", "tp=4", "dp=8")
    assert (least_step_s(columns, T5, MACHINE) < step_parts(columns, T5, MACHINE).step_s_C).all()
