"""The predefined search that is nearest."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import nearest_predefined
from autoconf_launch.tuning_spaces import predefined_searches


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
