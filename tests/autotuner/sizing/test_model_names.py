from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import parse_model_name


@pytest.mark.parametrize(
    ("name", "family", "size_b", "experts"),
    [
        ("GPTConfig126M", "gpt3", 0.126, 0),
        ("gpt3/0.126b", "gpt3", 0.126, 0),
        ("Llama3Config70B", "llama", 70, 0),
        ("Llama32Config1B", "llama", 1, 0),
        ("llama3.1-405b", "llama", 405, 0),
        ("Qwen2Config1P5B", "qwen", 1.5, 0),
        ("Qwen3Config1P7B", "qwen", 1.7, 0),
        ("qwen2.5-0.5b", "qwen", 0.5, 0),
        ("Qwen3Config30B_A3B", "qwen", 30, 0),
        ("MixtralConfig8x7B", "mixtral", 7, 8),
        ("mixtral_8x22b", "mixtral", 22, 8),
        ("MistralNeMoConfig12B", "mistral", 12, 0),
        ("Starcoder2Config15B", "starcoder", 15, 0),
        ("MT5Config220M", "mt5", 0.22, 0),
        ("HuggingFaceBertBaseConfig", "bert", None, 0),
        ("MyConfig", None, None, 0),
    ],
)
def test_a_name_says_family_and_size(
    name: str, family: str | None, size_b: float | None, experts: int
) -> None:
    found = parse_model_name(name)
    assert (found.family, found.experts) == (family, experts)
    assert found.size_b == (None if size_b is None else pytest.approx(size_b))


@given(st.integers(1, 999), st.integers(1, 9))
def test_a_size_with_a_fraction_is_never_cut_at_its_point(whole: int, tenth: int) -> None:
    assert parse_model_name(f"Qwen2Config{whole}P{tenth}B").size_b == pytest.approx(
        whole + tenth / 10
    )
