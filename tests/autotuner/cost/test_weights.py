"""Counts against published totals: config files and model cards of the models' authors.

The last ones are those of transformers' own classes with these shapes.
"""

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import active_parameters, parameters
from autoconf_launch.tuning_spaces import named_model

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "t5-small": 60_506_624,
    "t5-11b": 11_307_321_344,
    "mt5-xxl": 12_921_057_280,
    "bloom-176b": 176_247_271_424,
    "mpt-7b": 6_649_286_656,
    "llama2-70b": 68_976_648_192,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "gemma-7b": 8_537_680_896,
    "gemma2-27b": 27_227_128_320,
    "gemma3-1b": 999_885_952,
    "qwen2-0.5b": 494_032_768,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-8b": 8_190_735_360,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "pythia-6.9b": 6_857_302_016,
    "gpt-neox-20b": 20_554_567_680,
    "opt-6.7b": 6_658_473_984,
    "bloom-3b": 3_002_557_440,
    "falcon-7b": 6_921_720_704,
    "falcon3-7b": 7_455_550_464,
    "phi-2": 2_779_683_840,
    "phi3-mini": 3_821_079_552,
    "phi4": 14_659_507_200,
    "smollm-135m": 134_515_008,
    "smollm3-3b": 3_075_098_624,
    "tinyllama-1.1b": 1_100_048_384,
    "olmo2-7b": 7_298_617_344,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "roberta-base": 124_645_632,
    "gemma3-270m": 268_098_176,
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_a_named_model_has_its_published_number_of_weights(name: str, published: int) -> None:
    assert parameters(named_model(name)) == published


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("qwen3-235b-a22b", 22.2), ("deepseek-v3", 37.6)],
)
def test_a_token_passes_only_the_experts_chosen_for_it(name: str, billions: float) -> None:
    assert active_parameters(named_model(name)) / 1e9 == pytest.approx(billions, abs=0.05)


def test_experts_and_their_absence_decide_which_weights_a_token_passes() -> None:
    assert active_parameters(named_model("gpt2")) == parameters(named_model("gpt2"))
    every = named_model("mixtral-8x7b")
    assert every.experts
    half = replace(every, experts=replace(every.experts, every=2))
    # 16 layers have one perceptron in place of eight and a router
    perceptron, router = 3 * 4096 * 14336, 8 * 4096
    assert parameters(every) - parameters(half) == 16 * (7 * perceptron + router)
