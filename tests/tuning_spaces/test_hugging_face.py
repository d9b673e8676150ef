"""Configurations as the models' authors publish them, cut to what matters."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.tuning_spaces import from_hugging_face, hugging_face, named_model

NAMED, BESIDE_VISION = json.loads(
    (Path(__file__).parents[1] / "data" / "hugging_face.json").read_text()
).values()
PUBLISHED: dict[str, dict[str, Any]] = NAMED
GPT2, LLAMA = PUBLISHED["gpt2"], PUBLISHED["llama3.1-8b"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_the_named_model(name: str) -> None:
    read = from_hugging_face(RawConfig(PUBLISHED[name]), name)
    assert read == replace(named_model(name), name=name)


def test_text_parts_are_read_if_they_can_be() -> None:
    inner = {**PUBLISHED["gemma2-2b"], "model_type": "gemma3_text"}
    both = {"model_type": "gemma3", "text_config": inner, "quantization_config": {"bits": 4}}
    assert from_hugging_face(RawConfig(both), "x").hidden == 2304
    both = {"model_type": "new_vl", "vision_config": {"hidden_size": 8}, "text_config": {"a": 1}}
    with pytest.raises(ConfigError, match=r"python train.py ...\).$"):
        from_hugging_face(RawConfig(both), "x")


@pytest.mark.parametrize("part", ["audio_config", "qformer_config"])
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


@pytest.mark.parametrize(("published", "weights"), BESIDE_VISION)
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


def test_types_and_sizes_that_are_missing_are_named() -> None:
    with pytest.raises(ConfigError, match=r"model_type is 'lama'.*'llama'"):
        from_hugging_face(RawConfig({**LLAMA, "model_type": "lama"}), "x")
    config = RawConfig({**LLAMA, "model_type": "new", "hidden_act": "silu"})
    read = from_hugging_face(config, "x", usual=True)
    assert (read.kv_heads, read.gated) == (8, True)
    with pytest.raises(ConfigError, match="n_layer"):
        from_hugging_face(RawConfig(GPT2).without(("n_layer",)), "x")


@pytest.mark.parametrize("value", [-1, 0, 1 << 60, "4096", 1.5, True])
def test_a_size_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="hidden_size"):
        from_hugging_face(RawConfig({**LLAMA, "hidden_size": value}), "x")


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
