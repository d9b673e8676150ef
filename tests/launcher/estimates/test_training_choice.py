from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost.model_state import trained_share
from autoconf_launch.core import FrozenPart, RawConfig, Workload
from autoconf_launch.launcher.estimates.training_choice import machine_of
from autoconf_launch.tuning_spaces.clusters import cluster_of_document
from autoconf_launch.tuning_spaces.models import named_model

GPT = named_model("gpt2")
GPT2 = Workload(model=GPT, sequence_length=1024)


def test_links_of_a_cluster_file_take_the_place_of_the_usual_ones() -> None:
    group = {"gpu": "H100", "gpus": 4, "link_gb_per_s": 100, "network_gb_per_s": 10}
    found = machine_of(cluster_of_document(RawConfig({"nodes": [group]})))
    assert (found.gpus_per_node, found.link.bytes_per_s) == (4, 100e9)
    assert found.node_network_bytes_per_s == 40e9


def test_adapters_alone_have_gradients() -> None:
    assert trained_share(replace(GPT2, lora_rank=8)) < 0.02


def test_frozen_parts_have_none() -> None:
    frozen = replace(GPT2, frozen=frozenset({FrozenPart.EMBEDDING}))
    # 50257 x 768 and 1024 x 768 of 124.4 million
    assert trained_share(frozen) == pytest.approx(1 - 39.38 / 124.44, abs=1e-3)
