import re
from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.cost import active_parameters, parameters
from autoconf_launch.core import ConfigError, DecodeError
from autoconf_launch.tuning_spaces import (
    build_architecture,
    model_ids,
    model_names,
    named_model,
    nearest_model_id,
)

FAMILIES = (
    *("gpt2", "gpt2-xl", "gpt3-125m", "gpt3-175b", "gpt3-1t", "bert-large", "t5-11b", "mt5-xl"),
    *("llama2-7b", "llama3-70b", "llama3.1-405b", "mistral-7b", "mixtral-8x22b", "gemma-2b"),
    *("gemma2-9b", "nemotron4-340b", "qwen2-72b", "qwen2.5-14b", "deepseek-v3"),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_models_that_the_planner_promises_are_known(name: str) -> None:
    assert name in model_names()


@pytest.mark.parametrize("name", ["llama3.1-8b", "Llama-3.1-8B", "LLAMA3.1_8b"])
def test_case_and_dashes_of_a_name_do_not_matter(name: str) -> None:
    assert named_model(name).hidden == 4096


def test_names_have_a_nearest_one_and_models_no_formula_covers_a_reason() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'gpt2-xl'\?$") as error:
        named_model("gpt2-xxl")
    assert "\n" not in str(error.value)
    assert nearest_model_id("meta-lama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B"
    assert nearest_model_id("????") in model_ids()
    assert named_model("META-LLAMA/llama-3.1-8b").name == "meta-llama/Llama-3.1-8B"
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+", one) for one in model_ids())
    for name in ("Nemotron 3 Ultra", "nvidia/Nemotron3-Ultra-550B-A55B"):
        with pytest.raises(ConfigError, match=r"cannot be predicted: its sizes are in no source"):
            named_model(name)
    assert named_model("nemotron3-8b").experts is None


@pytest.mark.parametrize("name", model_names())
def test_each_model_has_sizes_that_make_sense(name: str) -> None:
    model = named_model(name)
    assert model.layers > 0
    assert model.heads % model.kv_heads == 0
    assert model.vocabulary > 20_000 or model.tokens


def test_shapes_follow_from_each_other_or_are_refused() -> None:
    model = build_architecture("x", {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 10})
    assert (model.head, model.ffn, model.kv_heads) == (16, 256, 4)
    shapes = {"layers": 2, "hidden": 64, "heads": 6, "head": 16, "vocabulary": 10}
    assert build_architecture("x", shapes).head == 16
    with pytest.raises(DecodeError):
        build_architecture("x", {"layers": "two", "hidden": 64, "heads": 4, "vocabulary": 10})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"heads": 7}, "hidden is 64, but must be a multiple of heads, which is 7"),
        ({"kv_heads": 3}, "heads is 4, but must be a multiple of kv_heads, which is 3"),
        ({"layers": 0}, "layers is 0, but must be from 1"),
        ({"hidden": 1 << 60}, "hidden is 1152921504606846976"),
        (
            {"experts": {"count": 8, "per_token": 9, "ffn": 4}},
            "per_token is 9, but must be 1 to 8",
        ),
        (
            {"experts": {"count": 8, "per_token": 2, "ffn": 4, "first_dense": 5}},
            "first_dense is 5",
        ),
    ],
)
def test_shapes_that_contradict_each_other_are_refused(changed: Any, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        build_architecture(
            "x", {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 10, **changed}
        )


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2-7b"),
        ("google/gemma-3-4b-it", "gemma3-4b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("openai-community/gpt2", "gpt2"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
    ],
)
def test_an_id_of_the_hub_is_the_model_of_our_name(model_id: str, name: str) -> None:
    assert named_model(model_id) == replace(named_model(name), name=model_id)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("GPT OSS 20B", 20.9, 4.2),
        ("gpt_oss_120b", 116.8, 5.7),
        ("Kimi-K2", 1026, 32.9),
        ("GLM 4.5", 353, 33.6),
        ("GLM 4.5 Air", 106.9, 13.4),
        ("Llama 4 Scout", 107.8, 17.2),
        ("Llama 4 Maverick", 400.7, 17.2),
        ("Qwen3_30B_a3B", 30.5, 3.3),
        ("Qwen3_235B_A22B", 235.1, 22.2),
        ("Qwen3 Next 80B A3B", 79.7, 3.9),
        ("DeepSeek V3 (MTP)", 682.6, 38.2),
    ],
)
def test_mixtures_of_experts_have_their_published_weights(
    name: str, billions: float, active: float
) -> None:
    model = named_model(name)
    assert parameters(model) / 1e9 == pytest.approx(billions, rel=0.005)
    assert active_parameters(model) / 1e9 == pytest.approx(active, rel=0.02)
