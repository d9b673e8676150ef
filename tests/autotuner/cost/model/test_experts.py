from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS, rank_weights
from autoconf_launch.autotuner.cost.kernel_times import (
    least_step_s,
    routed_weights,
    updated_weights,
)
from autoconf_launch.autotuner.cost.step import gradient_exchange_s, step_parts
from autoconf_launch.core import (
    Architecture,
    Dispatcher,
    Experts,
    Recompute,
    Software,
    StateMixer,
)

from ...builders import layouts
from .conftest import GPT, MACHINE, WORKLOAD

FULL = {"recompute": Recompute.FULL}


SPARSE = replace(WORKLOAD, model=replace(GPT, experts=Experts(count=64, per_token=4, ffn=1024)))
"""Equal tokens for each of 64 small experts."""


def test_experts_wait_for_their_counts_and_exchange_gradients_with_the_same() -> None:
    columns = layouts("micro=8", {"micro_batch": 8, **FULL})
    without = replace(MACHINE, physics=replace(DEFAULT_PHYSICS, routing_s=0.0))
    waits = step_parts(columns, SPARSE, MACHINE).step_s_C
    waits = waits - step_parts(columns, SPARSE, without).step_s_C
    assert waits == pytest.approx([24 * DEFAULT_PHYSICS.routing_s * n for n in (1, 2)])
    # 16 ranks with different experts exchange none of them.
    old = replace(SPARSE, software=Software(flash_attention=False))
    columns = layouts(*(f"dp=16 ep={ep}" for ep in (16, 8)))
    apart_s, alike_s = gradient_exchange_s(columns, old, MACHINE, np.zeros(2))
    card = MACHINE.node_network_bytes_per_s / 8 * DEFAULT_PHYSICS.network_fraction
    gradients = 2 * routed_weights(columns, old)[1]
    assert alike_s - apart_s == pytest.approx(gradients / card, rel=0.01)
    whole = {"data_parallel": 16, "zero_stage": 3}
    columns = layouts(whole, {**whole, "expert_parallel": 16})
    seconds_C = step_parts(columns, SPARSE, MACHINE).communication_s_C
    assert np.isfinite(seconds_C).all()
    assert seconds_C[1] < 0.5 * seconds_C[0]


def test_experts_lie_on_expert_ranks_and_are_updated_by_those_with_the_same() -> None:
    columns = layouts(
        "dp=16 ep=8 zero=1",
        "dp=16 zero=1",
        "dp=16 ep=8",
    )
    routed, all_of = routed_weights(columns, SPARSE), rank_weights(columns, SPARSE)
    assert routed.tolist() == [24 * 2 * 2048 * 1024 * n for n in (8, 64, 8)]
    shares = updated_weights(columns, SPARSE) / columns.optimizer_shards_C
    assert shares == pytest.approx(
        [(all_of[0] - routed[0]) / 16 + routed[0] / 2, all_of[1] / 16, all_of[2]]
    )


@pytest.mark.parametrize("dispatcher", Dispatcher)
def test_dispatchers_other_than_torch_leave_the_node_once(dispatcher: Dispatcher) -> None:
    near = layouts("dp=16 ep=8 micro=4")
    far = layouts("dp=16 ep=16 micro=4")
    hidden = Software(dispatcher=dispatcher, hides_routing=True)
    of = replace(SPARSE, software=hidden)
    more = [step_parts(x, of, MACHINE).communication_s_C[0] for x in (near, far)]
    assert more[1] < 2 * more[0]
    of = replace(SPARSE, software=replace(hidden, hides_routing=False))
    more = [step_parts(x, of, MACHINE).communication_s_C[0] for x in (near, far)]
    assert more[1] > 2 * more[0] or dispatcher is not Dispatcher.TORCH


def test_no_step_of_a_mixture_beats_its_bound() -> None:
    columns = layouts(
        *(
            f"dp=16 ep={ep} zero={zero} acc={n}"
            for ep in (1, 4, 16)
            for zero in (0, 1, 3)
            for n in (1, 16)
        )
    )
    predicted = step_parts(columns, SPARSE, MACHINE).step_s_C
    assert (least_step_s(columns, SPARSE, MACHINE) < predicted).all()


def test_windows_states_and_predictions_take_their_share() -> None:
    columns = layouts("micro=4")
    long = replace(WORKLOAD, sequence_length=16384)

    def seconds(model: Architecture) -> float:
        return float(step_parts(columns, replace(long, model=model), MACHINE).step_s_C[0])

    full, windowed = seconds(GPT), seconds(replace(GPT, window=128))
    half = seconds(replace(GPT, window=128, full_every=2))
    assert half == pytest.approx((full + windowed) / 2, rel=0.01)
    state = StateMixer(key_heads=8, key_head=128, value_heads=16, value_head=128)
    assert seconds(replace(GPT, state=state)) < full
    columns, twice = layouts("micro=4"), replace(GPT, predictions=1)
    one, two = (
        float(step_parts(columns, replace(WORKLOAD, model=m), MACHINE).ideal_s_C[0])
        for m in (GPT, twice)
    )
    logits = 6 * 4 * WORKLOAD.sequence_length * GPT.hidden * GPT.vocabulary
    assert two - one == pytest.approx(logits / 100e12, rel=0.01)
