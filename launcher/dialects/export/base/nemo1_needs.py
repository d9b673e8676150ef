"""What NeMo 1.0's models read beside a base configuration, and have no default for. Not: a shape.

Keys that ``nemo/collections/nlp/models/language_modeling`` and ``nlp/parts`` of nemo_toolkit 2.0.0
(PyPI, the last with all of NeMo 1.0's models) read without one; values are those of NeMo's own
configurations, ``examples/nlp/language_modeling/conf``. ``???`` is OmegaConf's "must be given".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autoconf_launch.autotuner.recommend.pretraining import Pretraining
from autoconf_launch.core import KeyPath

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


def needs(base: Pretraining) -> Iterator[tuple[KeyPath, Any]]:
    """Keys and values, for where a file has no such key."""
    model, data = _OF_GPT, _DATA | _DATA_OF_GPT
    if base.family.name == "bert":
        model, data = _OF_BERT, _DATA | _DATA_OF_BERT
    elif base.family.is_encoder_decoder:
        model, data = _OF_T5 | _of_stacks(base), _DATA | _DATA_OF_T5
    yield from ((("trainer", name), value) for name, value in _TRAINER.items())
    yield from ((("model", name), value) for name, value in (_MODEL | model).items())
    yield from ((("model", "data", name), value) for name, value in data.items())


def _of_stacks(base: Pretraining) -> dict[str, Any]:
    """The decoder begins at half of the pipeline."""
    split_rank = base.split.pipeline // 2 if base.split.pipeline > 1 else None
    return {
        "embedding_init_method_std": base.model.init_std,
        "pipeline_model_parallel_split_rank": split_rank,
    }
