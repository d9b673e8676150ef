"""A base configuration as our own runtime's configuration. Not: the model, which a script builds.

Reads both layouts, NeMo 1.0's and the recipe's, by full path. Degrees of model parallelism stay
behind: the runtime is data-parallel, its search has the rest.

Edits on NeMo's own file, by full path; what the tool does not set stays as it is there.

Sections are those of ``run.Partial(llm.pretrain, …)``: model, trainer, data, optim, log, resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autoconf_launch.core import ConfigError, KeyPath, RawConfig

from .base_values import WARMUP_RATIO, BaseConfig

_RESULTS = "${base_results_dir}/${.name}"
_WANDB = ("exp_manager", "create_wandb_logger")
_WANDB_PROJECT = ("exp_manager", "wandb_logger_kwargs", "project")


def nemo1_document(template: RawConfig, base: BaseConfig) -> RawConfig:
    """NeMo's file for the family with run, trainer, model, optimizer and schedule set."""
    return _edited(template, [*base_run_edits(base), *_model_edits(base), *_optimizer_edits(base)])


def custom_document(custom: RawConfig, base: BaseConfig) -> RawConfig:
    """A user's whole file with run and trainer set; its model is left alone, as NeMo does."""
    return _edited(custom, list(base_run_edits(base)))


