"""The words that vLLM is given, and what it wrote when it was run (``tests/data/vllm``)."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import Measurement
from autoconf_launch.core import DECODE, PREFILL, GenerationTask, Layout, Precision, RawConfig
from autoconf_launch.nemo.inference_search import EngineRun, VllmEngine
from autoconf_launch.nemo.inference_search.engines import LoadTestingEngine
from autoconf_launch.nemo.inference_search.vllm_engine import (
    cache_bytes,
    tokenizer_documents,
)

RECORDED = Path(__file__).parents[2] / "data" / "vllm"
SHAPE = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 256,
    "data": {"seq_length": 128},
}


def base(family: str = "gpt3", **shape: int) -> RawConfig:
    model = SHAPE | shape
    return RawConfig({"autoconf": {"family": family, "vocab_size": 10112}, "model": model})


@pytest.fixture
def run(tmp_path: Path) -> EngineRun:
    layout = Layout(tensor_parallel=2, micro_batch=3)
    task = GenerationTask(layout=layout, input_len=16, output_len=8, precision=Precision.FP32)
    return EngineRun(task=task, base=base(), family="gpt3", folder=tmp_path / "run")


def value(words: tuple[str, ...], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_what_a_real_latency_benchmark_wrote_is_read(run: EngineRun) -> None:
    run.folder.mkdir()
    for name in ("latency.json", "first_token.json"):
        shutil.copy(RECORDED / name, run.folder)
    outcome = VllmEngine().read(run)
    assert isinstance(outcome, Measurement)
    written = json.loads((RECORDED / "latency.json").read_text())
    assert outcome.mean_step_s == pytest.approx(written["avg_latency"])
    assert sum(dict(outcome.phases).values()) == pytest.approx(written["avg_latency"])
    first = json.loads((RECORDED / "first_token.json").read_text())
    assert dict(outcome.phases)[PREFILL] == pytest.approx(first["avg_latency"])
    assert dict(outcome.phases)[DECODE] > 0


def test_what_real_load_benchmarks_wrote_is_read(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "throughput.json", tmp_path)
    written: dict[int, Any] = {}
    for count in (2, 1):
        folder = tmp_path / "sweep" / f"BENCH--max_concurrency={count}-num_prompts={8 * count}"
        folder.mkdir(parents=True)
        shutil.copy(RECORDED / f"serve_{count}.json", folder / "run=0.json")
        written[count] = json.loads((folder / "run=0.json").read_text())
    throughput, *served = VllmEngine().read_load(tmp_path)
    whole = json.loads((RECORDED / "throughput.json").read_text())
    assert throughput.tokens_per_s == whole["tokens_per_second"]
    assert throughput.requests_per_s == whole["requests_per_second"]
    assert [one.max_concurrency for one in served] == [1, 2]
    for one, count in zip(served, (1, 2), strict=True):
        fields = written[count]
        assert one.output_tokens_per_s == fields["output_throughput"]
        assert one.ttft_s[2] == pytest.approx(fields["p99_ttft_ms"] / 1e3)
        assert one.token_s[1] == pytest.approx(fields["p90_tpot_ms"] / 1e3)
        assert one.latency_s[0] == pytest.approx(fields["p50_e2el_ms"] / 1e3)
        assert one.reason == ""


def test_a_benchmark_of_another_form_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "throughput.json").write_text('{"requests_per_second": 3.0}')
    (figures,) = VllmEngine().read_load(tmp_path)
    assert figures.tokens_per_s is None
    assert "'tokens_per_second' is None, which is not a number" in figures.reason


def test_a_load_test_serves_up_to_the_batch_at_once(run: EngineRun, tmp_path: Path) -> None:
    engine = VllmEngine()
    assert isinstance(engine, LoadTestingEngine)
    test = engine.load_test(run, tmp_path)
    throughput, sweep = test.commands
    assert throughput[:3] == ("vllm", "bench", "throughput")
    assert "--skip-tokenizer-init" not in throughput
    assert value(throughput, "--num-prompts") == "24"
    assert sweep[:4] == ("vllm", "bench", "sweep", "serve")
    server, client = (shlex.split(value(sweep, flag)) for flag in ("--serve-cmd", "--bench-cmd"))
    assert server[:3] == ["vllm", "serve", str(tmp_path / "model")]
    assert client[:3] == ["vllm", "bench", "serve"]
    assert value(tuple(client), "--metric-percentiles") == "50,90,99"
    assert value(tuple(server), "--tensor-parallel-size") == "2"
    counts = json.loads(test.files[Path(value(sweep, "--bench-params"))])
    assert [one["max_concurrency"] for one in counts] == [1, 2, 3]
    assert tmp_path / "model" / "tokenizer.json" in test.files


def test_beams_have_a_tokenizer_and_their_own_words(run: EngineRun) -> None:
    engine, beams = VllmEngine(), replace(run, beam_width=4)
    assert [path.name for path in engine.files(run)] == ["config.json"]
    assert run.folder / "model" / "tokenizer.json" in engine.files(beams)
    whole, first = engine.commands(beams)
    assert value(whole, "--n") == "4"
    assert "--skip-tokenizer-init" not in whole
    assert (value(whole, "--output-len"), value(first, "--output-len")) == ("8", "1")
    assert "--skip-tokenizer-init" in engine.commands(run)[0]


@pytest.mark.parametrize("family", ["t5", "mt5", "bert"])
def test_families_that_vllm_lacks_are_refused_with_those_it_has(
    family: str, run: EngineRun
) -> None:
    why = VllmEngine().why_not(replace(run, family=family))
    assert why.startswith(f"vLLM has no {family} models; take engine=native, or another family")
    assert "gpt3, llama, mistral, mixtral" in why


def test_experts_of_any_family_are_mixtral_s(run: EngineRun) -> None:
    mixed = replace(run, base=base("llama", num_moe_experts=4, moe_router_topk=2), family="llama")
    (text,) = VllmEngine().files(mixed).values()
    assert json.loads(text)["architectures"] == ["MixtralForCausalLM"]


def test_a_tokenizer_has_a_word_for_each_token() -> None:
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer

    documents = tokenizer_documents(300)
    tokenizer = Tokenizer.from_str(json.dumps(documents["tokenizer.json"]))
    numbers = [7, 299, 7, 0]
    assert tokenizer.encode(tokenizer.decode(numbers)).ids == numbers


def test_the_cache_has_room_for_every_sample_of_a_rank(run: EngineRun) -> None:
    layers, heads, head, size, block = 4, 2, 16, 4, 128
    assert cache_bytes(run, 3) == 2 * layers * heads * head * size * block * (3 + 1)
