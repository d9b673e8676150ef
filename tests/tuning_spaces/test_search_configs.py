"""The folder of searches: complete, and each as NVIDIA's tool has it."""

from __future__ import annotations

import pytest
import yaml

from autoconf_launch.autotuner.sizing import Family
from autoconf_launch.autotuner.sizing.families import KNOWN_FAMILIES
from autoconf_launch.core import ConfigError
from autoconf_launch.nemo.search.settings import KNOWN
from autoconf_launch.tuning_spaces import CONF, is_shipped, predefined_searches, usual_of
from autoconf_launch.tuning_spaces.recommend_tables import (
    base_template_names,
    search_config,
    search_config_names,
)

_TRAIN = "search_config.train_settings."
_OPTIONAL = {"override_search_num_nodes", "global_batch_size"}


def test_searches_are_shipped_as_nvidia_has_them() -> None:
    assert len(predefined_searches()) == 42
    assert {"gpt3/5b", "mt5/42.54b", "llama/llama2_7b_nemo"} <= set(search_config_names())
    found = search_config("gpt3/5b").to_dict()
    assert found["train_settings"]["num_nodes"] == 16
    assert found["inference_settings"]["run"]["tensor_parallel_sizes"] == [1, 2, 4]
    assert found["inference_settings"]["benchmark"]["batch_sizes"] == [4, 8, 16, 32, 64, 128, 256]
    named = [
        search_config(n).get(("train_settings", "custom_config")) for n in search_config_names()
    ]
    stems = {path.rpartition("/")[2].removesuffix(".yaml") for path in named if path}
    assert stems <= set(base_template_names())
    assert is_shipped(Family("llama"), 70, 8192)
    assert is_shipped(Family("qwen"), 72, 32768)
    assert not is_shipped(Family("llama"), 70, 16384)
    assert not is_shipped(Family("falcon"), 70, 8192)
    with pytest.raises(ConfigError, match="did you mean 'gpt3/5b'"):
        search_config("gpt3/5bb")
    assert usual_of("mt5") == (250_000, 512)
    assert usual_of("falcon") is None


@pytest.mark.parametrize("family", sorted(KNOWN_FAMILIES))
def test_each_family_has_a_search_of_unknown_size(family: str) -> None:
    settings = search_config(f"{family}/unknown_size").get(("train_settings",))
    assert settings["model_size_in_b"] is None


@pytest.mark.parametrize("name", search_config_names())
def test_every_search_has_every_setting(name: str) -> None:
    known = {key.removeprefix(_TRAIN) for key in KNOWN if key.startswith(_TRAIN)}
    settings = search_config(name).get(("train_settings",))
    assert known - settings.keys() <= _OPTIONAL
    assert settings.keys() <= known


@pytest.mark.parametrize("name", ["bcm", "bcp", "local"])
def test_each_cluster_type_has_its_file(name: str) -> None:
    text = (CONF / "cluster" / f"{name}.yaml").read_text()
    assert "job_name_prefix" in yaml.safe_load(text)
