"""Flags of a tune that are keys of the autotuning section."""

from __future__ import annotations

import pytest

import autoconf_launch
from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.flags import parse_request


def test_a_name_may_have_capitals_or_none() -> None:
    request = parse_request(["--autotuning=tune", "--metric", "flops", "train.py"])
    assert request.settings == {"metric": "FLOPS"}


def test_a_wrong_value_of_a_setting_is_blamed_on_its_keyword() -> None:
    with pytest.raises(ConfigError, match=r"settings\['metric'\] 'speed' is not a metric"):
        autoconf_launch.tune("train.py", settings={"metric": "speed"})
