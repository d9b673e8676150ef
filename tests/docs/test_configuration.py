"""The reference of the configuration file has every knob."""

from __future__ import annotations

import re

import pytest

from autoconf_launch.core import RUNTIME_KNOBS, SPELLED, Naming

from .commands import ROOT

TEXT = (ROOT / "docs" / "reference" / "configuration.md").read_text()
KEYS = sorted(
    knob.key
    for knob in {**SPELLED, **RUNTIME_KNOBS}.values()
    if knob.key and knob.naming is not Naming.NEVER
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_can_be_searched_is_in_the_reference(key: str) -> None:
    name = key.rpartition(".")[2]
    assert re.search(rf'["`.]{name}["`]', TEXT)
