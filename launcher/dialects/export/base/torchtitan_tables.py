"""A base configuration as torchtitan's TOML (0.2). Not: what 0.3 reads (torchtitan_module).

Loaded by ``ConfigManager`` of torchtitan 0.2.2 (PyPI), the model built by its ``models/llama3``
and ``models/qwen3``. 0.2.0 takes the same file, but ties no embeddings; 0.1 has other keys; 0.3
reads no file.
"""

from __future__ import annotations

import re
from typing import Any

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import RawConfig

from ...spellings import torchtitan as names
from ...toml_text import toml_of
from ..page import Exported, comments
from .torchtitan_model import (
    as_it_splits,
    gated_width,
    host_of,
    require_decoder,
    samples_at_once,
    stand_ins,
)

_ARGUMENTS = {"llama3": "TransformerModelArgs", "qwen3": "Qwen3ModelArgs"}


def torchtitan(base: Pretraining, document: RawConfig) -> Exported:
    """Its tables, after the module with the flavor that a model of these shapes needs.

    Raises:
        ConfigError: the family is not a decoder; torchtitan trains nothing else.
    """
    require_decoder(base)
    host = host_of(base)
    base, notes = as_it_splits(base, host, pipelines=host == "llama3")
    made = RawConfig({})
    for path, value in _values(base).items():
        made = made.with_value(tuple(path.split(".")), value)
    left_out = (*notes, *stand_ins(base))
    text = f"{comments(left_out)}{_flavor(base)}{toml_of(made)}"
    return Exported(text=text, left_out=left_out)


def _values(base: Pretraining) -> dict[str, Any]:
    schedule, split = base.schedule, base.split
    values: dict[str, Any] = {
        "model.name": host_of(base),
        "model.flavor": base.name,
        "experimental.custom_import": _module(base),
        "optimizer.name": "AdamW",
        "optimizer.lr": schedule.learning_rate,
        "optimizer.beta1": schedule.betas[0],
        "optimizer.beta2": schedule.betas[1],
        "optimizer.eps": schedule.epsilon,
        "optimizer.weight_decay": schedule.weight_decay,
        "lr_scheduler.warmup_steps": schedule.warmup_steps,
        "lr_scheduler.decay_type": "cosine" if schedule.is_cosine else "linear",
        "lr_scheduler.min_lr_factor": round(schedule.least_rate / schedule.learning_rate, 6),
        names.STEPS: schedule.steps,
        "training.seq_len": base.model.sequence,
        "training.max_norm": schedule.clip,
        names.MICRO_BATCH: samples_at_once(base),
        names.GLOBAL_BATCH: split.global_batch,
        names.REPLICATE: 1,
        names.SHARD: split.data,
        names.DEGREES["tensor_parallel"]: split.tensor,
        names.DEGREES["pipeline_parallel"]: split.pipeline,
        names.DEGREES["context_parallel"]: split.context,
        names.DEGREES["expert_parallel"]: split.expert,
    }
    if split.pipeline > 1:
        values[names.PIPELINE_MICRO_BATCH] = split.micro_batch
    return values


def _flavor(base: Pretraining) -> str:
    """A module that registers it, as comments: a TOML file has no shapes."""
    host, arguments = host_of(base), _ARGUMENTS[host_of(base)]
    words = _llama3_shape(base) if host == "llama3" else _qwen3_shape(base)
    given = ", ".join(f"{name}={value}" for name, value in words.items() if value is not None)
    lines = [
        f"# for torchtitan 0.2.2: save the next lines as {_module(base)}.py where Python finds it",
        f"# from torchtitan.models import {host}",
    ]
    if base.model.experts:
        lines.append("# from torchtitan.models.moe import MoEArgs")
    lines.append(f'# {host}.{host}_args["{base.name}"] = {host}.{arguments}({given})')
    return "\n".join(lines) + "\n\n"


def _module(base: Pretraining) -> str:
    return re.sub(r"\W", "_", f"{base.name}_flavor")


def _common_shape(base: Pretraining) -> dict[str, Any]:
    model = base.model
    return {
        "dim": model.hidden,
        "n_layers": model.layers,
        "n_heads": model.heads,
        "n_kv_heads": model.groups,
        "vocab_size": model.vocabulary,
        "max_seq_len": model.sequence,
    }


def _llama3_shape(base: Pretraining) -> dict[str, Any]:
    """Its perceptron is ``int(ffn_dim_multiplier * int(8 * dim / 3))`` wide, then rounded up."""
    plain = int(8 * base.model.hidden / 3)
    return _common_shape(base) | {
        "ffn_dim_multiplier": round((gated_width(base) + 0.5) / plain, 8),
        "multiple_of": 1,
    }


def _qwen3_shape(base: Pretraining) -> dict[str, Any]:
    model = base.model
    words = _common_shape(base) | {
        "head_dim": model.head,
        "hidden_dim": gated_width(base),
        "qk_norm": False,
        "rope_theta": 10000,
        "enable_weight_tying": model.tied,
    }
    if model.experts:
        moe = (
            f"MoEArgs(num_experts={model.experts}, num_shared_experts=0, "
            f'top_k={model.experts_per_token}, score_func="softmax", route_norm=True)'
        )
        words |= {"moe_enabled": True, "moe_inter_dim": model.ffn, "moe_args": moe}
    return words
