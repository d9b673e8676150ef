"""A base configuration as a module of Python that torchtitan 0.3 trains. Not: 0.2's TOML.

Built by torchtitan 0.3.0 (PyPI), which reads no file: ``--module`` names a module, ``--config`` a
function of it. The model is ``models/qwen3`` without norms of queries and keys.
"""

from __future__ import annotations

import re
from textwrap import indent

from autoconf_launch.autotuner.sizing import Pretraining
from autoconf_launch.core import ConfigError, RawConfig

from .page import Exported, comments
from .torchtitan import as_it_splits, gated_width, require_decoder, samples_at_once, stand_ins

_TEXT = """\
# for torchtitan 0.3: save it as {name}.py where Python finds it, then
# torchrun … -m torchtitan.train --module {name} --config {name} --hf-assets-path <tokenizer>
from functools import partial

from torch import nn
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    default_adamw,
    register_moe_load_balancing_hook,
)
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import CosSinRoPE, Embedding, Linear
from torchtitan.models.common.config_utils import (
    get_attention_config,
    make_ffn_config,
    make_gqa_config,
    make_moe_config,
    make_routed_experts_config,
    make_router_config,
)
from torchtitan.models.common.nn_modules import RMSNorm
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.models.qwen3 import Qwen3StateDictAdapter, parallelize_qwen3
from torchtitan.models.qwen3.model import Qwen3Model, Qwen3TransformerBlock
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

NORMAL = partial(nn.init.normal_, std={init_std!r})
INIT = {{"weight": NORMAL, "bias": nn.init.zeros_}}


def norm():
    return RMSNorm.Config(normalized_shape={hidden}, param_init={{"weight": nn.init.ones_}})


def layer():
    return Qwen3TransformerBlock.Config(
        attention_norm=norm(),
        ffn_norm=norm(),
        attention=make_gqa_config(
            dim={hidden},
            n_heads={heads},
            n_kv_heads={groups},
            head_dim={head},
            wqkv_param_init=INIT,
            wo_param_init=INIT,
            inner_attention=get_attention_config("flex"),
            rope=CosSinRoPE.Config(dim={head}, max_seq_len={sequence}, theta=10000.0),
        ),
{mlp}
    )


def model():
    embedding_init = {embedding_init}
    return Qwen3Model.Config(
        dim={hidden},
        vocab_size={vocabulary},
        enable_weight_tying={tied},
        tok_embeddings=Embedding.Config(
            num_embeddings={vocabulary}, embedding_dim={hidden}, param_init=embedding_init
        ),
        norm=norm(),
        lm_head=Linear.Config(in_features={hidden}, out_features={vocabulary}, param_init=INIT),
        layers=[layer() for _ in range({layers})],
    )


def {name}():
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size={vocabulary})
        ),
        model_spec=ModelSpec(
            name="qwen3",
            flavor="{name}",
            model=model(),
            parallelize_fn=parallelize_qwen3,
            pipelining_fn=pipeline_llm,
            post_optimizer_build_fn=register_moe_load_balancing_hook,
            state_dict_adapter=Qwen3StateDictAdapter,
        ),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        optimizer=default_adamw(
            lr={rate!r}, betas={betas!r}, eps={epsilon!r}, weight_decay={decay!r}
        ),
        lr_scheduler=LRSchedulersContainer.Config(
            warmup_steps={warmup}, decay_type="{fall}", min_lr_factor={least!r}
        ),
        training=TrainingConfig(
            local_batch_size={local},
            global_batch_size={batch},
            seq_len={sequence},
            max_norm={clip!r},
            steps={steps},
            disable_cuda_graphs={no_graphs},
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree={data},
            tensor_parallel_degree={tensor},
            pipeline_parallel_degree={pipeline},
            pipeline_parallel_microbatch_size={micro},
            context_parallel_degree={context},
            expert_parallel_degree={expert},
        ),
    )
"""
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


def torchtitan_module(base: Pretraining, document: RawConfig) -> Exported:
    """A module with one function, which is called as the run is.

    Raises:
        ConfigError: the family is not a decoder, or the file does not say the vocabulary.
    """
    require_decoder(base)
    if base.model.vocabulary is None:
        raise ConfigError(
            "torchtitan builds a model of a given vocabulary; set model.config.vocab_size or "
            "autoconf.vocab_size in the base configuration."
        )
    base, notes = as_it_splits(base, "tied embeddings", pipelines=not base.model.form.tied)
    left_out = (*notes, *stand_ins(base))
    return Exported(text=comments(left_out) + _module(base), left_out=left_out)


def _module(base: Pretraining) -> str:
    model, schedule, split = base.model, base.schedule, base.split
    shared = '{"weight": skip_param_init}' if model.form.tied else "INIT"
    return _TEXT.format(
        name=re.sub(r"\W", "_", base.name),
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
