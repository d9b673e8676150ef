"""Names of families: any is one, but none that is a known one mistyped."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import (
    Family,
    family_named,
    nearest_predefined,
    parse_model_name,
)
from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import model_names, predefined_searches


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gtp3", "gpt3"),
        ("lama", "llama"),
        ("Lama3", "llama"),
        ("qwan2", "qwen"),
        ("mixtrl", "mixtral"),
        ("nemotorn", "nemotron"),
        ("gemna", "gemma"),
        ("startcoder", "starcoder"),
    ],
)
def test_a_mistyped_family_is_refused_with_the_one_that_is_meant(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{typed}' is unknown; did you mean '{meant}'"):
        family_named(typed)


@pytest.mark.parametrize(
    "name",
    ["falcon", "gpt", "gpt2", "gptj", "llama4", "qwen3", "roberta", "codellama", "bart", "opt"],
)
def test_another_family_and_another_version_are_names_of_their_own(name: str) -> None:
    assert family_named(name) == Family(name)
    assert f"No rule knows the family '{name}'" in family_named(name).unknown_note


@pytest.mark.parametrize("name", KNOWN_FAMILIES)
def test_a_known_family_is_itself_in_any_case(name: str) -> None:
    assert family_named(name.upper()) == Family(name)
    assert not Family(name).unknown_note


@pytest.mark.parametrize("name", model_names())
def test_families_of_the_model_catalogue_are_not_taken_for_mistyped(name: str) -> None:
    first = re.split(r"[-_.]", name)[0]
    assert family_named(first).name == first.lower()


@given(st.sampled_from([one for one in KNOWN_FAMILIES if len(one) > 5]), st.data())
def test_a_letter_that_is_left_out_inside_a_name_is_noticed(
    name: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(1, len(name.rstrip("2")) - 1))
    with pytest.raises(ConfigError, match="did you mean"):
        family_named(name[:at] + name[at + 1 :])


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


@pytest.mark.parametrize(
    ("family", "size_b", "vocabulary", "name"),
    [
        ("gpt3", 4.03, 51_200, "gpt3/5b"),
        ("gpt3", 0.2, 51_200, "gpt3/0.126b"),
        ("t5", 48.38, 29_000, "t5/41.2b"),
        ("llama", 7, 32_000, "llama/llama2_7b"),
        ("llama", 70, 32_000, "llama/llama2_70b"),
        ("llama", 70, 128_256, "llama/llama3_70b"),
        ("chatglm", 6, 65_024, "chatglm/6b"),
        ("starcoder", 7, 49_152, None),
    ],
)
def test_it_is_the_nearest_by_ratio_then_by_vocabulary(
    family: str, size_b: float, vocabulary: int, name: str | None
) -> None:
    assert nearest_predefined(predefined_searches(), family, size_b, vocabulary, 4096) == name
