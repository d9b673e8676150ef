from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import CPU_PHYSICS, Accelerator, CollectiveRate, Link, Machine
from autoconf_launch.autotuner.inference import ENGINE_HABITS, engine_habits, estimate_generation
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import Candidate, ConfigError, Layout, Precision
from autoconf_launch.tuning_spaces import machine, named_model

from ..builders import layout_of
from .conftest import columns, estimates, generation

MODELS = ("llama3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "t5-3b", "qwen3-0.6b")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", sorted(ENGINE_HABITS))
@given(tensor=st.sampled_from((1, 2, 4)), batch=st.integers(1, 100))
@settings(max_examples=15, deadline=None)
def test_a_larger_batch_is_slower_and_has_more_throughput(
    model: str, engine: str, tensor: int, batch: int
) -> None:
    points = [(tensor, 1, batch), (tensor, 1, 2 * batch)]
    table = estimates(points, generation(model), engine=engine)
    for slower in (table.ttft_s_C, table.token_s_C, table.latency_s_C):
        assert slower[0] <= slower[1] * (1 + 1e-9)
    assert table.samples_per_s_C[0] <= table.samples_per_s_C[1] * 1.02


@given(read=st.integers(1, 4000), written=st.integers(1, 500))
@settings(max_examples=25, deadline=None)
def test_longer_prompts_and_answers_take_longer(read: int, written: int) -> None:
    table = estimates([(1, 1, 4)], generation(read=read, written=written))
    longer = estimates([(1, 1, 4)], generation(read=2 * read, written=written + 1))
    assert table.ttft_s_C[0] < longer.ttft_s_C[0]
    assert table.token_s_C[0] < longer.token_s_C[0]
    assert table.latency_s_C[0] < longer.latency_s_C[0]


def test_ranks_and_stages_share_reads_and_engines_launch_at_their_cost() -> None:
    table = estimates([(1, 1, 1), (8, 1, 1)], generation("llama3.1-70b"), gpu="H100-SXM-80GB")
    assert 5.0 < table.token_s_C[0] / table.token_s_C[1] < 8.0
    table = estimates([(1, 1, 1)])
    assert table.token_s_C[0] > 15e9 / 2.039e12
    one, many = estimates([(1, 1, 1), (1, 1, 64)], generation("mixtral-8x7b")).token_s_C
    assert many > 2.5 * one
    model = named_model("llama3.1-8b")
    asked = generation(read=30_000)
    narrow = replace(asked, model=replace(model, window=1024))
    assert estimates([(1, 1, 8)], narrow).token_s_C < 0.5 * estimates([(1, 1, 8)], asked).token_s_C
    one, four = estimates([(1, 1, 8), (1, 4, 8)]).token_s_C
    assert one < four < 1.05 * one
    filled = estimates([(1, 1, 8), (1, 4, 8)]).samples_per_s_per_gpu_C
    alone = estimates([(1, 1, 8), (1, 4, 8)], engine="native").samples_per_s_per_gpu_C
    assert 0.85 * filled[0] < filled[1] <= filled[0]
    assert 0.2 * alone[0] < alone[1] < 0.3 * alone[0]
    table = estimates([(1, 1, 1), (2, 2, 4), (8, 1, 64)])
    assert np.sum([seconds for _, seconds in table.parts], axis=0) == pytest.approx(
        table.latency_s_C
    )
    parts = dict(table.parts)
    assert all((seconds >= 0.0).all() for seconds in parts.values())
    assert parts["tensor_parallel"][0] == parts["pipeline"][0] == 0.0
    eager = estimates([(1, 1, 1)], engine="native").token_s_C[0]
    assert eager > 2 * estimates([(1, 1, 1)]).token_s_C[0]
    assert eager == pytest.approx(32 * 0.00088, rel=0.1)
    asked = generation("llama3.1-8b")
    graph = dict(estimates([(8, 1, 1)], asked).parts)["tensor_parallel"][0]
    nccl = dict(estimates([(8, 1, 1)], asked, engine="fastertransformer").parts)
    sums = 2 * 32 * 63
    assert 4e-6 < graph / sums < 3e-5
    assert nccl["tensor_parallel"][0] / sums > 7e-5


CORE = Machine(
    accelerator=Accelerator(
        name="cpu (x86_64)",
        half_flops_per_s=2 * 155e9,
        fp32_flops_per_s=155e9,
        reached=1.0,
        multiprocessors=1,
        memory_bytes=8e9,
        memory_bytes_per_s=12.4e9,
        flash=0.0,
    ),
    gpus_per_node=2,
    link=Link(
        bytes_per_s=3e9,
        rates=((CollectiveRate(ranks=2, latency_s=2.6e-4, link_fraction=1.0),),),
    ),
    node_network_bytes_per_s=3e9,
    physics=CPU_PHYSICS,
)
"""A core of a Xeon (Sapphire Rapids), by a product and a copy there."""


@pytest.mark.parametrize(
    ("batch", "ttft_ms", "token_ms"),
    [(1, 118.6, 48.3), (2, 269.0, 60.3), (4, 429.6, 80.8), (8, 838.8, 106.1)],
)
def test_a_core_takes_what_transformers_took_on_one(
    batch: int, ttft_ms: float, token_ms: float
) -> None:
    """GPT 0.126B, 60 tokens in and 20 out, at real-time priority on a busy machine."""
    asked = replace(generation("gpt3-125m", read=60, written=20), precision=Precision.FP32)
    table = estimate_generation(columns([(1, 1, batch)]), asked, CORE, engine_habits("native"))
    assert 1e3 * table.ttft_s_C[0] == pytest.approx(ttft_ms, rel=0.31)
    assert 1e3 * table.token_s_C[0] == pytest.approx(token_ms, rel=0.15)


def test_on_cores_two_ranks_are_quicker_and_a_send_between_stages_is_short() -> None:
    asked = replace(generation("gpt2", read=60, written=20), precision=Precision.FP32)
    table = estimate_generation(
        columns([(1, 1, 4), (2, 1, 4), (1, 2, 4)]), asked, CORE, engine_habits("native")
    )
    one, shared, staged = table.latency_s_C
    assert 0.5 * one < shared < 0.8 * one
    assert one < staged < 1.05 * one


def test_candidates_and_engines_are_those_of_the_table() -> None:
    layouts = [layout_of("tp=2 pp=2 micro=8"), Layout()]
    table = CandidateTable.from_candidates([Candidate(layout=layout) for layout in layouts])
    given_: dict[str, Any] = {
        "generation": generation(),
        "machine": machine("A100"),
        "engine": engine_habits("vllm"),
    }
    found = estimate_generation(table, **given_)
    assert found.latency_s_C.tolist() == estimates([(2, 2, 8), (1, 1, 1)]).latency_s_C.tolist()
    with pytest.raises(ConfigError, match="'vlm' is unknown; did you mean 'vllm'"):
        engine_habits("vlm")
