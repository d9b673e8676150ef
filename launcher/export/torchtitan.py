"""torchtitan: an optimum or a base configuration as TOML (0.2), or a module for 0.3.

Loaded by ``ConfigManager`` of torchtitan 0.2.2 (PyPI), the model built by its ``models/llama3``
and ``models/qwen3``. 0.2.0 takes the same file, but ties no embeddings; 0.1 has other keys; 0.3
reads no file: ``--module`` names a module, ``--config`` a function of it, as 0.3.0 (PyPI) builds
it; the model is ``models/qwen3`` without norms of queries and keys.

torchtitan 0.2 and 0.3 (PyPI) have gated decoders with rotary positions and no biases; ``qwen3``
takes any head width, tied embeddings and experts, but has no pipeline in 0.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from keyword import iskeyword
from math import gcd
from pathlib import Path
from textwrap import indent
from typing import Any

from autoconf_launch.autotuner.sizing import Pretraining
from autoconf_launch.core import (
    ConfigError,
    Offload,
    Precision,
    RawConfig,
    States,
)

from ..dialects import TorchtitanDialect
from ..dialects import torchtitan as names
from ..script import NamedFile, ScriptSource
from ..spelling import (
    LaunchInputs,
    toml_of,
)
from .page import NEMO_DEGREES, Exported, Optimum, Page, comment_on, with_whole_steps, write_extras

_PLAIN, _ANY = "llama3", "qwen3"
_MULTIPLE = 64
_IN_FILE = ScriptSource(
    script_args=(),
    config=RawConfig({}),
    config_argument=None,
    files=(NamedFile(position=0, flag=names.FILE_FLAGS[0], path="", text=""),),
)
_ARGUMENTS = {"llama3": "TransformerModelArgs", "qwen3": "Qwen3ModelArgs"}
_DENSE = """\
feed_forward=make_ffn_config(
    dim={hidden}, hidden_dim={ffn}, w1_param_init=INIT, w2w3_param_init=INIT
),"""
_EXPERTS = """\
moe=make_moe_config(
    num_experts={experts},
    router=make_router_config(
        dim={hidden},
        num_experts={experts},
        gate_param_init=INIT,
        top_k={chosen},
        score_func="softmax",
        route_norm=True,
    ),
    routed_experts=make_routed_experts_config(
        dim={hidden},
        hidden_dim={ffn},
        num_experts={experts},
        top_k={chosen},
        param_init={{name: NORMAL for name in ("w1_EFD", "w2_EDF", "w3_EFD")}},
        comm_backend="standard",
    ),
),"""


def require_decoder(base: Pretraining) -> None:
    """Raise ConfigError for an encoder: torchtitan trains only decoders."""
    if base.family.name in ("bert", "t5", "mt5"):
        raise ConfigError(
            f"torchtitan trains decoders, but {base.name} is of family {base.family.name}; export "
            "to nemo1, nemo2 or megatron."
        )


def host_of(base: Pretraining) -> str:
    """Name of the torchtitan 0.2 model that can express the shapes."""
    form, shape = base.model.form, base.model.shape
    is_plain = not form.experts and not form.tied and shape.kv * shape.heads == shape.hidden
    return _PLAIN if is_plain else _ANY


def as_it_splits(
    base: Pretraining, model: str, *, pipelines: bool
) -> tuple[Pretraining, tuple[str, ...]]:
    """The training on the same GPUs in degrees that torchtitan takes, and notes on the changes.

    Args:
        base: the training as requested.
        model: the feature or model that has no pipeline, in words.
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
    """``local_batch_size``: in a pipeline, all samples of a replica's step."""
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
    """Sentences on features that no model of torchtitan has."""
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


def _base_tables(base: Pretraining) -> Exported:
    """Tables of torchtitan, after the module with the flavor that the shapes need."""
    require_decoder(base)
    host = host_of(base)
    base, notes = as_it_splits(base, host, pipelines=host == "llama3")
    made = RawConfig({})
    for path, value in _values(base).items():
        made = made.with_value(tuple(path.split(".")), value)
    left_out = (*notes, *stand_ins(base))
    return comment_on(f"{_flavor(base)}{toml_of(made)}", ".toml", left_out)


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
        names.LOCAL_BATCH_KEY: samples_at_once(base),
        names.GLOBAL_BATCH_KEY: split.global_batch,
        names.REPLICATE: 1,
        names.SHARD: split.data,
        **{names.TITAN_DEGREES[knob]: getattr(split.layout, knob) for knob in NEMO_DEGREES},
    }
    if split.layout.pipeline_parallel > 1:
        values[names.PIPELINE_MICRO_BATCH] = split.layout.micro_batch
    return values


def _flavor(base: Pretraining) -> str:
    """The module that registers it, as comments: a TOML file has no shapes."""
    host, arguments = host_of(base), _ARGUMENTS[host_of(base)]
    words = _llama3_shape(base) if host == "llama3" else _qwen3_shape(base)
    given = ", ".join(f"{name}={value}" for name, value in words.items() if value is not None)
    lines = [
        f"# for torchtitan 0.2.2: save the next lines as {_module(base)}.py where Python finds it",
        f"# from torchtitan.models import {host}",
    ]
    if base.model.form.experts:
        lines.append("# from torchtitan.models.moe import MoEArgs")
    lines.append(f"# {host}.{host}_args[{json.dumps(base.name)}] = {host}.{arguments}({given})")
    return "\n".join(lines) + "\n\n"


