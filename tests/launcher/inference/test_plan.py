import re
from pathlib import Path

import pytest

from ..commands.verb import Run
from .conftest import A100, SERVING

GOLDEN = Path(__file__).parent / "golden"
PRICE = ("--usd-per-gpu-hour", "2")


def without_time(text: str) -> str:
    return re.sub(r"in \d+\.\d\d s:", "in … s:", text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("front", ("--max-latency-ms", "2000", "--pareto", *PRICE)),
        ("ranking", ("--tp", "1,2", "--pp", "1,2", "--batch", "1,8,64", *PRICE)),
    ],
)
def test_the_text_is_as_written(name: str, words: tuple[str, ...], plan: Run) -> None:
    answer = plan(*A100, *words)
    assert answer.code == 0
    assert without_time(answer.out) == (GOLDEN / f"plan_{name}.txt").read_text()


def test_no_point_of_the_front_beats_another(plan: Run) -> None:
    front = plan(*A100, "--pareto", "--json").document["front"]
    latency = [point["latency_s"] for point in front]
    speed = [point["tokens_per_s_per_gpu"] for point in front]
    assert latency == sorted(latency)
    assert speed == sorted(speed)
    assert len(set(speed)) == len(speed) > 5


def test_the_recommended_point_is_the_best_one_within_the_bound(plan: Run) -> None:
    found = plan(*A100, "--max-latency-ms", "2000", "--top", "0", "--json").document
    best, rows = found["recommended"], found["best"]
    assert found["within"] == len(rows)
    assert max(row["latency_s"] for row in rows) <= 2.0
    assert best["tokens_per_s_per_gpu"] == max(row["tokens_per_s_per_gpu"] for row in rows)
    assert best["copies"] * best["tensor_parallel"] * best["pipeline_parallel"] <= 8


def test_the_document_has_notes_the_price_and_the_reason_for_an_empty_answer(plan: Run) -> None:
    found = plan(*A100, "--json").document
    assert (found["why_nothing"], found["usd_per_gpu_hour"] > 0) == (None, True)
    assert any("90 % error bands" in note for note in found["notes"])
    late = plan(*A100, "--max-latency-ms", "1", "--json").document
    assert late["recommended"] is None
    assert late["why_nothing"].startswith("no point answers within 1 ms")


def test_without_a_bound_the_quickest_point_near_the_most_throughput_stands_first(
    plan: Run,
) -> None:
    found = plan(*A100, "--top", "0", "--json").document
    first, *others = found["best"]
    most = max(row["tokens_per_s_per_gpu"] for row in others)
    least = most / (1.0 + max(found["ttft_band"], found["token_time_band"]))
    assert found["recommended"] == first
    assert least <= first["tokens_per_s_per_gpu"]
    near = [row for row in others if row["tokens_per_s_per_gpu"] >= first["tokens_per_s_per_gpu"]]
    assert first["latency_s"] < min(row["latency_s"] for row in near)
    assert "It has the lowest latency of the " in plan(*A100).out


def test_a_batch_just_within_the_bound_is_looked_at(plan: Run) -> None:
    words = (*A100, "--tp", "1", "--pp", "1", "--max-latency-ms", "3000", "--json")
    batch = plan(*words).document["recommended"]["batch"]
    over = plan(*A100, "--tp", "1", "--pp", "1", "--batch", str(batch + 1), "--json").document
    assert over["best"][0]["latency_s"] > 3.0


def test_money_follows_from_the_price_and_the_throughput(plan: Run) -> None:
    for row in plan(*A100, *PRICE, "--json").document["best"]:
        assert row["usd_per_million_tokens"] == pytest.approx(
            2.0 / 3600 / row["tokens_per_s_per_gpu"] * 1e6
        )


def test_the_largest_batch_fits_and_the_next_one_does_not(plan: Run, fit: Run) -> None:
    words = (*A100, "--headroom", "0", "--tp", "2", "--pp", "1", "--batch", "1", "--json")
    largest = plan(*words).document["best"][0]["largest_batch"]
    rows = plan(*words[:-2], f"{largest},{largest + 1}", "--json").document
    assert (rows["considered"], rows["fit"]) == (2, 1)
    assert fit(*A100, "--tp", "2", "--batch", str(largest), "--json").document["fits"]


@pytest.mark.parametrize(
    "model", ["t5-11b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-next-80b-a3b"]
)
def test_encoders_with_decoders_and_experts_and_latents_are_ranked(model: str, plan: Run) -> None:
    words = ("--cluster", "8xH100", "--model", model, "--input-len", "256", "--output-len", "32")
    assert plan(*words).code == 0


def test_a_bound_that_no_point_meets_has_the_nearest_one(plan: Run) -> None:
    answer = plan(*A100, "--max-latency-ms", "100")
    nearest = r"no point answers within 100 ms; the nearest one is tp 8, pp 1, batch 1 with \d+ ms"
    assert answer.code == 3
    assert re.search(nearest, answer.err)
    assert "over the bound" in answer.out
    small = plan("--cluster", "1xL4", *SERVING, "--batch", "1").out
    assert "1 point considered" in small
    assert "; 1 copy on 1 GPU writes" in small


def test_a_model_that_does_not_fit_says_what_to_do(run: Run) -> None:
    for more, says in (
        (("llama3.1-405b",), "fits in 71.1 GiB of a GPU; use more or larger GPUs"),
        (
            ("llama3.1-8b", "--memory-limit", "2GB"),
            "of a GPU; use a larger --memory-limit, or a smaller --headroom",
        ),
    ):
        words = ("plan", "--cluster", "1xA100", *SERVING[2:], "--inference", "--model", *more)
        answer = run(*words)
        assert answer.code == 3
        assert says in answer.err
