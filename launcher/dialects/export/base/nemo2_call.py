"""A base configuration as a recipe of NeMo 2.0: Python that makes it. Not: its launch.

Built by nemo_toolkit 2.7.3 with NeMo-Run 0.11.1 and megatron-core 0.16.1 (PyPI). 2.7 is the last
one with ``nemo.collections.llm``: nemo_toolkit 3.0.0 has no language models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import RawConfig

from ..page import Exported, comments
from .split_rules import groups_told, splits_sequence

_CLASSES = {
    "gpt3": ("GPTModel", "GPTConfig"),
    "llama": ("LlamaModel", "LlamaConfig"),
    "mixtral": ("MixtralModel", "MixtralConfig"),
    "mistral": ("MistralModel", "MistralConfig7B"),
    "gemma": ("GemmaModel", "GemmaConfig"),
    "nemotron": ("NemotronModel", "NemotronConfig"),
    "qwen": ("Qwen2Model", "Qwen2Config"),
    "qwen2": ("Qwen2Model", "Qwen2Config"),
    "starcoder": ("Starcoder2Model", "Starcoder2Config"),
    "baichuan2": ("Baichuan2Model", "Baichuan2Config"),
    "chatglm": ("ChatGLMModel", "ChatGLMConfig"),
    "bert": ("BertModel", "MegatronBertConfig"),
    "t5": ("T5Model", "T5Config"),
    "mt5": ("T5Model", "T5Config"),
}
_OTHERS = _CLASSES["llama"]
_OWN_VOCABULARY = frozenset({"qwen", "qwen2"})
_PADDED_TO = 128
_DATA = {"bert": "BERTMockDataModule", "t5": "T5MockDataModule", "mt5": "T5MockDataModule"}
_DEFAULT_DATA = "MockDataModule"
_TEXT = """\
# for nemo_toolkit 2.x up to 2.7 (3.0 has no nemo.collections.llm); the data is made up
import nemo_run as run
import torch
from megatron.core.optimizer import OptimizerConfig
from nemo import lightning as nl
from nemo.collections import llm
{tokenizer}from nemo.collections.llm.recipes.log.default import default_log
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_mixed
from nemo.lightning.pytorch.optim import {scheduler}, MegatronOptimizerModule

recipe = {recipe}

if __name__ == "__main__":
    run.run(recipe)
