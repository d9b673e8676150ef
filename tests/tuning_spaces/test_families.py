"""Model types with layers of several kinds, against the classes of transformers and diffusers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from autoconf_launch.autotuner.cost import active_parameters, parameters
from autoconf_launch.core import Architecture, ConfigError, RawConfig, StateForm
from autoconf_launch.tuning_spaces import from_hugging_face, model_names, named_model

NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
TEXT = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
TEXT |= {"num_key_value_heads": 2, "head_dim": 64}
CAUSAL, MASKED = "MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_MASKED_LM_MAPPING"
SPEECH, IMAGES = "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"
BOTH = "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"

TRANSFORMERS: list[tuple[str, str, dict[str, Any]]] = [
    ("nemotron_h", CAUSAL, {"hybrid_override_pattern": NANO}),
    ("nemotron_h", CAUSAL, {"hybrid_override_pattern": "M-M*E", "moe_latent_size": 512}),
    ("jamba", CAUSAL, {}),
    ("jamba", CAUSAL, {"num_experts": 1, "attn_layer_period": 5, "num_hidden_layers": 11}),
    ("granitemoehybrid", CAUSAL, {}),
    ("granitemoehybrid", CAUSAL, {"num_local_experts": 0, "mamba_n_groups": 2}),
    ("falcon_h1", CAUSAL, {}),
    ("falcon_h1", CAUSAL, {"mamba_rms_norm": True, "tie_word_embeddings": True}),
    ("kimi_linear", CAUSAL, {}),
    ("qwen3_next", CAUSAL, {}),
    ("deepseek_v32", CAUSAL, {}),
    ("modernbert", MASKED, {}),
    ("vit", IMAGES, {"hidden_size": 1024, "num_attention_heads": 16, "num_labels": 1000}),
    ("whisper", SPEECH, {}),
    ("qwen2_5_vl", BOTH, {"text_config": TEXT}),
    ("qwen3_vl", BOTH, {"text_config": TEXT, "tie_word_embeddings": True}),
    ("qwen3_vl_moe", BOTH, {"text_config": TEXT}),
    ("gemma3", BOTH, {"text_config": TEXT, "vision_config": {"vision_use_head": False}}),
]
DIFFUSERS: list[tuple[str, dict[str, Any]]] = [
    ("FluxTransformer2DModel", {"guidance_embeds": True}),
    ("SD3Transformer2DModel", {}),
    ("SD3Transformer2DModel", {"num_layers": 6, "qk_norm": "rms_norm", "patch_size": 4}),
    ("WanTransformer3DModel", {"cross_attn_norm": False, "num_layers": 3}),
    ("WanTransformer3DModel", {}),
]


def weights_on_meta(build: Callable[[], torch.nn.Module]) -> int:
    with torch.device("meta"):
        return sum(weight.numel() for weight in build().parameters())


@pytest.mark.parametrize(("kind", "table", "given"), TRANSFORMERS)
def test_a_type_has_as_many_weights_as_transformers_makes(
    kind: str, table: str, given: dict[str, Any]
) -> None:
    pytest.importorskip("transformers")
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as auto

    config = AutoConfig.for_model(kind, **given)
    counted = weights_on_meta(lambda: getattr(auto, table)[type(config)](config))
    silent = {"model_type": kind, "vision_config": {}, **given}
    if table != BOTH:
        del silent["vision_config"]
    elif kind != "gemma3":
        silent["text_config"] = {**TEXT}
    for document in (config.to_dict(), silent):
        read = from_hugging_face(RawConfig(document), kind)
        assert parameters(read) == counted


@pytest.mark.parametrize(("kind", "given"), DIFFUSERS)
def test_a_diffusion_transformer_has_as_many_weights_as_diffusers_makes(
    kind: str, given: dict[str, Any]
) -> None:
    diffusers = pytest.importorskip("diffusers")
    counted = weights_on_meta(lambda: getattr(diffusers, kind)(**given))
    read = from_hugging_face(RawConfig({"_class_name": kind, **given}), kind)
    assert parameters(read) == counted


@pytest.mark.parametrize(
    ("name", "weights"),
    [  # of the files on huggingface.co
        ("nemotron-nano-v2-9b", 8_888_227_328),
        ("nemotron3-nano-30b-a3b", 31_577_937_344),
        ("qwen2.5-vl-7b", 8_292_166_656),
        ("qwen2.5-vl-3b", 3_754_622_976),
        ("qwen3-vl-8b", 8_767_123_696),
        ("qwen3-vl-30b-a3b", 31_070_754_032),
        ("gemma3-4b-vision", 4_300_079_472),
        ("whisper-large-v3", 1_543_490_560),
        ("vit-large", 304_326_632),
        ("flux-dev", 11_901_408_320),
        ("wan2.1-t2v-1.3b", 1_418_996_800),
    ],
)
def test_a_named_model_of_a_type_has_its_published_weights(name: str, weights: int) -> None:
    assert parameters(named_model(name)) == weights


def test_tokens_pass_only_the_experts_chosen_for_them() -> None:
    active = {name: active_parameters(named_model(name)) / 1e9 for name in model_names()}
    assert active["nemotron3-nano"] == pytest.approx(3.6, abs=0.1)  # 3.2 without embeddings
    assert active["nemotron3-super"] == pytest.approx(12.7, abs=0.2)
    assert active["kimi-linear"] == pytest.approx(3.5, abs=0.1)
    assert active["jamba-1.5-large"] == pytest.approx(94, abs=1)


def kinds_of(model: Architecture) -> list[tuple[int, bool, bool, bool]]:
    """Of each kind of layer: how many, and whether with attention, a state, an MLP."""
    return [
        (kind.count, kind.heads != 0, kind.state is not None, kind.ffn != 0 or kind.experts)
        for kind in model.kinds
    ]


def test_a_pattern_says_which_layers_are_alike() -> None:
    assert kinds_of(named_model("nemotron-h-8b")) == [
        (24, False, True, False),
        (24, False, False, True),
        (4, True, False, False),
    ]
    assert kinds_of(named_model("falcon-h1-7b")) == [(44, True, True, True)]
    windows = {kind.window: kind.count for kind in named_model("modernbert-base").kinds}
    assert windows == {None: 8, 128: 14}
    forms = {kind.state.form for kind in named_model("jamba-1.5-mini").kinds if kind.state}
    assert forms == {StateForm.MAMBA1}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "layer 1 is of a kind"),
        ({"model_type": "nemotron_h", "mlp_bias": True}, "biases of its matrices are not"),
        ({"model_type": "vit", "image_size": [224, 112]}, "cannot be read as a vit"),
        ({"model_type": "vit", "hidden_size": "wide"}, "cannot be read as a vit"),
        ({"model_type": "jamba", "num_hidden_layers": 1 << 20}, "number of layers is 1048576"),
        ({"model_type": "jamba", "num_experts_per_tok": 99}, "99 experts"),
        ({"model_type": "falcon_h1", "num_attention_heads": 9}, "9 heads must be a multiple"),
        ({"_class_name": "SD3Transformer2DModel", "dual_attention_layers": [0]}, "two attentions"),
        ({"_class_name": "WanTransformer3DModel", "image_dim": 1280}, "embeddings of images"),
    ],
)
def test_a_setting_that_is_not_modelled_is_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        from_hugging_face(RawConfig(document), "x")


def test_older_files_have_the_keys_of_the_text_part_at_top() -> None:
    inner = {"hidden_size": 4096, "num_hidden_layers": 28, "num_key_value_heads": 4}
    vision = {"hidden_size": 1280}
    flat = {"model_type": "qwen2_5_vl", **inner, "vision_config": vision}
    nested = {"model_type": "qwen2_5_vl", "text_config": inner, "vision_config": vision}
    assert from_hugging_face(RawConfig(flat), "x") == from_hugging_face(RawConfig(nested), "x")


def test_a_tower_reads_the_patches_of_an_image() -> None:
    tower = named_model("gemma3-4b-vision").front
    assert tower is not None
    assert tower.tokens == (896 // 14) ** 2
    assert named_model("vit-large").tokens == 1 + (224 // 16) ** 2
    assert replace(named_model("gemma3-4b-vision"), front=None, name="") == replace(
        named_model("gemma3-4b"), name=""
    )