def _module(base: Pretraining) -> str:
    return f"{_identifier(base.name)}_flavor"


def _identifier(name: str) -> str:
    """A name that is valid for a function or a module."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    return word if word.isidentifier() and not iskeyword(word) else f"model_{word}"


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
    """Llama 3's MLP is ``int(ffn_dim_multiplier * int(8 * dim / 3))`` wide, then rounded up."""
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


def torchtitan_module(optimum: Optimum) -> Exported:
    """A module with one function, named like the run.

    Raises:
        ConfigError: the family is not a decoder, or the file does not give the vocabulary.
    """
    base = optimum.training
    assert base is not None  # it is among BASE_EXPORTERS only
    require_decoder(base)
    if base.model.vocabulary is None:
        raise ConfigError(
            "torchtitan builds a model of a given vocabulary; set model.config.vocab_size or "
            "autoconf.vocab_size in the base configuration."
        )
    base, notes = as_it_splits(base, "tied embeddings", pipelines=not base.model.form.tied)
    left_out = (*notes, *stand_ins(base))
    return comment_on(_module_text(base), ".py", left_out)


def _module_text(base: Pretraining) -> str:
    model, schedule, split = base.model, base.schedule, base.split
    shared = '{"weight": skip_param_init}' if model.form.tied else "INIT"
    text = Path(__file__).with_name("torchtitan_module.txt").read_text("utf-8")
    return text.format(
        name=_identifier(base.name),
        mlp=indent(_mlp(base), " " * 8),
        embedding_init=shared,
        init_std=model.init_std,
        layers=model.shape.layers,
        hidden=model.shape.hidden,
        heads=model.shape.heads,
        groups=model.form.groups,
        head=model.shape.kv,
        vocabulary=model.vocabulary,
        tied=model.form.tied,
        sequence=model.sequence,
        rate=schedule.learning_rate,
        betas=schedule.betas,
        epsilon=schedule.epsilon,
        decay=schedule.weight_decay,
        warmup=schedule.warmup_steps,
        fall="cosine" if schedule.is_cosine else "linear",
        least=round(schedule.least_rate / schedule.learning_rate, 6),
        clip=schedule.clip,
        steps=schedule.steps,
        no_graphs=split.layout.pipeline_parallel > 1,  # of a pipeline it makes none, and ends
        local=samples_at_once(base),
        batch=split.global_batch,
        micro=split.layout.micro_batch,
        data=split.data,
        tensor=split.layout.tensor_parallel,
        pipeline=split.layout.pipeline_parallel,
        context=split.layout.context_parallel,
        expert=split.layout.expert_parallel,
    )


def _mlp(base: Pretraining) -> str:
    model = base.model
    text = _EXPERTS if model.form.experts else _DENSE
    return text.format(
        hidden=model.shape.hidden,
        ffn=gated_width(base),
        experts=model.form.experts,
        chosen=model.form.experts_per_token,
    )


def torchtitan(optimum: Optimum) -> Exported:
    """The tables ``training``, ``parallelism`` and ``activation_checkpoint``, or all of them.

    Raises:
        ConfigError: the family of a whole training is not a decoder.
    """
    if optimum.training is not None:
        return _base_tables(optimum.training)
    page, layout = Page(optimum), optimum.layout
    pipelined = layout.pipeline_parallel > 1
    local = layout.micro_batch * (layout.accumulation if pipelined else 1)
    if optimum.sequence_length:
        page.say(("training", "seq_len"), optimum.sequence_length)
    page.say(_path(names.LOCAL_BATCH_KEY), local, "micro_batch")
    page.say(_path(names.GLOBAL_BATCH_KEY), layout.global_batch, "accumulation")
    if layout.offload is Offload.PARAMETERS:
        page.say(_path(names.OFFLOAD), True, "offload")
    if optimum.states is States.BF16:
        page.say(_path(names.DTYPE), "bfloat16")
    _say_stage(page)
    for knob, name in names.TITAN_DEGREES.items():
        page.say(_path(name), getattr(layout, knob), knob)
    if pipelined:
        page.say(_path(names.PIPELINE_MICRO_BATCH), layout.micro_batch)
    if layout.virtual_pipeline > 1:
        page.say(_path(names.SCHEDULE), names.INTERLEAVED)
        page.cannot(
            "virtual_pipeline",
            "set parallelism.pipeline_parallel_layers_per_stage to layers / stages of all ranks",
        )
    page.mark_done("sequence_parallel")  # always on with tensor parallelism up to 0.2
    page.say(_path(names.RECOMPUTE_MODE), layout.recompute.value, "recompute")
    made = LaunchInputs(document=page.document)
    page.document = write_extras(TorchtitanDialect(), page, made, _IN_FILE).document
    return replace(page.export(toml_of(page.document), ".toml"), precisions=(Precision.BF16,))


def _say_stage(page: Page) -> None:
    layout = page.optimum.layout
    sharded = layout.zero_stage > 1
    page.say(_path(names.REPLICATE), 1 if sharded else layout.data_parallel)
    page.say(_path(names.SHARD), layout.data_parallel if sharded else 1)
    if layout.zero_stage == 1:
        page.change(
            "zero_stage", "torchtitan cannot shard optimizer states alone; there they are whole"
        )
    if layout.zero_stage == 2:
        page.say(_path(names.RESHARD), "never")
    page.mark_done("zero_stage")


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))
