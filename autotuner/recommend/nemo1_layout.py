"""A base configuration as a file of NeMo 1.0 (GPT, T5, mT5, BERT). Not: its values (base_config).

Edits on NeMo's own file, by full path; what the tool does not set stays as it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autoconf_launch.core import KeyPath, RawConfig

from .base_config import WARMUP_RATIO, BaseConfig

_RESULTS = "${base_results_dir}/${.name}"
_WANDB = ("exp_manager", "create_wandb_logger")
_WANDB_PROJECT = ("exp_manager", "wandb_logger_kwargs", "project")


def nemo1_document(template: RawConfig, base: BaseConfig) -> RawConfig:
    """NeMo's file for the family with run, trainer, model, optimizer and schedule set."""
    return _edited(template, [*run_edits(base), *_model_edits(base), *_optimizer_edits(base)])


def custom_document(custom: RawConfig, base: BaseConfig) -> RawConfig:
    """A user's whole file with run and trainer set; its model is left alone, as NeMo does."""
    return _edited(custom, list(run_edits(base)))


def run_edits(base: BaseConfig) -> Iterator[tuple[KeyPath, Any]]:
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
