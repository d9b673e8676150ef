"""Flags of a tune that are keys of the autotuning section."""

from __future__ import annotations

import pytest

import autoconf_launch
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import parse_request


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--effort fast", "--effort 'fast' is not an effort; known: normal, quick, thorough"),
        ("--metric latncy", "--metric 'latncy' is not a metric; did you mean 'latency'?"),
        ("--strategy glob", "--strategy 'glob' is not a strategy; did you mean 'global'?"),
        ("--tuner-type rando", "--tuner_type 'rando' is not a tuner; did you mean 'random'?"),
        ("--seed=-3", "--seed '-3' must be a whole number of at least 0"),
        ("--tuner-num-trials x", "--tuner_num_trials 'x' must be a whole number"),
        ("--fast=maybe", "--fast 'maybe' must be true or false"),
        ("--model-info {", "--model_info '{' is not JSON"),
    ],
)
def test_a_wrong_value_of_a_setting_is_blamed_on_its_flag(words: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_request([*words.split(), "train.py"])
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).endswith(("?", "--help.")), refused.value


def test_a_name_may_have_capitals_or_none() -> None:
    request = parse_request(["--autotuning=tune", "--metric", "flops", "train.py"])
    assert request.settings == {"metric": "FLOPS"}


def test_a_wrong_value_of_a_setting_is_blamed_on_its_keyword() -> None:
    with pytest.raises(ConfigError, match=r"settings\['metric'\] 'speed' is not a metric"):
        autoconf_launch.tune("train.py", settings={"metric": "speed"})
