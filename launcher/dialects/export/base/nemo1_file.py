"""A base configuration as NeMo 1.0's YAML. Not: a file that it has already (taken as it is).

Names of a decoder's keys: ``megatron_llama_config.yaml`` of NVIDIA/NeMo (24.07).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import Path, RawConfig
from autoconf_launch.tuning_spaces.recommend_tables import base_template

from ..page import Exported

_OWN = "autoconf"
_TEMPLATE = "gpt3"


def nemo1(base: Pretraining, document: RawConfig) -> Exported:
    """Of a recipe the same training in the keys of NeMo's GPT; our own section is left out."""
    if ("model", "config") in document:
        made = base_template(_TEMPLATE)
        for path, value in (*_run(base, document), *_model(base), *_optimizer(base)):
            made = made.with_value(path, value)
    else:
        made = document.without((_OWN,))
    return Exported(text=yaml.safe_dump(made.to_dict(), sort_keys=False, width=99))


def _run(base: Pretraining, document: RawConfig) -> Iterator[tuple[Path, Any]]:
    split = base.split
    yield ("run", "name"), base.name
    yield ("trainer", "num_nodes"), split.nodes
    yield ("trainer", "devices"), split.gpus_per_node
    yield ("trainer", "max_steps"), base.schedule.steps
    yield ("trainer", "gradient_clip_val"), base.schedule.clip
    longest = document.get(("trainer", "max_time"))
    if longest is not None:
        yield ("trainer", "max_time"), longest


def _model(base: Pretraining) -> Iterator[tuple[Path, Any]]:
    model, split = base.model, base.split
    values: dict[str, Any] = {
        "micro_batch_size": split.micro_batch,
        "global_batch_size": split.global_batch,
        "tensor_model_parallel_size": split.tensor,
        "pipeline_model_parallel_size": split.pipeline,
        "virtual_pipeline_model_parallel_size": split.virtual,
        "context_parallel_size": split.context,
        "expert_model_parallel_size": split.expert,
        "sequence_parallel": split.sequence_parallel,
        "encoder_seq_length": model.sequence,
        "max_position_embeddings": model.sequence,
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "num_query_groups": model.groups,
        "kv_channels": model.head,
        "init_method_std": model.init_std,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "bias": model.biases,
        "share_embeddings_and_output_weights": model.tied,
    }
    if not model.learned_positions:
        values |= {"position_embedding_type": "rope", "normalization": "rmsnorm"}
    if model.gated:
        values["activation"] = "geglu" if base.family.name == "gemma" else "fast-swiglu"
    if model.experts:
        values |= {"num_moe_experts": model.experts, "moe_router_topk": model.experts_per_token}
    for name, value in values.items():
        yield ("model", name), value
    yield ("model", "data", "seq_length"), model.sequence


def _optimizer(base: Pretraining) -> Iterator[tuple[Path, Any]]:
    schedule, where = base.schedule, ("model", "optim")
    yield (*where, "lr"), schedule.learning_rate
    yield (*where, "weight_decay"), schedule.weight_decay
    yield (*where, "betas"), list(schedule.betas)
    yield (*where, "sched", "warmup_steps"), schedule.warmup_steps
    yield (*where, "sched", "constant_steps"), schedule.constant_steps
    yield (*where, "sched", "min_lr"), schedule.least_rate
