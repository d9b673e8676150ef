from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost.training import FrozenPart, TrainingSetup, trainer
from autoconf_launch.core import Precision, RawConfig
from autoconf_launch.launcher.estimates.training_choice import machine_of, workload_of
from autoconf_launch.tuning_spaces.clusters import cluster_of_document, parse_cluster
from autoconf_launch.tuning_spaces.models import named_model

GPT = named_model("gpt2")
H100 = machine_of(parse_cluster("8xH100"))
SETUP = TrainingSetup(sequence_length=1024)


def test_links_of_a_cluster_file_take_the_place_of_the_usual_ones() -> None:
    group = {"gpu": "H100", "gpus": 4, "link_gb_per_s": 100, "network_gb_per_s": 10}
    found = machine_of(cluster_of_document(RawConfig({"nodes": [group]})))
    assert (found.gpus_per_node, found.link.bytes_per_s) == (4, 100e9)
    assert found.node_network_bytes_per_s == 40e9


def test_a_gpu_without_flash_attention_runs_without() -> None:
    v100 = machine_of(parse_cluster("8xV100"))
    assert workload_of(GPT, SETUP, H100).flash_attention
    assert not workload_of(GPT, SETUP, v100).flash_attention


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8, Precision.FP32])
def test_time_has_the_precision_of_memory(precision: Precision) -> None:
    assert workload_of(GPT, replace(SETUP, precision=precision), H100).precision is precision


def test_nemo_runs_on_a_vendor_s_kernels() -> None:
    found = workload_of(GPT, trainer("nemo").applied(SETUP), H100)
    assert (found.transformer_engine, found.async_tensor, found.compiled) == (True, True, True)


def test_adapters_alone_have_gradients() -> None:
    assert workload_of(GPT, replace(SETUP, lora_rank=8), H100).trained < 0.02


def test_frozen_parts_have_none() -> None:
    frozen = replace(SETUP, frozen=frozenset({FrozenPart.EMBEDDING}))
    # 50257 x 768 and 1024 x 768 of 124.4 million
    assert workload_of(GPT, frozen, H100).trained == pytest.approx(1 - 39.38 / 124.44, abs=1e-3)
