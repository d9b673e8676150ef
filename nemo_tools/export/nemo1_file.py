"""A base configuration as NeMo 1.0's YAML: complete, so that its scripts need no other file.

Values in a file of that layout stay as they are; keys that it omits are added.
Read by the models of nemo_toolkit 2.0.0 (PyPI) with megatron-core.

Keys that ``nemo/collections/nlp/models/language_modeling`` and ``nlp/parts`` of nemo_toolkit 2.0.0
(PyPI, the last with all of NeMo 1.0's models) read without one; values come from NeMo's own
configurations, ``examples/nlp/language_modeling/conf``. ``???`` is OmegaConf's "must be given".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from autoconf_launch.autotuner.sizing import Pretraining, time_limit
from autoconf_launch.core import ConfigError, KeyPath, Precision, RawConfig, Recompute, dotted_name
from autoconf_launch.launcher.export import (
    HALVES,
    NEMO_DEGREES,
    Exported,
    Optimum,
    Page,
    comment_on,
    groups_told,
    splits_sequence,
)
from autoconf_launch.tuning_spaces import base_template

_TRAINER = {
    "accelerator": "gpu",
    "logger": False,
    "enable_checkpointing": False,
    "use_distributed_sampler": False,
}
"""The first is Lightning's choice of device; NeMo's exp_manager and sampler refuse the others."""
_MODEL = {
    "megatron_amp_O2": True,
    "seed": 1234,
    "gradient_as_bucket_view": True,
    "gradient_accumulation_fusion": False,
    "persist_layer_norm": True,
    "ub_tp_comm_overlap": False,
}
_DATA = {
    "data_prefix": "???",
    "dataloader_type": "single",
    "num_workers": 2,
}
_OF_GPT = {"mcore_gpt": True}
_DATA_OF_GPT = {"index_mapping_dir": None}
_OF_BERT = {"mcore_bert": True, "bert_binary_head": True}
_DATA_OF_BERT = {"masked_lm_prob": 0.15, "short_seq_prob": 0.1}
_OF_T5 = {
    "mcore_t5": True,
    "share_token_embeddings": True,
    "share_decoder_tokens_head_embeddings": True,
    "tokens_head_bias": True,
    "embedding_dropout": 0.1,
}
_DATA_OF_T5 = {
    "dataset_type": "t5",
    "masked_lm_prob": 0.15,
    "extreme_masked_lm_prob": 0.5,
    "short_seq_prob": 0.0,
    "skip_warmup": True,
}
_OWN = "autoconf"
_MOST_DAYS = 36_500
_DAYS = (_OWN, "max_training_days")
_TEMPLATE = "gpt3"
_QKV_BIAS = frozenset({"qwen", "qwen2", "chatglm"})
_HALF_ROTARY = frozenset({"chatglm", "nemotron"})
_STACKS = ("encoder", "decoder")
_SQUARED = "squared-relu"
_SCRIPTS = {
    "t5": "megatron_t5_pretraining.py",
    "mt5": "megatron_t5_pretraining.py",
    "bert": "megatron_bert_pretraining.py",
}
_HEAD = """\
# for {script} of NeMo 1.x and 2.0 (--config-path, --config-name);
# give ++data_dir, ++base_results_dir and model.data.data_prefix
"""


def needs(base: Pretraining) -> Iterator[tuple[KeyPath, Any]]:
    """Keys that a file may lack, with their values."""
    model, data = _OF_GPT, _DATA | _DATA_OF_GPT
    if base.family.name == "bert":
        model, data = _OF_BERT, _DATA | _DATA_OF_BERT
    elif base.family.is_encoder_decoder:
        model, data = _OF_T5 | _of_stacks(base), _DATA | _DATA_OF_T5
    yield from ((("trainer", name), value) for name, value in _TRAINER.items())
    yield from ((("model", name), value) for name, value in (_MODEL | model).items())
    yield from ((("model", "data", name), value) for name, value in data.items())


def _of_stacks(base: Pretraining) -> dict[str, Any]:
    stages = base.split.layout.pipeline_parallel
    return {
        "embedding_init_method_std": base.model.init_std,
        "pipeline_model_parallel_split_rank": stages // 2 if stages > 1 else None,
    }


def nemo1_script(family: str) -> str:
    """NeMo's pretraining script of a family."""
    return _SCRIPTS.get(family, "megatron_gpt_pretraining.py")


def nemo1(optimum: Optimum) -> Exported:
    """The training of a recipe in the keys of NeMo's GPT, without our own section; or a layout."""
    base, document = optimum.training, optimum.document
    if base is None:
        return _layout(optimum)
    if ("model", "config") in document:
        made = base_template(_TEMPLATE)
        made = made.with_values((*_run(base, document), *_model(base), *_optimizer(base)))
    else:
        made = document.without((_OWN,))
        made = made.with_value(("model", "micro_batch_size"), base.split.layout.micro_batch)
    if splits_sequence(base):
        made = made.with_value(("model", "sequence_parallel"), True)
    for path, value in (*_kinds(base), *needs(base)):
        if path not in made:
            made = made.with_value(path, value)
    text = _HEAD.format(script=nemo1_script(base.family.name)) + yaml.safe_dump(
        made.to_dict(), sort_keys=False, width=99
    )
    return comment_on(text, ".yaml", groups_told(base))


