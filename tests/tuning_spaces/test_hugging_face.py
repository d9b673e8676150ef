"""Configurations as the models' authors publish them, cut to what matters."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.tuning_spaces import from_hugging_face, hugging_face, named_model

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama3.1-8b": LLAMA,
    "bert-base": {
        "model_type": "bert",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "vocab_size": 30522,
    },
    "t5-small": {
        "model_type": "t5",
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "vocab_size": 32128,
    },
    "mt5-base": {
        "model_type": "mt5",
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 12,
        "num_decoder_layers": 12,
        "num_heads": 12,
        "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 32,
        "tie_word_embeddings": False,
        "vocab_size": 250112,
    },
    "mixtral-8x7b": {
        **LLAMA,
        "model_type": "mixtral",
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "sliding_window": 131072,
    },
    "gemma2-2b": {
        "model_type": "gemma2",
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 9216,
        "vocab_size": 256000,
        "sliding_window": 4096,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_group": 8,
        "topk_group": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
        "vocab_size": 129280,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
        "parallel_attn": True,
        "vocab_size": 65024,
    },
    "phi-2": {
        "model_type": "phi",
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 10240,
        "vocab_size": 51200,
        "tie_word_embeddings": False,
    },
    "olmo2-7b": {
        "model_type": "olmo2",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 100352,
        "tie_word_embeddings": False,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "vocab_size": 201088,
        "tie_word_embeddings": False,
    },
    "kimi-k2": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
        "vocab_size": 163840,
    },
    "glm-4.5": {
        "model_type": "glm4_moe",
        "attention_bias": True,
        "use_qk_norm": True,
        "hidden_size": 5120,
        "num_hidden_layers": 92,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 160,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "tie_word_embeddings": False,
        "vocab_size": 151552,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        "full_attention_interval": 4,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "intermediate_size": 5120,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_the_named_model(name: str) -> None:
    read = from_hugging_face(RawConfig(PUBLISHED[name]), name)
    assert read == replace(named_model(name), name=name)


def test_the_text_part_of_a_configuration_is_read() -> None:
    inner = {**PUBLISHED["gemma2-2b"], "model_type": "gemma3_text"}
    both = {"model_type": "gemma3", "text_config": inner, "quantization_config": {"bits": 4}}
    assert from_hugging_face(RawConfig(both), "x").hidden == 2304


def test_a_text_part_that_cannot_be_read_is_not_advised() -> None:
    both = {"model_type": "new_vl", "vision_config": {"hidden_size": 8}, "text_config": {"a": 1}}
    with pytest.raises(ConfigError, match=r"python train.py ...\).$"):
        from_hugging_face(RawConfig(both), "x")


@pytest.mark.parametrize("part", ["vision_config", "audio_config", "qformer_config"])
def test_a_part_beside_the_text_is_refused_by_name(part: str) -> None:
    inner = {**PUBLISHED["gemma2-2b"], "model_type": "gemma3_text"}
    both = {"model_type": "gemma3", part: {"hidden_size": 1152}, "text_config": inner}
    with pytest.raises(
        ConfigError, match=rf"x: {part} is not modelled.*fit --cluster C -- python"
    ):
        from_hugging_face(RawConfig(both), "x")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"add_cross_attention": True}, "add_cross_attention is True and not False"),
        ({"model_type": "opt", "hidden_size": 9, "word_embed_proj_dim": 5}, "is 5 and not 9"),
    ],
)
def test_a_setting_that_changes_the_weights_of_a_known_type_is_refused(
    change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        from_hugging_face(RawConfig({**GPT2, **change}), "x")


_NO_DEFAULT = {
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "deepseek_v2": {"num_experts_per_tok": 6},
}
"""Keys that transformers' default configurations lack."""


