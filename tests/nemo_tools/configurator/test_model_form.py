"""A recipe's model is counted with its own groups, experts, ties and vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import AutoConfigurator, ConfigError
from autoconf_launch.autotuner.sizing import Form
from autoconf_launch.nemo.configurator.recipe import own_form


def shape(
    layers: int, hidden: int, heads: int, groups: int, ffn: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "num_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_query_groups": groups,
        "ffn_hidden_size": ffn,
        "vocab_size": vocabulary,
        **more,
    }


_LLAMA2_7B = shape(32, 4096, 32, 32, 11008, 32000)
_LLAMA3_8B = shape(32, 4096, 32, 8, 14336, 128256)
_TIED = {"share_embeddings_and_output_weights": True}
_QWEN2_HALF_B = shape(24, 896, 14, 2, 4864, 151936, **_TIED)
_GEMMA2_2B = shape(26, 2304, 8, 4, 9216, 256000, kv_channels=256)
_MIXTRAL = {**_LLAMA3_8B, "vocab_size": 32000, "moe_router_topk": 2}
_EXPERT = 3 * 4096 * 14336 + 4096


def size_b(family: str, config: dict[str, Any]) -> Any:
    sizes: dict[str, Any] = {"tensor_parallel_sizes": [2], "pipeline_parallel_sizes": [1]}
    found = AutoConfigurator(
        {"family": family, "model": {"config": config}, "num_nodes": 2, "seq_length": 4096},
        "logs",
        gpus_per_node=8,
        global_batch_size=512,
        **sizes,
        micro_batch_sizes=[1],
        min_model_parallel_size=1,
        grid="nemo",
    )
    return found.generate_configs()[0]["autoconf"]["model_size_in_b"]


@pytest.mark.parametrize(
    ("family", "config", "published_b"),
    [
        ("llama", _LLAMA2_7B, 6.738),
        ("llama", _LLAMA3_8B, 8.030),
        ("qwen", _QWEN2_HALF_B, 0.494),
        ("gemma", _GEMMA2_2B, 2.614),
        ("mixtral", {**_MIXTRAL, "num_moe_experts": 8}, 46.703),
        ("mixtral", {**_MIXTRAL, "num_moe_experts": 16}, 46.703 + 8 * 32 * _EXPERT / 1e9),
    ],
)
def test_a_model_has_its_published_size(
    family: str, config: dict[str, Any], published_b: float
) -> None:
    assert size_b(family, config) == pytest.approx(published_b, abs=0.0011)


def test_experts_have_their_own_width_and_half_of_the_layers() -> None:
    config = {**_MIXTRAL, "num_moe_experts": 8}
    narrow = {**config, "moe_ffn_hidden_size": 1024, "moe_layer_freq": 2}
    lost = 32 * 8 * 3 * 4096 * 14336 - 16 * (8 * 3 * 4096 * 1024 + 3 * 4096 * 14336 - 8 * 4096)
    assert size_b("mixtral", config) - size_b("mixtral", narrow) == pytest.approx(
        lost / 1e9, abs=0.002
    )


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({}, Form(groups=8)),
        ({"num_query_groups": None}, Form()),
        ({"num_query_groups": "${model.heads}"}, Form(groups=8)),
        ({"num_key_value_heads": 2}, Form(groups=2)),
        ({"activation": "fast-swiglu"}, Form(groups=8)),
        ({"activation": "gelu"}, Form(groups=8, gated=False)),
        ({"activation": "gelu", "gated_linear_unit": True}, Form(groups=8)),
        ({"tie_word_embeddings": True, "bias": True}, Form(groups=8, tied=True, biases=True)),
        ({"position_embedding_type": "learned_absolute"}, Form(groups=8, learned_positions=True)),
        (
            {"num_moe_experts": 64, "moe_router_topk": 6, "moe_layer_freq": [0, 1, 1]},
            Form(groups=8, experts=64, experts_per_token=6, first_dense=1),
        ),
    ],
)
def test_what_a_model_does_not_say_is_as_usual(config: dict[str, Any], form: Form) -> None:
    assert own_form({"config": config}, Form(groups=8), "recipe") == form


@pytest.mark.parametrize(
    ("family", "config", "says"),
    [
        ("llama", {**_LLAMA2_7B, "num_query_groups": 3}, "num_query_groups is 3, but must divide"),
        ("mixtral", {**_MIXTRAL, "num_moe_experts": 2.5}, r"num_moe_experts is 2\.5, but must be"),
    ],
)
def test_groups_and_experts_that_are_none_are_named(
    family: str, config: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        size_b(family, config)


@pytest.mark.parametrize("model", ["llama3-8b", {"class": "Llama3Config8B"}])
@pytest.mark.parametrize(("given", "vocabulary"), [(None, 128256), (32000, 32000)])
def test_a_known_model_has_its_own_vocabulary_where_none_is_given(
    model: object, given: int | None, vocabulary: int, tmp_path: Path
) -> None:
    found = AutoConfigurator(model=model, num_nodes=1, path_to_logs=tmp_path, vocab_size=given)
    base, _ = found.generate_configs()
    assert base["model"]["config"]["vocab_size"] == vocabulary
