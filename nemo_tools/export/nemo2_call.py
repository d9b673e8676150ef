"""A base configuration as a recipe of NeMo 2.0: Python that makes it, or sets its layout.

Built by nemo_toolkit 2.7.3 with NeMo-Run 0.11.1 and megatron-core 0.16.1 (PyPI). 2.7 is the last
version with ``nemo.collections.llm``: nemo_toolkit 3.0.0 has no language models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

from autoconf_launch.autotuner.sizing import Pretraining
from autoconf_launch.core import KeyPath, Precision, RawConfig, Recompute, dotted_name
from autoconf_launch.launcher.export import (
    NEMO_DEGREES,
    Exported,
    Optimum,
    Page,
    comment_on,
    groups_told,
    splits_sequence,
)

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
# for nemo_toolkit 2.x up to 2.7 (3.0 has no nemo.collections.llm){data}
{imports}

recipe = {recipe}{after}

if __name__ == "__main__":
    run.run(recipe)
"""
_MADE_UP = "; the data is made up"
_PARALLEL = "nemo.lightning.pytorch"
_RECIPES = "nemo.collections.llm.recipes"
_TOKENIZERS = "nemo.collections.common.tokenizers"
IMPORTS: Mapping[str, tuple[str, str]] = {
    "run": ("", "nemo_run"),
    "torch": ("", "torch"),
    "OptimizerConfig": ("megatron.core.optimizer", "OptimizerConfig"),
    "nl": ("nemo", "lightning"),
    "llm": ("nemo.collections", "llm"),
    "AutoTokenizer": (f"{_TOKENIZERS}.huggingface.auto_tokenizer", "AutoTokenizer"),
    "NullTokenizer": (f"{_TOKENIZERS}.null_tokenizer", "NullTokenizer"),
    "SentencePieceTokenizer": (
        f"{_TOKENIZERS}.sentencepiece_tokenizer",
        "SentencePieceTokenizer",
    ),
    "default_log": (f"{_RECIPES}.log.default", "default_log"),
    "tensorboard_logger": (f"{_RECIPES}.log.default", "tensorboard_logger"),
    "bf16_mixed": (f"{_RECIPES}.precision.mixed_precision", "bf16_mixed"),
    "CosineAnnealingScheduler": (f"{_PARALLEL}.optim", "CosineAnnealingScheduler"),
    "WarmupAnnealingScheduler": (f"{_PARALLEL}.optim", "WarmupAnnealingScheduler"),
    "MegatronOptimizerModule": (f"{_PARALLEL}.optim", "MegatronOptimizerModule"),
    "TimingCallback": ("nemo.utils.exp_manager", "TimingCallback"),
}
"""Module and attribute of each first word that a recipe's code has."""
_RECOMPUTE = ("recompute_granularity", "recompute_method", "recompute_num_layers")
_ENDS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
_SENTENCEPIECE = ".model"
_PATHS: KeyPath = ("data", "paths")
_SCHEDULED: KeyPath = ("optim", "lr_scheduler", "max_steps")
_TOKENIZER: KeyPath = ("data", "tokenizer_path")
_STRATEGY = ("trainer", "strategy")
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


