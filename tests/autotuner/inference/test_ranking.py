import math
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.inference import (
    InferenceQuestion,
    engine_habits,
    priced_points,
    rank_points,
    why_no_generation,
    why_not_degrees,
)
from autoconf_launch.tuning_spaces import machine

from .conftest import generation

VLLM, NATIVE = engine_habits("vllm"), engine_habits("native")
GIB = 2**30


def question(model: str = "llama3.1-8b", world: int = 8) -> InferenceQuestion:
    return InferenceQuestion(
        generation=generation(model, 512, 64),
        machine=machine("A100-SXM-80GB"),
        engine=VLLM,
        world=world,
        limit_bytes=72 * GIB,
    )


def test_points_are_ranked_by_throughput_per_gpu_and_fit() -> None:
    found = rank_points(question())
    speed = [point.samples_per_s_per_gpu for point in found.best]
    assert speed == sorted(speed, reverse=True)
    assert len(found.best) == found.fit == found.within <= found.considered
    assert all(point.peak_bytes <= 72 * GIB and point.gpus <= 8 for point in found.best)
    assert {point.batch for point in found.best} >= {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
    point = rank_points(question()).best[3]
    degrees = (point.tensor_parallel, point.pipeline_parallel, point.batch)
    assert priced_points(question(), [degrees, (1, 1, 1)])[0] == point


def test_the_bound_chooses_the_largest_batch_within_it_or_the_quickest_points() -> None:
    found = rank_points(replace(question(), max_latency_s=0.01))
    latency = [point.latency_s for point in found.best]
    assert (found.within, latency) == (0, sorted(latency))
    bound = replace(question(world=1), max_latency_s=2.0)
    best = rank_points(bound).best[0]
    (after,) = priced_points(bound, [(1, 1, best.batch + 1)])
    assert best.latency_s <= 2.0 < after.latency_s


@pytest.mark.parametrize(
    ("model", "tensor", "pipeline", "says"),
    [
        ("llama3.1-8b", 3, 1, "tp=3 must divide the 32 attention heads; valid: 1 2 4 8 16 32."),
        ("llama3.1-8b", 1, 3, "pp=3 must divide the 32 layers; valid: 1 2 4 8 16 32."),
        ("t5-3b", 1, 5, "pp=5 must divide the 24 layers; valid: 1 2 3 4 6 8 12 24."),
        ("qwen3-30b-a3b", 32, 1, ""),
        ("deepseek-v2-lite", 16, 3, ""),
    ],
)
def test_degrees_must_divide_heads_and_layers(
    model: str, tensor: int, pipeline: int, says: str
) -> None:
    assert (why_not_degrees(tensor, pipeline, generation(model), VLLM) or "") == says


def test_answers_must_fit_positions_and_heads() -> None:
    assert why_not_degrees(16, 1, generation(), VLLM) is None
    why = why_not_degrees(16, 1, generation(), NATIVE)
    assert why == "tp=16 must divide the 8 key-value heads; valid: 1 2 4 8."
    assert why_no_generation(generation("gpt2", 1000, 24)) is None
    assert "1,024 positions" in str(why_no_generation(generation("gpt2", 1000, 25)))
    assert why_no_generation(generation("llama3.1-8b", 1 << 20, 25)) is None
    assert "is an encoder" in str(why_no_generation(generation("bert-base")))


@pytest.mark.parametrize(
    "model", ["qwen3-next-80b-a3b", "llama4-scout", "gpt-oss-120b", "deepseek-v3", "mt5-xl"]
)
def test_experts_latents_states_windows_and_encoders_have_numbers(model: str) -> None:
    (point,) = priced_points(question(model), [(8, 1, 4)])
    assert all(math.isfinite(value) for value in (point.latency_s, point.peak_bytes))
