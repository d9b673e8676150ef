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


def test_the_flag_is_found_wherever_it_is(run: Run) -> None:
    assert run("plan", *A100, "--inference", "--json").document["fit"] > 50


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


def test_encoders_with_decoders_and_experts_and_latents_are_ranked(plan: Run) -> None:
    for model in ("t5-11b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-next-80b-a3b"):
        words = ("--cluster", "8xH100", "--model", model, "--input-len", "256")
        answer = plan(*words, "--output-len", "32")
        assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tp", "3"), "--tp=3 must divide the 32 attention heads; valid: 1 2 4 8 16 32"),
        (("--pp", "1,5"), "--pp=5 must divide the 32 layers"),
        (("--tp", "8", "--pp", "4"), "--tp 8 x --pp 4 needs 32 GPUs, but --cluster has 8"),
        (("--engine", "vlm"), "'vlm' is not a known engine; did you mean 'vllm'"),
        (("--precision", "fp8"), "A100-SXM-80GB does not compute in fp8"),
        (("--max-latency-ms", "0"), "'0' must be milliseconds above 0"),
        (("--batch", "0"), "'0' must be a whole number from 1"),
        (("--global-batch", "8"), "Unknown flag --global-batch"),
    ],
)
def test_wrong_sizes_are_one_sentence(words: tuple[str, ...], says: str, plan: Run) -> None:
    answer = plan(*A100, *words)
    assert (answer.code, answer.is_one_line) == (2, True)
    assert says in answer.err


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("bert-large", "bert-large is an encoder and generates no text"),
        ("gpt2", "gpt2 has 1,024 positions, but 2,048 tokens are read and 128 written"),
    ],
)
def test_models_that_generate_no_such_text_are_refused(model: str, says: str, plan: Run) -> None:
    answer = plan(*A100[:2], "--model", model, *SERVING[2:])
    assert (answer.code, answer.is_one_line) == (2, True)
    assert says in answer.err


def test_a_bound_that_no_point_meets_has_the_nearest_one(plan: Run) -> None:
    answer = plan(*A100, "--max-latency-ms", "100")
    assert answer.code == 3
    assert re.search(
        r"no point answers within 100 ms; the nearest one is tp 8, pp 1, batch 1 with \d+ ms",
        answer.err,
    )
    assert "over the bound" in answer.out


def test_a_model_that_does_not_fit_says_what_to_do(plan: Run) -> None:
    answer = plan("--cluster", "1xA100", "--model", "llama3.1-405b", *SERVING[2:])
    assert answer.code == 3
    assert "fits in 71.1 GiB of a GPU; use more or larger GPUs" in answer.err
    limited = ("--model", "llama3.1-8b", "--memory-limit", "2GB")
    answer = plan("--cluster", "1xA100", *limited, *SERVING[2:])
    assert "of a GPU; use a larger --memory-limit, or a smaller --headroom" in answer.err


def test_one_copy_on_one_gpu_is_singular(plan: Run) -> None:
    answer = plan("--cluster", "1xL4", *SERVING, "--batch", "1")
    assert "1 point considered" in answer.out
    assert "; 1 copy on 1 GPU writes" in answer.out


def test_unequal_nodes_are_refused(plan: Run) -> None:
    answer = plan("--cluster", "1x8xA100+1x8xH100", *SERVING)
    assert (answer.code, answer.is_one_line) == (2, True)
    assert "equal nodes" in answer.err
