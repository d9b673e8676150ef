"""Names of families: any is one, but none that is a known one mistyped."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sizing import Family, family_named
from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import model_names


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
