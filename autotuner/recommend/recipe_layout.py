"""A base configuration in the form of a NeMo 2.0 recipe. Not: its values (base_config).

Sections are those of ``run.Partial(llm.pretrain, …)``: model, trainer, data, optim, log, resume.
"""

from __future__ import annotations

from typing import Any

from autoconf_launch.core import RawConfig

from .base_config import BaseConfig

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
            "optim": _optimizer(base),
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


def _optimizer(base: BaseConfig) -> dict[str, Any]:
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
