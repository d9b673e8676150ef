from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost.step import step_parts
from autoconf_launch.core import Framework, Software, States, Workload
from autoconf_launch.tuning_spaces import machine, named_model

from ..builders import layouts

H100 = machine("H100-SXM-80GB")
LLAMA = Workload(model=named_model("llama3-8b"), sequence_length=4096)


def step_s(columns: str, **software: Any) -> float:
    work = replace(LLAMA, software=Software(**software))
    return float(step_parts(layouts(columns), work, H100).step_s_C[0])


def test_balanced_stages_take_layers_from_the_stage_with_the_head() -> None:
    """Llama's head is as long as three layers, so that 8 even stages wait for the last one."""
    deep = "dp=1 pp=8 acc=64"
    assert step_s(deep, balanced_stages=True) < 0.9 * step_s(deep)
    assert step_s("dp=8 acc=64", balanced_stages=True) == step_s("dp=8 acc=64")


def test_balanced_stages_are_never_slower_than_even_ones() -> None:
    for stages in (2, 4, 8, 16, 32):
        deep = f"dp=1 pp={stages} acc=64"
        assert step_s(deep, balanced_stages=True) <= step_s(deep) * 1.0001


def test_a_code_that_stops_early_repeats_all_but_the_last_product() -> None:
    full = "dp=8 zero=3 recompute=full micro=2"
    early, whole = (
        step_parts(
            layouts(full),
            replace(LLAMA, software=Software(framework=Framework.FSDP, stops_early=stops)),
            H100,
        ).recompute_s_C[0]
        for stops in (True, False)
    )
    assert 0.6 < early / whole < 0.9


def test_fsdp_gathers_once_a_step_in_a_pipeline() -> None:
    """Twice the micro-batches send twice as much only outside of pipelines."""

    def sent_s(columns: str) -> float:
        work = replace(LLAMA, software=Software(framework=Framework.FSDP))
        parts = step_parts(layouts(columns), work, replace(H100, gpus_per_node=1))
        return float(parts.communication_s_C[0])

    assert sent_s("dp=16 zero=3 acc=16") > 1.9 * sent_s("dp=16 zero=3 acc=8")
    assert sent_s("dp=16 pp=4 zero=3 acc=16") < 1.6 * sent_s("dp=16 pp=4 zero=3 acc=8")


def test_a_host_that_waits_for_sends_slows_only_pipelines_over_several_nodes() -> None:
    habits = {"crossing_s": 0.01}
    for near in ("tp=2 pp=4", "tp=2 dp=8", "pp=16"):
        assert step_s(f"{near} acc=16", **habits) == pytest.approx(step_s(f"{near} acc=16"))
    assert step_s("tp=2 pp=8 acc=16", **habits) > 2.0 * step_s("tp=2 pp=8 acc=16")


def test_norms_of_several_kernels_cost_more_in_gated_models_only() -> None:
    eager: dict[str, Any] = {"framework": Framework.FSDP, "plain_torch": True}
    assert step_s("dp=8 micro=4", separate_norms=True, **eager) > step_s("dp=8 micro=4", **eager)
    gpt = replace(LLAMA, model=named_model("gpt2-xl"), sequence_length=1024)
    both = [
        step_parts(
            layouts("dp=8 micro=4"),
            replace(gpt, software=Software(separate_norms=apart, **eager)),
            H100,
        ).step_s_C
        for apart in (True, False)
    ]
    assert np.array_equal(both[0], both[1])


def test_states_in_16_bits_halve_the_traffic_of_an_update() -> None:
    wide, narrow = (
        step_parts(layouts("dp=1"), replace(LLAMA, states=states), H100).update_s_C[0]
        for states in (States.BF16_MASTER, States.BF16)
    )
    start = H100.physics.step_s
    assert (narrow - start) / (wide - start) == pytest.approx(0.5)