@dataclass(frozen=True, slots=True)
class Name:
    """Code that refers to something of a module."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of ``function`` with positional and named arguments: constants, names and calls."""

    function: str
    first: tuple[Name, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


_TIMING = Call(function="run.Config", first=(Name("TimingCallback"),))
"""Writes the step times that a search reads."""


def nemo2(optimum: Optimum) -> Exported:
    """A script that makes ``recipe`` and runs it with NeMo-Run; or assignments of a layout."""
    base, document = optimum.training, optimum.document
    if base is None:
        return _layout_lines(optimum)
    left_out = groups_told(base)
    if base.family.name not in _CLASSES:
        left_out += (
            f"the family {base.family.name}: NeMo 2.0 has no class of this name; exported with "
            "Llama's",
        )
    recipe = recipe_call(base, document)
    words = {"run"} | set(_first_words(recipe))
    imports = "\n".join(_import(word) for word in IMPORTS if word in words)
    after = "".join(
        f"\nrecipe.{dotted_name(path)} = {_constant(value)}" for path, value in set_after(document)
    )
    data = "" if document.get(_PATHS) is not None else _MADE_UP
    text = _TEXT.format(imports=imports, recipe=_as_code(recipe), after=after, data=data)
    return comment_on(text, ".py", left_out)


def recipe_call(base: Pretraining, document: RawConfig) -> Call:
    """The call that makes a recipe: ``run.Partial(llm.pretrain, model=…)``."""
    model, config = _CLASSES.get(base.family.name, _OTHERS)
    kind = "Cosine" if base.schedule.is_cosine else "Warmup"
    schedule = _config(f"{kind}AnnealingScheduler", _schedule(base, document))
    optimizer = _config("OptimizerConfig", _optimizer(base))
    fields = {
        "model": _config(
            f"llm.{model}", {"config": _config(f"llm.{config}", _model(base, document))}
        ),
        "trainer": _config("nl.Trainer", _trainer(base, document)),
        "data": _data_module(base, document),
        "log": _log(base, document),
        "optim": _config(
            "MegatronOptimizerModule", {"config": optimizer, "lr_scheduler": schedule}
        ),
        "resume": None,
    }
    return Call(function="run.Partial", first=(Name("llm.pretrain"),), fields=fields)


def set_after(document: RawConfig) -> Iterator[tuple[KeyPath, Any]]:
    """Settings of a recipe after it is made, as NeMo's own parts have other defaults."""
    path = ("log", "ckpt", "save_last")
    if path in document:
        yield path, document.get(path)


def _first_words(value: Any) -> Iterator[str]:
    if isinstance(value, Name):
        yield value.words.partition(".")[0]
    elif isinstance(value, Call):
        yield value.function.partition(".")[0]
        yield from (
            word for one in (*value.first, *value.fields.values()) for word in _first_words(one)
        )
    elif isinstance(value, list):
        yield from (word for one in value for word in _first_words(one))


def _import(word: str) -> str:
    module, attribute = IMPORTS[word]
    start = f"from {module} import {attribute}" if module else f"import {attribute}"
    return start if attribute == word else f"{start} as {word}"


def _config(kind: str, fields: Mapping[str, Any]) -> Call:
    return Call(function="run.Config", first=(Name(kind),), fields=fields)


def _as_code(value: Any) -> str:
    if isinstance(value, Name):
        return value.words
    if isinstance(value, Call):
        named = (f"{name}={_as_code(one)}" for name, one in value.fields.items())
        lines = [*(one.words for one in value.first), *named]
        inside = "".join(f"{line},\n" for line in lines)
        body = f"\n{indent(inside, '    ')}" if lines else ""
        return f"{value.function}({body})"
    if isinstance(value, list):
        return f"[{', '.join(map(_as_code, value))}]"
    return _constant(value)


def _constant(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value) if isinstance(value, str) and value.isascii() else repr(value)


def _log(base: Pretraining, document: RawConfig) -> Call:
    """The log, with TensorBoard's files in a given folder: a search reads its runs from them."""
    folder = document.get(("log", "log_dir"))
    if folder is None:
        return Call(function="default_log", fields={"name": base.name})
    tensorboard = Call(function="tensorboard_logger", fields={"name": base.name})
    fields = {"dir": folder, "name": base.name, "tensorboard_logger": tensorboard}
    return Call(function="default_log", fields=fields)


def _data_module(base: Pretraining, document: RawConfig) -> Call:
    fields, tokenizer = _data(base), document.get(_TOKENIZER)
    if tokenizer is not None:
        fields["tokenizer"] = tokenizer_call(tokenizer)
    paths = document.get(_PATHS)
    if paths is None:
        return _config(f"llm.{_DATA.get(base.family.name, _DEFAULT_DATA)}", fields)
    return _config("llm.PreTrainingDataModule", {"paths": paths, **fields})


def tokenizer_call(path: str) -> Call:
    """SentencePiece's by its file, else Hugging Face's by its folder."""
    if path.endswith(_SENTENCEPIECE):
        return _config("SentencePieceTokenizer", {"model_path": path})
    return _config("AutoTokenizer", {"pretrained_model_name": path})


def _model(base: Pretraining, document: RawConfig) -> dict[str, Any]:
    """Settings of the model and of its kind: a class has the defaults of one size."""
    model = base.model
    fields: dict[str, Any] = {"num_layers": model.shape.layers}
    if model.decoder_sequence is not None:
        fields["encoder_num_layers"] = model.shape.layers
    fields |= {
        "hidden_size": model.shape.hidden,
        "ffn_hidden_size": model.shape.ffn,
        "num_attention_heads": model.shape.heads,
        "num_query_groups": model.form.groups,
        "kv_channels": model.shape.kv,
        "gated_linear_unit": model.form.gated,
        "add_bias_linear": model.form.biases,
        "share_embeddings_and_output_weights": model.form.tied,
        "position_embedding_type": "learned_absolute" if model.form.learned_positions else "rope",
        "init_method_std": model.init_std,
        "seq_length": model.sequence,
    }
    if model.decoder_sequence is not None:
        fields |= {
            "seq_length_dec": model.decoder_sequence,
            "max_position_embeddings": model.sequence,
        }
    if model.form.experts:
        fields["num_moe_experts"] = model.form.experts
        fields["moe_router_topk"] = model.form.experts_per_token
    config = document.get(("model", "config"), {})
    told = {name: config[name] for name in (*_RECOMPUTE, *_ENDS) if config.get(name) is not None}
    return fields | _vocabulary(base) | told


def _vocabulary(base: Pretraining) -> dict[str, Any]:
    """The tokenizer says it, padded; Qwen2's class and ChatGLM's have their own else."""
    multiple, vocabulary = _PADDED_TO * base.split.layout.tensor_parallel, base.model.vocabulary
    fields = {"make_vocab_size_divisible_by": _PADDED_TO}
    if base.family.name in _OWN_VOCABULARY and vocabulary is not None:
        fields["vocab_size"] = -(-vocabulary // multiple) * multiple
    return fields


def _trainer(base: Pretraining, document: RawConfig) -> dict[str, Any]:
    given = {name: document.get(("trainer", name)) for name in ("max_time", "val_check_interval")}
    timed = {} if document.get(("log", "log_dir")) is None else {"callbacks": [_TIMING]}
    return {
        "accelerator": "gpu",
        "devices": base.split.gpus_per_node,
        "num_nodes": base.split.nodes,
        "max_steps": base.schedule.steps,
        **{name: value for name, value in given.items() if value is not None},
        "log_every_n_steps": 1,
        "use_distributed_sampler": False,
        "plugins": Call(function="bf16_mixed"),
        **timed,
        "strategy": _config("nl.MegatronStrategy", _strategy(base)),
    }


def _strategy(base: Pretraining) -> dict[str, Any]:
    layout = base.split.layout
    return {
        "tensor_model_parallel_size": layout.tensor_parallel,
        "pipeline_model_parallel_size": layout.pipeline_parallel,
        "pipeline_dtype": Name("torch.bfloat16"),
        "virtual_pipeline_model_parallel_size": base.split.virtual,
        "context_parallel_size": layout.context_parallel,
        "expert_model_parallel_size": layout.expert_parallel,
        "sequence_parallel": splits_sequence(base),
    }


def _data(base: Pretraining) -> dict[str, Any]:
    fields: dict[str, Any] = {"seq_length": base.model.sequence}
    if base.model.decoder_sequence is not None:
        fields["seq_length_dec"] = base.model.decoder_sequence
    fields |= {
        "global_batch_size": base.split.global_batch,
        "micro_batch_size": base.split.layout.micro_batch,
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


def _schedule(base: Pretraining, document: RawConfig) -> dict[str, Any]:
    """Schedule of the whole training, even if a run of a search ends before it."""
    schedule = base.schedule
    fields: dict[str, Any] = {
        "max_steps": document.get(_SCHEDULED, schedule.steps),
        "warmup_steps": schedule.warmup_steps,
        "min_lr": schedule.least_rate,
    }
    if schedule.is_cosine:
        fields["constant_steps"] = schedule.constant_steps
    return fields


def _layout_lines(optimum: Optimum) -> Exported:
    """A layout as assignments to ``recipe``, as lines of Python that follow its making."""
    page, layout = Page(optimum), optimum.layout
    page.say(("trainer", "num_nodes"), optimum.nodes)
    page.say(("trainer", "devices"), optimum.ranks_per_node)
    for knob, key in NEMO_DEGREES.items():
        page.say((*_STRATEGY, key), getattr(layout, knob), knob)
    virtual = layout.virtual_pipeline if layout.virtual_pipeline > 1 else None
    page.say((*_STRATEGY, "virtual_pipeline_model_parallel_size"), virtual, "virtual_pipeline")
    page.say((*_STRATEGY, "sequence_parallel"), layout.sequence_parallel, "sequence_parallel")
    distributed = layout.zero_stage > 0
    page.say((*_STRATEGY, "ddp", "use_distributed_optimizer"), distributed, "zero_stage")
    if layout.zero_stage in _SHARDING:
        strategy = _SHARDING[layout.zero_stage]
        page.say((*_STRATEGY, "ddp", "data_parallel_sharding_strategy"), strategy)
    page.say(("data", "micro_batch_size"), layout.micro_batch, "micro_batch")
    page.say(("data", "global_batch_size"), layout.global_batch, "accumulation")
    if layout.recompute is not Recompute.NONE:
        page.say(("model", "config", "recompute_granularity"), layout.recompute.value)
    if layout.recompute is Recompute.FULL:
        layers = page.layers_of_block()
        page.say(("model", "config", "recompute_method"), "block" if layers else "uniform")
        page.say(("model", "config", "recompute_num_layers"), layers or 1)
    page.mark_done("recompute")
    if optimum.sequence_length:
        page.say(("data", "seq_length"), optimum.sequence_length)
        page.say(("model", "config", "seq_length"), optimum.sequence_length)
    lines = [f"recipe.{dotted_name(path)} = {value!r}" for path, value in page.document.leaves()]
    return replace(page.export("\n".join(lines) + "\n", ".py"), precisions=(Precision.BF16,))
