"""A model as vLLM reads it: options, ``config.json``, and a tokenizer for what wants one.

Weights are random, so that nothing else is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoconf_launch.core import Precision, RawConfig

from .. import EngineRun

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


def why_no_model(family: str) -> str:
    """Why vLLM has no model of a family, as a sentence; empty where it has."""
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
    """Keys and values of so many whole samples on a rank, in blocks of the CPU's size."""
    model, layout = _section(run.base), run.task.layout
    heads = model["num_attention_heads"]
    groups = max(1.0, (model.get("num_query_groups") or heads) / layout.tensor_parallel)
    width = 2.0 * groups * (model.get("kv_channels") or model["hidden_size"] // heads)
    blocks = 1 + samples * math.ceil((run.task.input_len + run.task.output_len) / _BLOCK_TOKENS)
    layers = math.ceil(model["num_layers"] / layout.pipeline_parallel)
    return float(layers * width * blocks * _BLOCK_TOKENS * run.task.precision.value_bytes)


def tokenizer_documents(vocabulary: int) -> dict[str, dict[str, Any]]:
    """Files of a tokenizer, by name: each token is a word, its number.

    So that a text of so many random words has as many tokens.
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
    """The model's shape, in a recipe or a file of NeMo 1.0."""
    where = ("model", "config") if ("model", "config") in base else ("model",)
    found: dict[str, Any] = base.get(where)
    return found


COMMAND = "vllm"
TYPE_OPTIONS = {
    Precision.FP32: {"dtype": "float32"},
    Precision.FP16: {"dtype": "float16"},
    Precision.BF16: {"dtype": "bfloat16"},
    Precision.FP8: {"dtype": "bfloat16", "quantization": "fp8"},
}


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
    """The same as words of a command; what is False is left away."""
    words: list[str] = []
    for name, value in options.items():
        if value is not False:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    return tuple(words)