"""
_TOKENIZER = "from nemo.collections.common.tokenizers.null_tokenizer import NullTokenizer\n"


class _Word(str):
    """Code that stands without quotes."""

    __slots__ = ()


def nemo2(base: Pretraining, document: RawConfig) -> Exported:
    """A script that makes ``recipe`` and runs it with NeMo-Run on made-up data."""
    family = base.family.name
    left_out = groups_told(base)
    if family not in _CLASSES:
        left_out += (
            f"the family {family}: NeMo 2.0 has no class of this name, Llama's stands here",
        )
    model, config = _CLASSES.get(family, _OTHERS)
    scheduler = "CosineAnnealingScheduler"
    if not base.schedule.is_cosine:
        scheduler = "WarmupAnnealingScheduler"
    parts = {
        "model": _config(f"llm.{model}", {"config": _config(f"llm.{config}", _model(base))}),
        "trainer": _config("nl.Trainer", _trainer(base, document)),
        "data": _config(f"llm.{_DATA.get(family, _DEFAULT_DATA)}", _data(base)),
        "log": _Word(f"default_log(name={json.dumps(base.name)})"),
        "optim": _config(
            "MegatronOptimizerModule",
            {
                "config": _config("OptimizerConfig", _optimizer(base)),
                "lr_scheduler": _config(scheduler, _schedule(base)),
            },
        ),
        "resume": None,
    }
    recipe = _call("run.Partial", "llm.pretrain", parts)
    tokenizer = "" if base.model.vocabulary is None else _TOKENIZER
    text = _TEXT.format(scheduler=scheduler, recipe=recipe, tokenizer=tokenizer)
    return Exported(text=comments(left_out) + text, left_out=left_out)


def _config(kind: str, fields: Mapping[str, Any]) -> _Word:
    return _call("run.Config", kind, fields)


def _call(function: str, first: str, fields: Mapping[str, Any]) -> _Word:
    """Each argument on a line of its own."""
    lines = [first, *(f"{name}={_spelled(value)}" for name, value in fields.items())]
    inside = "".join(f"{line},\n" for line in lines)
    return _Word(f"{function}(\n{indent(inside, '    ')})")


def _spelled(value: Any) -> str:
    if isinstance(value, _Word):
        return value
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _model(base: Pretraining) -> dict[str, Any]:
    """Of the model's kind, too: a class's defaults are those of one of its sizes."""
    model = base.model
    fields: dict[str, Any] = {"num_layers": model.layers}
    if model.decoder_sequence is not None:
        fields["encoder_num_layers"] = model.layers
    fields |= {
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "num_query_groups": model.groups,
        "kv_channels": model.head,
        "gated_linear_unit": model.gated,
        "add_bias_linear": model.biases,
        "share_embeddings_and_output_weights": model.tied,
        "position_embedding_type": "learned_absolute" if model.learned_positions else "rope",
        "init_method_std": model.init_std,
        "seq_length": model.sequence,
    }
    if model.decoder_sequence is not None:
        fields |= {
            "seq_length_dec": model.decoder_sequence,
            "max_position_embeddings": model.sequence,
        }
    if model.experts:
        fields |= {"num_moe_experts": model.experts, "moe_router_topk": model.experts_per_token}
    return fields | _vocabulary(base)


def _vocabulary(base: Pretraining) -> dict[str, Any]:
    """The tokenizer says it, padded; Qwen2's class and ChatGLM's have their own else."""
    multiple, vocabulary = _PADDED_TO * base.split.tensor, base.model.vocabulary
    fields = {"make_vocab_size_divisible_by": _PADDED_TO}
    if base.family.name in _OWN_VOCABULARY and vocabulary is not None:
        fields["vocab_size"] = -(-vocabulary // multiple) * multiple
    return fields


def _trainer(base: Pretraining, document: RawConfig) -> dict[str, Any]:
    longest = document.get(("trainer", "max_time"))
    return {
        "accelerator": "gpu",
        "devices": base.split.gpus_per_node,
        "num_nodes": base.split.nodes,
        "max_steps": base.schedule.steps,
        **({} if longest is None else {"max_time": longest}),
        "log_every_n_steps": 1,
        "use_distributed_sampler": False,
        "plugins": _Word("bf16_mixed()"),
        "strategy": _config("nl.MegatronStrategy", _strategy(base)),
    }


def _strategy(base: Pretraining) -> dict[str, Any]:
    split = base.split
    return {
        "tensor_model_parallel_size": split.tensor,
        "pipeline_model_parallel_size": split.pipeline,
        "pipeline_dtype": _Word("torch.bfloat16"),
        "virtual_pipeline_model_parallel_size": split.virtual,
        "context_parallel_size": split.context,
        "expert_model_parallel_size": split.expert,
        "sequence_parallel": splits_sequence(base),
    }


def _data(base: Pretraining) -> dict[str, Any]:
    fields: dict[str, Any] = {"seq_length": base.model.sequence}
    if base.model.decoder_sequence is not None:
        fields["seq_length_dec"] = base.model.decoder_sequence
    fields |= {
        "global_batch_size": base.split.global_batch,
        "micro_batch_size": base.split.micro_batch,
    }
    vocabulary = base.model.vocabulary
    if vocabulary is not None:  # the tokenizer adds one token, the end of a document
        fields["tokenizer"] = _config("NullTokenizer", {"vocab_size": vocabulary - 1})
    return fields


def _optimizer(base: Pretraining) -> dict[str, Any]:
    schedule = base.schedule
    return {
        "optimizer": "adam",
        "lr": schedule.learning_rate,
        "weight_decay": schedule.weight_decay,
        "adam_beta1": schedule.betas[0],
        "adam_beta2": schedule.betas[1],
        "adam_eps": schedule.epsilon,
        "clip_grad": schedule.clip,
        "bf16": True,
        "use_distributed_optimizer": True,
    }


def _schedule(base: Pretraining) -> dict[str, Any]:
    schedule = base.schedule
    fields: dict[str, Any] = {
        "max_steps": schedule.steps,
        "warmup_steps": schedule.warmup_steps,
        "min_lr": schedule.least_rate,
    }
    if schedule.is_cosine:
        fields["constant_steps"] = schedule.constant_steps
    return fields
