"""Sharding more and quantizing frozen weights never need more, whoever trains."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import memory_bytes
from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Architecture,
    Experts,
    FrozenPart,
    GradientSum,
    Layout,
    Loss,
    Offload,
    Optimizer,
    Precision,
    Recompute,
    States,
    WeightFormat,
    Workload,
)
from autoconf_launch.tuning_spaces import TRAINERS, trainer

from ..builders import architecture, layouts

ROUNDING = 1 + 1e-9
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def models(draw: Any) -> Architecture:
    """Decoders of one layer or many, wide or narrow, with large and small vocabularies."""
    heads = draw(st.sampled_from([8, 16, 64]))
    width = heads * draw(st.sampled_from([8, 64, 128]))
    ffn = draw(st.sampled_from([width, 4 * width, 32 * width]))
    experts = draw(st.sampled_from([None, Experts(count=16, per_token=2, ffn=ffn)]))
    return Architecture(
        name="any",
        layers=draw(st.sampled_from([8, 16, 40])),
        hidden=width,
        heads=heads,
        kv_heads=draw(st.sampled_from([8, heads])),
        head=width // heads,
        ffn=ffn,
        vocabulary=draw(st.sampled_from([512, 32000, 256000])),
        gated=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        experts=experts,
    )


@st.composite
def workloads(draw: Any) -> Workload:
    """Trainings of such a model by any trainer, of whole models, of parts and of adapters."""
    workload = Workload(
        model=draw(models()),
        sequence_length=draw(st.sampled_from([128, 8192])),
        precision=draw(st.sampled_from([Precision.FP32, Precision.BF16, Precision.FP16])),
        optimizer=Optimizer.from_name(draw(st.sampled_from(sorted(OPTIMIZER_STATES)))),
        lora_rank=draw(st.sampled_from([None, 1, 64])),
    )
    workload = replace(
        workload,
        states=draw(st.sampled_from([None, *States])),
        gradients=draw(st.sampled_from([None, *GradientSum])),
        loss=draw(st.sampled_from([None, *Loss])),
        updates_in_backward=draw(st.booleans()),
    )
    if workload.lora_rank is None:
        workload = replace(workload, frozen=draw(st.frozensets(st.sampled_from(FrozenPart))))
    return trainer(draw(st.sampled_from(sorted(TRAINERS)))).apply_to(workload)


LAYOUTS = st.builds(
    Layout,
    data_parallel=POWERS,
    tensor_parallel=POWERS,
    pipeline_parallel=POWERS,
    context_parallel=st.sampled_from([1, 2]),
    expert_parallel=st.sampled_from([1, 2]),
    zero_stage=st.integers(0, 3),
    micro_batch=st.sampled_from([1, 4]),
    accumulation=st.sampled_from([8, 32]),
    recompute=st.sampled_from(Recompute),
    sequence_parallel=st.booleans(),
    offload=st.sampled_from([Offload.NONE, Offload.OPTIMIZER]),
)


def peaks(workload: Workload, *several: Layout) -> list[float]:
    return [float(peak) for peak in memory_bytes(layouts(*several), workload).peak_C]


@settings(max_examples=100)
@given(workloads(), LAYOUTS)
def test_a_higher_zero_stage_and_more_data_ranks_never_need_more(
    workload: Workload, layout: Layout
) -> None:
    """From two ranks on: a single GPU has no buffers of NCCL."""
    pair = replace(layout, data_parallel=2 * layout.data_parallel)
    wider = replace(pair, data_parallel=2 * pair.data_parallel)
    stages = (replace(layout, zero_stage=stage) for stage in range(4))
    *by_stage, fewer, more = peaks(workload, *stages, pair, wider)
    assert more <= fewer * ROUNDING
    for less, before in zip(by_stage[1:], by_stage, strict=False):
        assert less <= before * ROUNDING


@given(workloads(), LAYOUTS)
def test_quantizing_frozen_weights_never_needs_more(workload: Workload, layout: Layout) -> None:
    """Wide MLPs included: one unpacked matrix is no more than the format saves a rank."""
    lora = replace(workload, frozen=frozenset(), lora_rank=workload.lora_rank or 16)
    formats = (None, WeightFormat.INT8, WeightFormat.NF4)
    (plain,), (eight,), (four,) = (
        peaks(replace(lora, weight_format=form), layout) for form in formats
    )
    assert four <= eight * ROUNDING <= plain * ROUNDING**2


@given(workloads(), LAYOUTS)
def test_smaller_states_fewer_logits_and_offloaded_activations_never_need_more(
    workload: Workload, layout: Layout
) -> None:
    own = replace(workload, gradients=None)
    moments = [States.BF16_MASTER, States.BF16_MOMENTS, States.BF16]
    falling = [
        [peaks(replace(own, states=one), layout)[0] for one in moments],
        [peaks(replace(own, loss=one), layout)[0] for one in Loss],
        [peaks(replace(own, updates_in_backward=one), layout)[0] for one in (False, True)],
        peaks(own, *(replace(layout, offload=one) for one in (Offload.NONE, Offload.ACTIVATIONS))),
    ]
    for found in falling:
        for less, before in zip(found[1:], found, strict=False):
            assert less <= before * ROUNDING


@pytest.mark.parametrize("name", TRAINERS)
def test_zero_3_has_room_for_the_layers_in_use(name: str) -> None:
    """Weights are shared by all ranks, but two layers are whole while they compute."""
    model = architecture("any", layers=8, hidden=512, heads=8, vocabulary=512)
    workload = trainer(name).apply_to(Workload(model=model, sequence_length=128))
    found = memory_bytes(layouts("dp=64 zero=3"), workload)
    assert float(found["gathered"].max()) >= 2 * 2 * 12 * 512**2
