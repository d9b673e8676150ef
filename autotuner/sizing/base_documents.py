"""A base configuration of NVIDIA's tool, as NeMo's own file or as a recipe.

NeMo's own file is edited by full path: keys that the tool does not set stay. Sections of a recipe
are the arguments of ``run.Partial(llm.pretrain, …)``.

Source of rules: NeMo-Framework-Launcher, auto_configurator (24.12), ``base_config.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autoconf_launch.core import ConfigError, KeyPath, RawConfig

from .chosen_model import ChosenModel

_WARMUP = 0.0015
_CONSTANT = 0.166
_WARMUP_RATIO = 0.01
"""Warm-up of T5's schedule over all steps."""
_T5_STD = 0.015
_STD = 0.64
_SEQUENCE_PARALLEL_ABOVE_B = 13
_RESULTS = "${base_results_dir}/${.name}"
_WANDB = ("exp_manager", "create_wandb_logger")
_WANDB_PROJECT = ("exp_manager", "wandb_logger_kwargs", "project")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The training that a base configuration is for.

    Attributes:
        days: its time limit.
        max_steps: given number; None: as many as the tokens need.
        wandb_project: None if runs are not logged there.
        index_folder: of data, which Base Command Platform keeps apart; None elsewhere.
    """

    days: float
    nodes: int
    gpus_per_node: int
    tokens_b: float
    wandb_project: str | None = None
    index_folder: str | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseConfig:
    """Everything that is worked out; T5's schedule has a warmup ratio instead of steps.

    ``time_limit`` is Slurm's, ``max_time`` Lightning's, one hour less and half past.
    """

    model: ChosenModel
    plan: RunPlan
    name: str
    time_limit: str
    max_time: str
    max_steps: int
    init_std: float
    min_learning_rate: float
    warmup_steps: int
    constant_steps: int
    sequence_parallel: bool


def base_config(model: ChosenModel, plan: RunPlan) -> BaseConfig:
    """Names, times, steps and schedule of a model.

    Raises:
        ConfigError: there are fewer tokens than one step reads.
    """
    asked, shape = model.asked, model.shape
    per_step = asked.sequence * model.batch.global_batch
    steps = plan.max_steps or int(plan.tokens_b * 1e9 / per_step)
    if steps < 1:
        raise ConfigError(
            f"{plan.tokens_b * 1e9:.0f} tokens are less than one step reads: "
            f"{model.batch.global_batch} samples of {asked.sequence} are {per_step}."
        )
    is_t5 = asked.family.is_encoder_decoder
    return BaseConfig(
        model=model,
        plan=plan,
        name=run_name(asked.family.name, asked.size_b),
        time_limit=time_limit(plan.days),
        max_time=max_time(plan.days),
        max_steps=steps,
        init_std=_T5_STD if is_t5 else round(_STD / math.sqrt(shape.hidden), 6),
        min_learning_rate=round(0.1 * shape.learning_rate, 8),
        warmup_steps=int(_WARMUP * steps),
        constant_steps=int(_CONSTANT * steps),
        sequence_parallel=asked.size_b > _SEQUENCE_PARALLEL_ABOVE_B,
    )


def run_name(family: str, size_b: float) -> str:
    """``gpt3_5b``, ``gpt3_4.03b``."""
    return f"{family}_{size_b:.10g}b"


def time_limit(days: float) -> str:
    """Slurm's ``D-HH:00:00``, at least an hour."""
    whole, hours = _days_and_hours(days)
    return f"{whole}-{hours:02d}:00:00"


def max_time(days: float) -> str:
    """Lightning's ``D:HH:30:00``: the time limit less half an hour, so that training ends first.

    A training of less than two hours has half of one: NVIDIA's tool would write -1 days.
    """
    whole, hours = _days_and_hours(days)
    whole, hours = (whole, hours - 1) if hours else (whole - 1, 23)
    return f"{whole}:{hours:02d}:30:00"


def _days_and_hours(days: float) -> tuple[int, int]:
    whole = int(days)
    hours = int(24 * (days - whole))
    return (0, 1) if (whole, hours) == (0, 0) else (whole, hours)


def nemo1_document(template: RawConfig, base: BaseConfig) -> RawConfig:
    """NeMo's file for the family with run, trainer, model, optimizer and schedule set."""
    edits = (*_run_edits(base), *_model_edits(base), *_optimizer_edits(base))
    return template.with_values(edits)


def custom_document(custom: RawConfig, base: BaseConfig) -> RawConfig:
    """A user's whole file with run and trainer set; its model is unchanged, as in NeMo."""
    return custom.with_values(_run_edits(base))


def _run_edits(base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
    """Settings of any model: names, times, machines, steps, trackers."""
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
        yield (*schedule, "warmup_ratio"), _WARMUP_RATIO
        return
    yield (*schedule, "warmup_steps"), base.warmup_steps
    yield (*schedule, "constant_steps"), base.constant_steps


def recipe_document(base: BaseConfig) -> RawConfig:
    """The recipe, with tensor parallelism and similar settings if a table has them."""
    family = base.model.asked.family.name
    name = _MODELS.get(family)
    return RawConfig(
        {
            "name": base.name,
            "family": family,
            "model": {
                "class": _NEMO_CLASSES.get(family, f"{name}Model") if name else None,
                "config": _recipe_model(base),
            },
            "trainer": _recipe_trainer(base),
            "data": {
                "seq_length": base.model.asked.sequence,
                "global_batch_size": base.model.batch.global_batch,
                "micro_batch_size": 1,
            },
            "optim": _recipe_optimizer(base),
            "log": {"name": base.name},
            "resume": None,
        }
    )


def _recipe_model(base: BaseConfig) -> dict[str, Any]:
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


def _recipe_trainer(base: BaseConfig) -> dict[str, Any]:
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


def _recipe_optimizer(base: BaseConfig) -> dict[str, Any]:
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