@pytest.mark.parametrize("kind", sorted(hugging_face._TYPES.keys() - {"kimi_k2"}))
def test_the_weights_of_a_known_type_are_as_many_as_transformers_makes(kind: str) -> None:
    pytest.importorskip("transformers")
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as auto

    config = AutoConfig.for_model(kind, **_NO_DEFAULT.get(kind, {}))
    tables = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        auto.MODEL_MAPPING,  # text parts, to which the whole model adds the head
    )
    model_class: Any = next(table[type(config)] for table in tables if type(config) in table)
    with torch.device("meta"):
        model = model_class(config)
    counted = sum(weight.numel() for weight in model.parameters())
    if kind.endswith("_vl_text"):
        counted += config.vocab_size * config.hidden_size
    document = config.to_dict()
    silent = {k: v for k, v in document.items() if k not in hugging_face._defaults().get(kind, ())}
    for one in (document, silent):
        found = from_hugging_face(RawConfig(one), kind)
        assert parameters(found) == pytest.approx(counted, rel=0.001)


@pytest.mark.parametrize(
    ("published", "weights"),
    [
        (
            {
                "model_type": "gemma3",
                "text_config": {
                    "model_type": "gemma3_text",
                    "hidden_size": 3840,
                    "intermediate_size": 15360,
                    "num_attention_heads": 16,
                    "num_hidden_layers": 48,
                    "num_key_value_heads": 8,
                },
                "vision_config": {"hidden_size": 1152},
            },
            11_766_034_176,
        ),
        (
            {
                "model_type": "llava",
                "text_config": {"model_type": "llama", "vocab_size": 32064},
                "vision_config": {"hidden_size": 1024},
            },
            6_738_939_904,
        ),
        (
            {
                "model_type": "qwen2_vl",
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "num_attention_heads": 28,
                "num_hidden_layers": 28,
                "num_key_value_heads": 4,
                "vision_config": {"embed_dim": 1280},
                "vocab_size": 152064,
            },
            7_615_616_512,
        ),
    ],
)
def test_the_text_part_of_a_published_file_is_read_as_its_refusal_says(
    published: dict[str, Any], weights: int
) -> None:
    with pytest.raises(ConfigError, match="For the text part alone, give") as refused:
        from_hugging_face(RawConfig(published), "x")
    if "the keys of its text_config" in str(refused.value):
        text = published["text_config"]
    else:
        kind = str(refused.value).rpartition('"model_type": "')[2].partition('"')[0]
        text = {**published, "model_type": kind}
        del text["vision_config"]
    assert parameters(from_hugging_face(RawConfig(text), "x")) == weights


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(ConfigError, match=r"model_type is 'lama'.*'llama'"):
        from_hugging_face(RawConfig({**LLAMA, "model_type": "lama"}), "x")


def test_an_unknown_type_is_read_by_the_usual_names_on_demand() -> None:
    config = RawConfig({**LLAMA, "model_type": "new", "hidden_act": "silu"})
    read = from_hugging_face(config, "x", usual=True)
    assert (read.kv_heads, read.gated) == (8, True)


@pytest.mark.parametrize("value", [-1, 0, 1 << 60, "4096", 1.5, True])
def test_a_size_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="hidden_size"):
        from_hugging_face(RawConfig({**LLAMA, "hidden_size": value}), "x")


def test_a_missing_size_is_named_as_the_file_spells_it() -> None:
    config = {key: value for key, value in GPT2.items() if key != "n_layer"}
    with pytest.raises(ConfigError, match="n_layer"):
        from_hugging_face(RawConfig(config), "x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("first_k_dense_replace", "all"),
        ("decoder_sparse_step", 1.5),
        ("shared_expert_intermediate_size", -4),
        ("num_experts_per_tok", 99),
        ("tie_word_embeddings", "maybe"),
    ],
)
def test_a_count_that_is_none_is_refused(key: str, value: object) -> None:
    mixture = {**LLAMA, "num_local_experts": 8, key: value}
    with pytest.raises(ConfigError):
        from_hugging_face(RawConfig(mixture), "x")
