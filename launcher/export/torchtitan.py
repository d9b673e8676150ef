"""A base configuration as torchtitan's TOML (0.2). Not: what 0.3 reads (torchtitan_module).

Loaded by ``ConfigManager`` of torchtitan 0.2.2 (PyPI), the model built by its ``models/llama3``
and ``models/qwen3``. 0.2.0 takes the same file, but ties no embeddings; 0.1 has other keys; 0.3
reads no file.

torchtitan 0.2 and 0.3 (PyPI) have gated decoders with rotary positions and no biases; ``qwen3``
takes any width of a head, tied embeddings and experts, but has no pipeline in 0.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import gcd
from typing import Any

from autoconf_launch.autotuner.sizing import Pretraining
from autoconf_launch.core import ConfigError, RawConfig

from ..dialects import torchtitan as names
from ..spelling import toml_of
from .page import NEMO_DEGREES, Exported, comments, with_whole_steps

_PLAIN, _ANY = "llama3", "qwen3"
_MULTIPLE = 64


def require_decoder(base: Pretraining) -> None:
    """Raises ConfigError for another model: torchtitan trains nothing else."""
    if base.family.name in ("bert", "t5", "mt5"):
        raise ConfigError(
            f"torchtitan trains decoders, but {base.name} is of family {base.family.name}; export "
            "to nemo1, nemo2 or megatron."
        )


def host_of(base: Pretraining) -> str:
    """Its model of torchtitan 0.2."""
    form, shape = base.model.form, base.model.shape
    is_plain = not form.experts and not form.tied and shape.kv * shape.heads == shape.hidden
    return _PLAIN if is_plain else _ANY


def as_it_splits(
    base: Pretraining, model: str, *, pipelines: bool
) -> tuple[Pretraining, tuple[str, ...]]:
    """The training on the same GPUs in degrees that torchtitan takes, and what they replace.

    Args:
        base: the training as it is asked for.
        model: what has no pipeline, in words.
        pipelines: whether it can be split by layers.
    """
    split, groups, notes = base.split, base.model.form.groups, []
    stages, tensor = split.layout.pipeline_parallel, split.layout.tensor_parallel
    if stages > 1 and not pipelines:
        notes.append(
            f"{stages} pipeline stages: torchtitan has none for {model}, so these ranks are "
            "data-parallel, too"
        )
        stages = 1
    if groups % tensor:
        tensor = gcd(groups, tensor)
        notes.append(
            f"tensor_parallel must divide {groups} groups of keys and values; changed from "
            f"{split.layout.tensor_parallel} to {tensor}"
        )
    if not notes:
        return base, ()
    layout = replace(split.layout, pipeline_parallel=stages, tensor_parallel=tensor)
    fitting, more = with_whole_steps(replace(base, split=replace(split, layout=layout)))
    return fitting, (*notes, *more)


def samples_at_once(base: Pretraining) -> int:
    """``local_batch_size``: of a pipeline all that a replica sees of a step."""
    split = base.split
    is_pipeline = split.layout.pipeline_parallel > 1
    return split.global_batch // split.data if is_pipeline else split.layout.micro_batch


def gated_width(base: Pretraining) -> int:
    """Width of a gated MLP with as many weights: an ungated one has two matrices, not three."""
    model = base.model
    if model.form.gated:
        return model.shape.ffn
    return max(1, round(2 * model.shape.ffn / 3 / _MULTIPLE)) * _MULTIPLE


def stand_ins(base: Pretraining) -> Iterator[str]:
    """What no model of torchtitan has."""
    model = base.model
    if not model.form.gated:
        yield (
            f"torchtitan has no ungated MLP: exported as a gated MLP of equal size "
            f"({gated_width(base)} instead of {model.shape.ffn} wide)"
        )
    if model.form.biases or model.form.learned_positions:
        yield (
            "torchtitan has no biases, LayerNorm or learned positions: exported with RMSNorm and "
            "rotary positions"
        )
    if model.hidden_dropout or model.attention_dropout:
        dropout = max(model.hidden_dropout, model.attention_dropout)
        yield f"torchtitan has no dropout: exported without it, instead of {dropout:g}"
    if base.schedule.constant_steps:
        yield (
            f"constant_steps = {base.schedule.constant_steps}: the rate falls until the last step"
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
        names._MICRO_BATCH: samples_at_once(base),
        names.GLOBAL_BATCH_KEY: split.global_batch,
        names.REPLICATE: 1,
        names.SHARD: split.data,
        **{names._DEGREES[knob]: getattr(split.layout, knob) for knob in NEMO_DEGREES},
    }
    if split.layout.pipeline_parallel > 1:
        values[names.PIPELINE_MICRO_BATCH] = split.layout.micro_batch
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
    if base.model.form.experts:
        lines.append("# from torchtitan.models.moe import MoEArgs")
    lines.append(f'# {host}.{host}_args["{base.name}"] = {host}.{arguments}({given})')
    return "\n".join(lines) + "\n\n"


def _module(base: Pretraining) -> str:
    return re.sub(r"\W", "_", f"{base.name}_flavor")


def _common_shape(base: Pretraining) -> dict[str, Any]:
    model = base.model
    return {
        "dim": model.shape.hidden,
        "n_layers": model.shape.layers,
        "n_heads": model.shape.heads,
        "n_kv_heads": model.form.groups,
        "vocab_size": model.vocabulary,
        "max_seq_len": model.sequence,
    }


def _llama3_shape(base: Pretraining) -> dict[str, Any]:
    """Its MLP is ``int(ffn_dim_multiplier * int(8 * dim / 3))`` wide, then rounded up."""
    plain = int(8 * base.model.shape.hidden / 3)
    return _common_shape(base) | {
        "ffn_dim_multiplier": round((gated_width(base) + 0.5) / plain, 8),
        "multiple_of": 1,
    }


def _qwen3_shape(base: Pretraining) -> dict[str, Any]:
    model = base.model
    words = _common_shape(base) | {
        "head_dim": model.shape.kv,
        "hidden_dim": gated_width(base),
        "qk_norm": False,
        "rope_theta": 10000,
        "enable_weight_tying": model.form.tied,
    }
    if model.form.experts:
        moe = (
            f"MoEArgs(num_experts={model.form.experts}, num_shared_experts=0, "
            f'top_k={model.form.experts_per_token}, score_func="softmax", route_norm=True)'
        )
        words |= {"moe_enabled": True, "moe_inter_dim": model.shape.ffn, "moe_args": moe}
    return words
