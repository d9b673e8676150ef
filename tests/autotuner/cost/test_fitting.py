from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import NodeLimits, Proposal, Verdict, remedies, verdict
from autoconf_launch.core import Framework, Layout, Offload, Software, Workload
from autoconf_launch.tuning_spaces import named_model

GB = 2**30
LLAMA = named_model("llama3.1-8b")
WORKLOAD = Workload(model=LLAMA, sequence_length=8192)
ROOMY = NodeLimits(device_bytes=80 * GB, gpus=8)


def ask(**layout: Any) -> Proposal:
    return Proposal(layout=Layout(data_parallel=8, **layout), workload=WORKLOAD)


@pytest.mark.parametrize(
    ("needed", "expected"), [(72, Verdict.YES), (78, Verdict.MARGINAL), (85, Verdict.NO)]
)
def test_the_band_decides_what_is_certain(needed: int, expected: Verdict) -> None:
    assert verdict(needed * GB, 80 * GB) is expected


@given(st.floats(1, 1e15), st.floats(1, 1e15), st.floats(1, 10))
def test_more_memory_never_makes_the_verdict_worse(
    needed: float, limit: float, factor: float
) -> None:
    order = (Verdict.NO, Verdict.MARGINAL, Verdict.YES)
    more = order.index(verdict(needed, limit * factor))
    assert more >= order.index(verdict(needed, limit))


def test_remedies_fit_keep_the_batch_and_stand_single_and_fastest_first() -> None:
    found = remedies(ask(micro_batch=8, zero_stage=3), ROOMY)
    assert found
    assert {len(remedy.changes) for remedy in found} == {1}
    start = ask(micro_batch=8)
    for remedy in remedies(start, ROOMY):
        assert remedy.verdict is not Verdict.NO
        assert remedy.proposal.layout.global_batch == start.layout.global_batch
        assert remedy.proposal.layout.world_size == 8
    times = iter(range(100, 0, -1))

    def seconds(proposals: Any) -> list[float]:
        return [float(next(times)) for _ in proposals]

    found = remedies(ask(micro_batch=8), ROOMY, seconds)
    assert [remedy.step_s for remedy in found] == sorted(remedy.step_s or 0 for remedy in found)


@pytest.mark.parametrize("framework", [Framework.FSDP, Framework.DEEPSPEED])
@pytest.mark.parametrize("size_gb", [40, 80])
@pytest.mark.parametrize("start", [ask(zero_stage=0), ask(micro_batch=4), ask(micro_batch=32)])
def test_trainers_that_shard_by_a_setting_are_offered_zero_3(
    framework: Framework, size_gb: int, start: Proposal
) -> None:
    workload = replace(WORKLOAD, software=Software(framework=framework))
    limits = replace(ROOMY, device_bytes=size_gb * GB)
    found = remedies(replace(start, workload=workload), limits)
    sharded = [one for one in found if one.proposal.layout.mesh == start.layout.mesh]
    assert any("zero=3" in one.changes for one in sharded)


def test_remedies_end_at_a_node_or_where_nothing_helps() -> None:
    found = remedies(ask(micro_batch=8), NodeLimits(device_bytes=80 * GB, gpus=2))
    assert all(remedy.proposal.layout.tensor_parallel <= 2 for remedy in found)
    large = replace(WORKLOAD, model=named_model("gpt3-1t"))
    assert remedies(replace(ask(), workload=large), NodeLimits(device_bytes=16 * GB, gpus=8)) == ()


def test_offload_is_proposed_where_the_host_has_room_and_taken_back_where_not() -> None:
    # 8 B weights of 16 bytes and more: 120 GiB.
    tight = NodeLimits(device_bytes=24 * GB, gpus=8, host_bytes=64 * GB)
    start = ask(micro_batch=1, zero_stage=3)
    unknown = remedies(start, replace(tight, host_bytes=None))
    assert any(remedy.host_bytes for remedy in unknown)
    assert not any(remedy.host_bytes for remedy in remedies(start, tight))
    start = ask(zero_stage=3, offload=Offload.OPTIMIZER)
    limits = replace(ROOMY, host_bytes=1.0 * GB)
    assert remedies(start, limits)[0].changes == ("offload=none",)