def base_run_edits(base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
    """What is set whatever the model: names, times, machines, steps, trackers."""
    yield ("run", "name"), base.name
    yield ("run", "results_dir"), _RESULTS
    yield ("run", "time_limit"), base.time_limit
    yield ("trainer", "num_nodes"), base.plan.nodes
    yield ("trainer", "devices"), base.plan.gpus_per_node
    yield ("trainer", "precision"), "bf16"
    yield ("trainer", "max_steps"), base.max_steps
    yield ("trainer", "max_time"), base.max_time
    if base.plan.wandb_project is not None:
        yield _WANDB, True
        yield _WANDB_PROJECT, base.plan.wandb_project
    if base.plan.index_folder is not None:
        yield ("model", "data", "index_mapping_dir"), base.plan.index_folder


def _model_edits(base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
    asked = base.model.asked
    is_t5 = asked.family.is_encoder_decoder
    yield ("model", "global_batch_size"), base.model.batch.global_batch
    yield ("model", "seq_length" if is_t5 else "encoder_seq_length"), asked.sequence
    yield ("model", "max_position_embeddings"), asked.sequence
    yield ("model", "data", "seq_length"), asked.sequence
    for stack in (("encoder",), ("decoder",)) if is_t5 else ((),):
        yield from _stack_edits(("model", *stack), base)
    if not is_t5 and not base.sequence_parallel:
        yield ("model", "sequence_parallel"), False


def _stack_edits(where: KeyPath, base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
    shape = base.model.shape
    yield (*where, "num_layers"), shape.layers
    yield (*where, "hidden_size"), shape.hidden
    yield (*where, "num_attention_heads"), shape.heads
    yield (*where, "ffn_hidden_size"), shape.ffn
    if shape.kv * shape.heads != shape.hidden or base.model.asked.family.is_encoder_decoder:
        yield (*where, "kv_channels"), shape.kv
    yield (*where, "init_method_std"), base.init_std


def _optimizer_edits(base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
    yield ("model", "optim", "lr"), base.model.shape.learning_rate
    schedule = ("model", "optim", "sched")
    yield (*schedule, "min_lr"), base.min_learning_rate
    if base.model.asked.family.is_encoder_decoder:
        yield (*schedule, "warmup_ratio"), WARMUP_RATIO
        return
    yield (*schedule, "warmup_steps"), base.warmup_steps
    yield (*schedule, "constant_steps"), base.constant_steps


def _edited(document: RawConfig, edits: list[tuple[KeyPath, Any]]) -> RawConfig:
    for path, value in edits:
        document = document.with_value(path, value)
    return document


_MODELS = {
    "gpt3": "GPT",
    "llama": "Llama",
    "mixtral": "Mixtral",
    "mistral": "Mistral",
    "gemma": "Gemma",
    "nemotron": "Nemotron",
    "qwen": "Qwen2",
    "qwen2": "Qwen2",
    "starcoder": "Starcoder2",
    "baichuan2": "Baichuan2",
    "chatglm": "ChatGLM",
    "bert": "Bert",
    "t5": "T5",
    "mt5": "T5",
}
_NEMO_CLASSES = {"gpt3": "GPTModel", "mixtral": "MixtralModel", "baichuan2": "Baichuan2Model"}


def recipe_document(base: BaseConfig) -> RawConfig:
    """The recipe, with tensor parallelism and the like where a table has them."""
    family = base.model.asked.family.name
    name = _MODELS.get(family)
    return RawConfig(
        {
            "name": base.name,
            "family": family,
            "model": {
                "class": _NEMO_CLASSES.get(family, f"{name}Model") if name else None,
                "config": _model(base),
            },
            "trainer": _trainer(base),
            "data": {
                "seq_length": base.model.asked.sequence,
                "global_batch_size": base.model.batch.global_batch,
                "micro_batch_size": 1,
            },
            "optim": _recipe_layout_optimizer(base),
            "log": {"name": base.name},
            "resume": None,
        }
    )


def _model(base: BaseConfig) -> dict[str, Any]:
    asked, shape, model = base.model.asked, base.model.shape, base.model.architecture
    config: dict[str, Any] = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "ffn_hidden_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_query_groups": model.kv_heads,
        "kv_channels": shape.kv,
        "seq_length": asked.sequence,
        "vocab_size": asked.vocabulary,
        "init_method_std": base.init_std,
        "gated_linear_unit": model.gated,
        "add_bias_linear": model.biases,
        "share_embeddings_and_output_weights": model.tied_embeddings,
    }
    if asked.family.is_encoder_decoder:
        config["encoder_num_layers"] = shape.layers
    if experts := model.experts:
        config |= {"num_moe_experts": experts.count, "moe_router_topk": experts.per_token}
        if experts.ffn != shape.ffn:
            config["moe_ffn_hidden_size"] = experts.ffn
    return config


def _trainer(base: BaseConfig) -> dict[str, Any]:
    plan, batch = base.plan, base.model.batch
    return {
        "num_nodes": plan.nodes,
        "devices": plan.gpus_per_node,
        "precision": "bf16-mixed",
        "max_steps": base.max_steps,
        "max_time": base.max_time,
        "gradient_clip_val": 1.0,
        "log_every_n_steps": 1,
        "strategy": {
            "tensor_model_parallel_size": batch.tensor,
            "pipeline_model_parallel_size": batch.pipeline,
            "virtual_pipeline_model_parallel_size": None,
            "context_parallel_size": batch.context,
            "expert_model_parallel_size": batch.expert,
            "sequence_parallel": base.sequence_parallel,
        },
    }


def _recipe_layout_optimizer(base: BaseConfig) -> dict[str, Any]:
    return {
        "config": {
            "optimizer": "adam",
            "lr": base.model.shape.learning_rate,
            "weight_decay": 0.1,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "clip_grad": 1.0,
            "bf16": True,
        },
        "lr_scheduler": {
            "name": "CosineAnnealing",
            "warmup_steps": base.warmup_steps,
            "constant_steps": base.constant_steps,
            "max_steps": base.max_steps,
            "min_lr": base.min_learning_rate,
        },
    }


_RECIPE: Mapping[str, KeyPath] = {
    "batch": ("data", "global_batch_size"),
    "micro_batch": ("data", "micro_batch_size"),
    "lr": ("optim", "config", "lr"),
    "min_lr": ("optim", "lr_scheduler", "min_lr"),
    "warmup": ("optim", "lr_scheduler", "warmup_steps"),
    "constant": ("optim", "lr_scheduler", "constant_steps"),
    "weight_decay": ("optim", "config", "weight_decay"),
}
_NEMO1: Mapping[str, KeyPath] = {
    "batch": ("model", "global_batch_size"),
    "micro_batch": ("model", "micro_batch_size"),
    "lr": ("model", "optim", "lr"),
    "min_lr": ("model", "optim", "sched", "min_lr"),
    "warmup": ("model", "optim", "sched", "warmup_steps"),
    "constant": ("model", "optim", "sched", "constant_steps"),
    "weight_decay": ("model", "optim", "weight_decay"),
}
_STEPS: KeyPath = ("trainer", "max_steps")
_WARMUP_RATIO: KeyPath = ("model", "optim", "sched", "warmup_ratio")


def builtin_document(base: RawConfig, *, micro_batch: int | None = None) -> RawConfig:
    """Batch, optimizer, schedule and precision as ``runtime.initialize`` reads them.

    Args:
        base: a base configuration of either layout.
        micro_batch: samples of one pass; by default the file's, at most the global batch.

    Raises:
        ConfigError: the file lacks a value that is needed.
    """
    paths = _RECIPE if ("optim", "config") in base else _NEMO1
    batch = int(_needed(base, paths["batch"]))
    micro = min(batch, micro_batch or int(_needed(base, paths["micro_batch"])))
    return RawConfig(
        {
            "train_batch_size": batch,
            "train_micro_batch_size_per_gpu": micro,
            "gradient_clipping": float(base.get(("trainer", "gradient_clip_val")) or 0.0),
            "bf16": {"enabled": str(base.get(("trainer", "precision"))).startswith("bf16")},
            "optimizer": {"type": "AdamW", "params": _optimizer(base, paths)},
            "scheduler": _schedule(base, paths),
            "autotuning": {"enabled": True},
        }
    )


def _optimizer(base: RawConfig, paths: Mapping[str, KeyPath]) -> dict[str, Any]:
    betas = base.get(("model", "optim", "betas")) or [
        base.get(("optim", "config", "adam_beta1"), 0.9),
        base.get(("optim", "config", "adam_beta2"), 0.95),
    ]
    return {
        "lr": float(_needed(base, paths["lr"])),
        "betas": [float(beta) for beta in betas],
        "weight_decay": float(base.get(paths["weight_decay"], 0.0)),
    }


def _schedule(base: RawConfig, paths: Mapping[str, KeyPath]) -> dict[str, Any]:
    """Cosine to the least rate, which the constant steps keep; T5's falls in a line."""
    steps, rate = int(_needed(base, _STEPS)), float(_needed(base, paths["lr"]))
    least = float(_needed(base, paths["min_lr"]))
    ratio = base.get(_WARMUP_RATIO)
    if ratio is not None:
        params: dict[str, Any] = {
            "total_num_steps": steps,
            "warmup_min_lr": least,
            "warmup_max_lr": rate,
            "warmup_num_steps": int(ratio * steps),
            "warmup_type": "linear",
        }
        return {"type": "WarmupDecayLR", "params": params}
    params = {
        "total_num_steps": max(1, steps - int(base.get(paths["constant"], 0))),
        "warmup_num_steps": int(base.get(paths["warmup"], 0)),
        "warmup_type": "linear",
        "cos_min_ratio": least / rate,
    }
    return {"type": "WarmupCosineLR", "params": params}


def _needed(base: RawConfig, path: KeyPath) -> Any:
    value = base.get(path)
    if value is None:
        raise ConfigError(f"The base configuration lacks {'.'.join(path)}.")
    return value