def _layout(optimum: Optimum) -> Exported:
    """The ``trainer`` and ``model`` sections of a layout."""
    page, layout = Page(optimum), optimum.layout
    page.say(("trainer", "num_nodes"), optimum.nodes)
    page.say(("trainer", "devices"), optimum.ranks_per_node)
    if optimum.precision in HALVES:
        page.say(("trainer", "precision"), "bf16" if optimum.precision is Precision.BF16 else 16)
    page.say(("model", "micro_batch_size"), layout.micro_batch, "micro_batch")
    page.say(("model", "global_batch_size"), layout.global_batch, "accumulation")
    for knob, key in NEMO_DEGREES.items():
        page.say(("model", key), getattr(layout, knob), knob)
    virtual = layout.virtual_pipeline if layout.virtual_pipeline > 1 else None
    page.say(("model", "virtual_pipeline_model_parallel_size"), virtual, "virtual_pipeline")
    page.say(("model", "sequence_parallel"), layout.sequence_parallel, "sequence_parallel")
    _say_recompute(page)
    if layout.zero_stage < 2:
        name = "distributed_fused_adam" if layout.zero_stage else "fused_adam"
        page.say(("model", "optim", "name"), name, "zero_stage")
    return page.export(yaml.safe_dump(page.document.to_dict(), sort_keys=False), ".yaml")


def _say_recompute(page: Page) -> None:
    kind = page.optimum.layout.recompute
    granularity = None if kind is Recompute.NONE else kind.value
    page.say(("model", "activations_checkpoint_granularity"), granularity, "recompute")
    if kind is Recompute.FULL:
        page.say(("model", "activations_checkpoint_method"), "uniform")
        page.say(("model", "activations_checkpoint_num_layers"), 1)


def _kinds(base: Pretraining) -> Iterator[tuple[KeyPath, Any]]:
    where: list[KeyPath] = [("model",)]
    if base.family.is_encoder_decoder:
        where = [("model", stack) for stack in _STACKS]
    for path in where:
        yield from (((*path, name), value) for name, value in _kind(base).items())


def _kind(base: Pretraining) -> dict[str, Any]:
    model, family = base.model, base.family
    values: dict[str, Any] = {
        "position_embedding_type": "learned_absolute" if model.form.learned_positions else "rope",
        "normalization": _normalization(base),
        "activation": _activation(base),
        "bias": model.form.biases,
        "hidden_dropout": model.hidden_dropout,
        "attention_dropout": model.attention_dropout,
    }
    if family.is_encoder_decoder:
        return values | {"arch": "transformer"}
    values["share_embeddings_and_output_weights"] = model.form.tied
    values["num_query_groups"] = model.form.groups
    if family.name in _HALF_ROTARY:
        values["rotary_percentage"] = 0.5
    if family.name in _QKV_BIAS:
        values["qkv_bias"] = True
    if values["activation"] == _SQUARED:  # no fused kernel for it: megatron-core refuses
        values["bias_activation_fusion"] = False
    return values


def _normalization(base: Pretraining) -> str:
    if base.model.form.biases:
        return "layernorm"
    return "layernorm1p" if base.family.name == "nemotron" else "rmsnorm"


def _activation(base: Pretraining) -> str:
    if not base.model.form.gated:
        return _SQUARED if base.family.name == "nemotron" else "gelu"
    has_gelu = base.family.is_encoder_decoder or base.family.name == "gemma"
    return "geglu" if has_gelu else "fast-swiglu"


def _run(base: Pretraining, document: RawConfig) -> Iterator[tuple[KeyPath, Any]]:
    split = base.split
    yield ("run", "name"), base.name
    days = document.get(_DAYS)
    if days is not None:
        if type(days) not in (int, float) or not 0 < days < _MOST_DAYS:
            raise ConfigError(
                f"{dotted_name(_DAYS)} is {days!r}, but must be a number of days above 0."
            )
        yield ("run", "time_limit"), time_limit(float(days))
    yield ("trainer", "num_nodes"), split.nodes
    yield ("trainer", "devices"), split.gpus_per_node
    yield ("trainer", "max_steps"), base.schedule.steps
    yield ("trainer", "gradient_clip_val"), base.schedule.clip
    longest = document.get(("trainer", "max_time"))
    if longest is not None:
        yield ("trainer", "max_time"), longest


def _model(base: Pretraining) -> Iterator[tuple[KeyPath, Any]]:
    model, split = base.model, base.split
    values: dict[str, Any] = {
        "micro_batch_size": split.layout.micro_batch,
        "global_batch_size": split.global_batch,
        "tensor_model_parallel_size": split.layout.tensor_parallel,
        "pipeline_model_parallel_size": split.layout.pipeline_parallel,
        "virtual_pipeline_model_parallel_size": split.virtual,
        "context_parallel_size": split.layout.context_parallel,
        "expert_model_parallel_size": split.layout.expert_parallel,
        "sequence_parallel": splits_sequence(base),
        "encoder_seq_length": model.sequence,
        "max_position_embeddings": model.sequence,
        "num_layers": model.shape.layers,
        "hidden_size": model.shape.hidden,
        "ffn_hidden_size": model.shape.ffn,
        "num_attention_heads": model.shape.heads,
        "kv_channels": model.shape.kv,
        "init_method_std": model.init_std,
    }
    values |= _kind(base)
    if model.form.experts:
        values["num_moe_experts"] = model.form.experts
        values["moe_router_topk"] = model.form.experts_per_token
    for name, value in values.items():
        yield ("model", name), value
    yield ("model", "data", "seq_length"), model.sequence


def _optimizer(base: Pretraining) -> Iterator[tuple[KeyPath, Any]]:
    schedule, where = base.schedule, ("model", "optim")
    yield (*where, "lr"), schedule.learning_rate
    yield (*where, "weight_decay"), schedule.weight_decay
    yield (*where, "betas"), list(schedule.betas)
    yield (*where, "sched", "warmup_steps"), schedule.warmup_steps
    yield (*where, "sched", "constant_steps"), schedule.constant_steps
    yield (*where, "sched", "min_lr"), schedule.least_rate
