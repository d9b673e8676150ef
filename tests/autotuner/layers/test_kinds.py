"""Sums over kinds of layers, and what a layer of each kind costs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import (
    RULES,
    LayoutColumns,
    active_parameters,
    estimate,
    forward_flops_per_token,
    memory_bytes,
    parameters,
    trained_share,
)
from autoconf_launch.autotuner.layers import (
    attention_kinds,
    expert_layers,
    kept_values,
    layer_bodies,
    seen_keys,
    state_flops,
    state_heads,
    state_weights,
    token_body,
    uniform_parts,
)
from autoconf_launch.core import (
    Architecture,
    Experts,
    Indexer,
    LayerKind,
    Layout,
    Recompute,
    StateForm,
    StateMixer,
    Workload,
)
from autoconf_launch.tuning_spaces import TRAINERS, machine, named_model

GIB = 2.0**30
H100 = machine("H100-SXM-80GB", gpus_per_node=8)
PLAIN = Architecture(
    name="plain",
    layers=12,
    hidden=1024,
    heads=16,
    kv_heads=4,
    head=64,
    ffn=4096,
    vocabulary=32000,
    gated=True,
    biases=False,
    experts=Experts(count=8, per_token=2, ffn=512),
)
MAMBA = StateMixer(
    key_heads=8, key_head=128, value_heads=64, value_head=64, form=StateForm.MAMBA2, chunk=128
)


def training(model: Architecture, sequence: int = 4096, **more: Any) -> Workload:
    asked = Workload(model=model, sequence_length=sequence, global_batch=64, **more)
    return TRAINERS["nemo"].apply_to(asked)


def step_s(workload: Workload, **degrees: Any) -> float:
    layout = Layout(**{"data_parallel": 8, "accumulation": 8, "zero_stage": 1, **degrees})
    return float(estimate(LayoutColumns.from_layouts([layout]), workload, H100).step_s_C[0])


def peak_gib(workload: Workload, **degrees: Any) -> float:
    layout = Layout(**{"data_parallel": 8, "accumulation": 8, "zero_stage": 1, **degrees})
    return float(memory_bytes(LayoutColumns.from_layouts([layout]), workload).peak_C[0] / GIB)


def test_kinds_that_are_alike_cost_what_equal_layers_do() -> None:
    one = LayerKind(count=5, experts=True)
    cut = replace(PLAIN, kinds=(one, replace(one, count=7)))
    assert parameters(cut) == parameters(PLAIN)
    assert active_parameters(cut) == active_parameters(PLAIN)
    assert expert_layers(cut) == expert_layers(PLAIN) == 12
    assert forward_flops_per_token(training(cut)) == forward_flops_per_token(training(PLAIN))
    degrees = {"tensor_parallel": 2, "data_parallel": 4, "recompute": Recompute.SELECTIVE}
    assert step_s(training(cut), **degrees) == pytest.approx(step_s(training(PLAIN), **degrees))
    assert peak_gib(training(cut), **degrees) == pytest.approx(
        peak_gib(training(PLAIN), **degrees)
    )


def test_a_layer_without_a_part_has_neither_its_weights_nor_its_time() -> None:
    whole = replace(PLAIN, experts=None, layers=2, kinds=(LayerKind(count=2),))
    halves = replace(
        whole, layers=4, kinds=(LayerKind(count=2, ffn=0), LayerKind(count=2, heads=0))
    )
    assert parameters(halves) == parameters(whole)
    assert step_s(training(halves)) == pytest.approx(step_s(training(whole)), rel=0.02)
    assert peak_gib(training(halves)) == pytest.approx(peak_gib(training(whole)), rel=0.01)


@pytest.mark.parametrize(
    ("name", "sequence"), [("nemotron-h-8b", 4096), ("nemotron3-nano", 8192), ("vit-large", 197)]
)
def test_operations_of_a_token_are_about_twice_the_weights_that_it_passes(
    name: str, sequence: int
) -> None:
    flops = forward_flops_per_token(training(named_model(name), sequence))
    assert flops == pytest.approx(2 * active_parameters(named_model(name)), rel=0.07)


def test_a_stream_is_passed_by_its_own_tokens_only() -> None:
    flux = named_model("flux-schnell")
    double, single = uniform_parts(flux)
    assert (double.layers, double.streams, single.layers) == (19, 2, 38)
    assert token_body(flux) == 57 * 12 * 3072**2
    assert sum(layer_bodies(flux)) == (38 + 2 * 19) * 12 * 3072**2


def test_a_text_is_read_by_each_layer_that_crosses_to_it() -> None:
    wan = named_model("wan2.1-t2v-14b")
    alone = replace(wan, cross_tokens=0)
    more = parameters(wan) - parameters(alone)
    assert more == 40 * (4 * 5120**2 + 4 * 5120 + 2 * 5120)
    assert 1.0 < step_s(training(wan, 32760)) / step_s(training(alone, 32760)) < 1.25


@pytest.mark.parametrize("form", StateForm)
def test_a_state_costs_as_much_for_each_token_however_long_the_sequence(form: StateForm) -> None:
    state = replace(MAMBA, form=form, rank=16)
    model = replace(
        PLAIN, layers=4, experts=None, kinds=(LayerKind(count=4, heads=0, ffn=0, state=state),)
    )
    short = step_s(training(model, 4096), micro_batch=4)
    assert step_s(training(model, 16384)) == pytest.approx(short, rel=0.01)
    assert parameters(model) > 4 * state_weights(1024, state) > 0
    assert state_flops(state) > 0
    assert kept_values(state) >= 2 * state.values


def test_windows_and_chosen_keys_end_the_growth_of_attention() -> None:
    windowed = replace(PLAIN, experts=None, window=1024)
    assert seen_keys(windowed, 512) == 512
    assert seen_keys(windowed, 65536) == 1024
    chosen = replace(PLAIN, indexer=Indexer(heads=4, head=64, top=2048))
    assert seen_keys(chosen, 65536) == 2048
    sparse, dense = named_model("deepseek-v3.2"), named_model("deepseek-v3")
    short, long = (
        forward_flops_per_token(training(sparse, n)) / forward_flops_per_token(training(dense, n))
        for n in (2048, 65536)
    )
    assert long < 0.6 < 1.0 < short < 1.03


def test_a_tower_takes_time_and_memory_with_the_images_of_a_sample() -> None:
    model = named_model("qwen2.5-vl-7b")
    text, four, eight, twelve = (
        training(replace(model, front=model.front if n else None), images=n) for n in (0, 4, 8, 12)
    )
    seconds = [step_s(x, zero_stage=3) for x in (text, four, eight, twelve)]
    assert seconds[3] - seconds[2] == pytest.approx(seconds[2] - seconds[1], rel=0.1)
    assert seconds[1] - seconds[0] > 0.8 * (seconds[2] - seconds[1])
    gib = [peak_gib(x, zero_stage=3) for x in (four, eight, twelve)]
    assert gib[2] - gib[1] == pytest.approx(gib[1] - gib[0], rel=0.01)
    pipelined = {"pipeline_parallel": 4, "data_parallel": 2, "accumulation": 32}
    assert step_s(four, **pipelined) > step_s(text, **pipelined)


def test_narrow_tokens_of_experts_make_experts_and_exchanges_smaller() -> None:
    wide = named_model("nemotron3-super")
    assert wide.experts is not None
    full = replace(wide, experts=replace(wide.experts, width=None))
    assert parameters(full) > 3.5 * parameters(wide)
    degrees = {"data_parallel": 64, "expert_parallel": 64, "accumulation": 1}
    narrow_s, full_s = (step_s(training(one), **degrees) for one in (wide, full))
    assert full_s > 1.5 * narrow_s


def test_adapters_are_beside_the_matrices_of_each_kind() -> None:
    share = trained_share(training(named_model("nemotron-h-8b"), lora_rank=16))
    assert 0.001 < share < 0.02


def test_tensor_ranks_share_the_groups_of_a_state() -> None:
    heads = {name: state_heads(named_model(name)) for name in ("nemotron-h-8b", "jamba-1.5-mini")}
    assert heads == {"nemotron-h-8b": 8, "jamba-1.5-mini": 8192}
    assert state_heads(named_model("llama3-8b")) == 0
    rows = LayoutColumns.from_layouts([Layout(tensor_parallel=n) for n in (1, 8, 16)])
    rule = next(one for one in RULES if one.name == "tp_states")
    for name, keeps in (("nemotron-h-8b", [True, True, False]), ("llama3-8b", [True] * 3)):
        assert rule.keep(rows, named_model(name), 4096).tolist() == keeps


def test_shares_of_the_kinds_add_up() -> None:
    for name in ("nemotron3-nano", "jamba-1.5-mini", "gemma3-4b", "qwen3-next", "flux-dev"):
        assert math.isclose(sum(share for share, _ in attention_kinds(named_model(name))), 1.0)
    assert np.all([one.kinds == () for one in uniform_parts(named_model("falcon-h1-7b"))])
