from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import NCCL_BYTES, parameters
from autoconf_launch.autotuner.inference import engine_habits, generation_memory, largest_batches
from autoconf_launch.core import Precision
from autoconf_launch.tuning_spaces import named_model

from .conftest import Point, columns, generation

VLLM, NATIVE = engine_habits("vllm"), engine_habits("native")


def part(name: str, point: Point, model: str = "llama3.1-8b", read: int = 512) -> float:
    found = generation_memory(columns([point]), generation(model, read), VLLM)[name]
    return float(np.max(found))


def test_weights_cache_and_buffers_take_their_bytes() -> None:
    assert part("weights", (1, 1, 1)) == 2 * parameters(named_model("llama3.1-8b"))
    eight = replace(generation(), precision=Precision.FP8)
    found = float(generation_memory(columns([(1, 1, 1)]), eight, VLLM)["weights"].max())
    assert 0.5 < found / part("weights", (1, 1, 1)) < 0.6
    asked = generation("llama3.1-70b")
    assert largest_batches(columns([(1, 1, 1)]), asked, VLLM, 80 * 2**30).tolist() == [0]
    # Llama 3.1 8B: 131,072 bytes a token (2 x 32 layers x 8 heads x 128 x 2 bytes).
    assert part("cache", (1, 1, 3)) == 131_072 * 3 * (512 + 64)
    # DeepSeek-V2 Lite: 27 layers of 512 + 64 numbers.
    each = 27 * 576 * 2 * (512 + 64)
    assert part("cache", (1, 1, 1), "deepseek-v2-lite") == each
    assert part("cache", (4, 1, 1), "deepseek-v2-lite") == each
    assert part("cache", (16, 1, 1)) == part("cache", (8, 1, 1)) == part("cache", (1, 1, 1)) / 8
    # GPT-OSS: every second layer looks back over 128 tokens.
    long, short = part("cache", (1, 1, 1), "gpt-oss-20b", 8128), 12 * 128 + 12 * 8192
    assert long == pytest.approx(short * 2 * 8 * 64 * 2)
    assert part("cache", (1, 4, 2)) == part("cache", (1, 1, 2))
    on_cpu = generation_memory(columns([(2, 1, 1)]), generation(), NATIVE, on_cpu=True)
    assert float(on_cpu["engine"].max()) == float(on_cpu["communication"].max()) == 0.0
    asked = generation("gpt2", read=60, written=20)
    one, two = (
        generation_memory(columns([(1, pp, 8)]), asked, NATIVE)["communication"].item()
        for pp in (1, 2)
    )
    assert two - one - NCCL_BYTES == 2 * 8 * 60 * 768 * 2


@pytest.mark.parametrize("model", ["llama3.1-8b", "mixtral-8x7b", "gpt3-20b", "t5-3b"])
@pytest.mark.parametrize("degrees", [(2, 1), (1, 2), (2, 2)])
def test_ranks_share_weights_and_cache(model: str, degrees: tuple[int, int]) -> None:
    tensor, pipeline = degrees
    share = part("weights", (tensor, pipeline, 1), model) / part("weights", (1, 1, 1), model)
    assert 1.0 / (tensor * pipeline) <= share < 1.2 / (tensor * pipeline)
    whole = generation_memory(columns([(1, 1, 4)]), generation(model), NATIVE)["cache"]
    shared = generation_memory(columns([(*degrees, 4)]), generation(model), NATIVE)["cache"]
    assert shared * tensor * pipeline == pytest.approx(whole)


@given(
    tensor=st.sampled_from((1, 2, 4, 8)),
    pipeline=st.sampled_from((1, 2, 4)),
    batch=st.integers(1, 500),
    model=st.sampled_from(("llama3.1-8b", "mixtral-8x7b", "gpt-oss-20b", "gpt3-5b")),
)
@settings(max_examples=40, deadline=None)
def test_memory_grows_with_the_batch_and_falls_with_ranks(
    tensor: int, pipeline: int, batch: int, model: str
) -> None:
    points = [
        (tensor, pipeline, batch),
        (tensor, pipeline, batch + 1),
        (2 * tensor, pipeline, batch),
    ]
    peak_C = generation_memory(columns(points), generation(model), NATIVE, on_cpu=True).peak_C
    assert peak_C[0] < peak_C[1]
    assert peak_C[2] < peak_C[0]


@given(tensor=st.sampled_from((1, 2, 4)), limit=st.integers(20, 200))
@settings(max_examples=25, deadline=None)
def test_the_largest_batch_fits_and_the_next_one_does_not(tensor: int, limit: int) -> None:
    limit_bytes = limit * 2**30
    point = columns([(tensor, 1, 1)])
    (largest,) = largest_batches(point, generation(), VLLM, limit_bytes).tolist()
    after = columns([(tensor, 1, largest), (tensor, 1, largest + 1)])
    peak_C = generation_memory(after, generation(), VLLM).peak_C
    assert peak_C[0] <= limit_bytes < peak_C[1]
