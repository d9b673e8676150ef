"""Number of points of ``grid=nemo`` in each predefined search, against NVIDIA's own tool."""

from __future__ import annotations

import pytest

from autoconf_launch.autotuner.sizing import Family
from autoconf_launch.tuning_spaces.recommend_tables import search_config

from .expected import rows
from .searches import candidates, mesh, nemo_points, shape


@pytest.mark.parametrize("row", rows("expected_points.csv"), ids=str)
def test_there_are_as_many_points_as_nemo_has(row: dict[str, str]) -> None:
    """Distinct points of NVIDIA's tool, of searches that none of its defects touches."""
    assert len(candidates(row["name"], int(row["memory_gb"]))) == int(row["count"])


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
