"""Number of points of ``grid=nemo`` in each predefined search, against NVIDIA's own tool."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import Family
from autoconf_launch.tuning_spaces.recommend_tables import search_config

from .searches import candidates, mesh, nemo_points, shape

COUNTS = {
    "gpt3/0.126b": 7,
    "gpt3/0.843b": 7,
    "gpt3/2b": 12,
    "gpt3/5b": 12,
    "gpt3/8b": 12,
    "gpt3/20b": 15,
    "gpt3/43b": 18,
    "gpt3/175b": 9,
    "gpt3/unknown_size": 16,
    "t5/0.22b": 49,
    "t5/2.8b": 105,
    "t5/11b": 98,
    "t5/23.5b": 100,
    "t5/41.2b": 175,
    "mt5/0.17b": 35,
    "mt5/0.39b": 35,
    "mt5/3.2b": 105,
    "mt5/11.9b": 56,
    "mt5/24.65b": 100,
    "mt5/42.54b": 175,
    "bert/0.11b": 7,
    "bert/4b": 12,
    "bert/20b": 6,
    "llama/llama3_8b": 14,
    "llama/llama2_7b": 855,
    "llama/llama2_13b": 234,
    "llama/llama2_70b": 174,
    "baichuan2/7b": 855,
    "baichuan2/13b": 234,
    "mixtral/3b": 24,
    "mixtral/7b": 42,
    "qwen2/4b": 4,
    "qwen2/72b": 13,
}
"""Distinct points of NVIDIA's tool at 80 GB, of searches that none of its defects touches."""
COUNTS_40GB = {
    "gpt3/0.126b": 11,
    "gpt3/0.843b": 11,
    "gpt3/2b": 16,
    "gpt3/5b": 15,
    "gpt3/8b": 15,
    "gpt3/20b": 30,
    "gpt3/43b": 9,
    "gpt3/175b": 10,
    "gpt3/unknown_size": 18,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_there_are_as_many_points_as_nemo_has(name: str, count: int) -> None:
    assert len(candidates(name)) == count


@pytest.mark.parametrize(("name", "count"), COUNTS_40GB.items())
def test_there_are_as_many_points_at_40_gb(name: str, count: int) -> None:
    assert len(candidates(name, 40)) == count


BEYOND_NEMO = {"t5/100b", "t5/203b", "mt5/101.6b", "mt5/206b", "bert/100b"} | {
    "llama/llama3_70b",
    "qwen2/7b",
    "qwen2/14b",
}
"""Searches of which NVIDIA's tool has points that cannot run, or drops some that can."""


@pytest.mark.parametrize("name", sorted(BEYOND_NEMO))
def test_where_the_points_differ_from_nemo_s_its_own_cannot_run(name: str) -> None:
    """By NVIDIA's two checks, which divide as fractions and leave context ranks out."""
    settings = search_config(name).get(("train_settings",))
    gpus = settings["num_nodes"] * settings["gpus_per_node"]
    ours = {mesh(one) for one in candidates(name)}
    theirs = nemo_points(name, gpus)
    dropped, added = theirs - ours, ours - theirs
    family = Family(name.partition("/")[0])
    _, _, batch, _ = shape(family, settings["model_size_in_b"], settings, 80)
    assert dropped or added
    assert all(gpus % (tensor * stages * context) for tensor, stages, context, *_ in dropped)
    for tensor, stages, context, _, micro in added:
        data, rest = divmod(gpus, tensor * stages * context)
        assert (rest, batch % (data * micro)) == (0, 0)
