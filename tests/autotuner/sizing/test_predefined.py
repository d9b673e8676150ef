"""The predefined search that is nearest."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing.families import nearest_predefined
from autoconf_launch.tuning_spaces.search_configs import predefined_searches


@pytest.mark.parametrize(
    ("family", "size_b", "name"),
    [
        ("gpt3", 4.03, "gpt3/5b"),
        ("gpt3", 0.2, "gpt3/0.126b"),
        ("t5", 48.38, "t5/41.2b"),
        ("llama", 7, "llama/llama2_7b"),
        ("chatglm", 6, "chatglm/6b"),
        ("starcoder", 7, None),
    ],
)
def test_it_is_the_nearest_by_ratio(family: str, size_b: float, name: str | None) -> None:
    assert nearest_predefined(predefined_searches(), family, size_b) == name
